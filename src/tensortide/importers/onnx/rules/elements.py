"""Element work of ONNX graphs: arithmetic, activations, quantization. The same counts as for other vocabularies."""

from __future__ import annotations

from tensortide.cost.forms import simple
from tensortide.cost.kinds import Kind, Weights, elements
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.rules.pointwise import (
    ARITHMETIC,
    COMPARISON,
    DIVISION,
    ELU,
    GELU,
    GELU_TANH,
    HARD_SIGMOID,
    HARD_SWISH,
    LEAKY,
    MISH,
    MULTIPLICATION,
    REMAINDER,
    SELU,
    SIGMOID,
    SILU,
    SOFTPLUS,
    SOFTSIGN,
    SPECIAL,
    describe,
)
from tensortide.importers.onnx.rules.moves import onnx

TABLE: dict[str, Weights] = {
    "Add Sub Neg +BiasAdd": ARITHMETIC,
    "Mul": MULTIPLICATION,
    "Div Reciprocal": DIVISION,
    "Mod": REMAINDER,
    "Equal Less LessOrEqual Greater GreaterOrEqual Relu Abs Sign Floor Ceil Round IsNaN IsInf Where": COMPARISON,
    "Exp Log Sqrt Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Tanh Erf": SPECIAL,
    "Sigmoid": SIGMOID,
    "Swish": SILU,
    "LeakyRelu PRelu ThresholdedRelu": LEAKY,
    "Softplus": SOFTPLUS,
    "Softsign": SOFTSIGN,
    "Elu Celu": ELU,
    "Selu": SELU,
    "Mish": MISH,
    "HardSwish": HARD_SWISH,
    "HardSigmoid": HARD_SIGMOID,
    "Shrink": Weights(3, 0, 2),
    "+FastGelu": GELU_TANH,
    "+BiasGelu": Weights(6, 1),
    "+QuickGelu": Weights(6, 2),
    "+BiasDropout": Weights(2),
    "*SwiGLU": Weights(6, 2),
    "+BiasSplitGelu": Weights(7, 1),
    "HannWindow HammingWindow BlackmanWindow": Weights(3, 1),
    "*RotaryEmbedding": Weights(3),
    # a difference, a scaling by the scale's reciprocal, rounding, two bounds
    "*QuantizeLinear": Weights(5, 1, 3),
    "DynamicQuantizeLinear": Weights(7, 1, 5),
    "+QLinearAdd": Weights(8, 1, 3),
    "+QLinearMul": Weights(6, 1, 3),
    "+QLinearSigmoid +QLinearLeakyRelu": Weights(6, 2, 3),
}
"""FLOPs per output element, of which special functions and comparisons."""

for _names, _weights in TABLE.items():
    onnx(_names, describe(_weights), "Element by element, operands broadcast.")(simple(_weights))


@onnx("And Or Xor Not BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitShift", "1 integer op per output element")
def logical(op: OpCall) -> Cost:
    """Work on booleans and bits."""
    return Cost(int_ops=op.out.numel)


@onnx("*Gelu", "5 per element; with the approximation by tanh 9")
def gelu(op: OpCall) -> Cost:
    """x Phi(x), Phi by erf or by tanh."""
    return elements(op, op.out.numel, GELU_TANH if op.arg("approximate", "none") == "tanh" else GELU)


@onnx("Pow", "1 per element")
def power(op: OpCall) -> Cost:
    """A power: of an exponent that a graph does not hold, as a special function."""
    return elements(op, op.out.numel, SPECIAL)


@onnx("Clip", "1 compared per element and bound")
def clip(op: OpCall) -> Cost:
    """Between bounds."""
    bounds = len(op.inputs) - 1 or sum(name in op.arguments for name in ("min", "max"))
    return elements(op, op.out.numel, Weights(bounds, 0, bounds))


@onnx("Sum", "(n - 1) E: a sum of n tensors")
@onnx("Min Max", "(n - 1) E comparisons", "Smallest or largest of n tensors.")
@onnx("Mean", "n E: a sum of n tensors, divided")
def several(op: OpCall) -> Cost:
    """Mean of n tensors."""
    count = len(op.inputs) - (op.base != "Mean")
    op.let(n=len(op.inputs), E=op.out.numel)
    return elements(op, count * op.out.numel, COMPARISON if op.base in ("Min", "Max") else ARITHMETIC)


@onnx("*DequantizeLinear", "2 per element (1 without a zero point)")
def dequantize(op: OpCall) -> Cost:
    """A difference and a scaling."""
    return elements(op, op.out.numel, Weights(1 + (len(op.inputs) > 2)), Kind.REAL)
