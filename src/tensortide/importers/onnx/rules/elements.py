"""Element work of ONNX graphs: arithmetic, activations, quantization. The same counts as for other vocabularies."""

from __future__ import annotations

from tensortide.cost.families import combined, integer
from tensortide.cost.kinds import WEIGHTS, Kind, Weights
from tensortide.cost.opcall import OpCall
from tensortide.importers.onnx.rules.moves import onnx

onnx.rows({
    "Add Sub Neg +BiasAdd": "arithmetic",
    "Mul": "multiplication",
    "Div Reciprocal": "division",
    "Mod": "remainder",
    "Equal Less LessOrEqual Greater GreaterOrEqual Relu ThresholdedRelu Abs Sign Floor Ceil Round IsNaN IsInf "
    "Where": "comparison",
    "Exp Log Sqrt Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Tanh Erf": "special",
    "Sigmoid": "sigmoid",
    "Swish": "silu",
    "LeakyRelu PRelu": "leaky_relu",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Elu Celu": "elu",
    "Selu": "selu",
    "Mish": "mish",
    "HardSwish": "hard_swish",
    "HardSigmoid": "hard_sigmoid",
    "Shrink": Weights(3, 0, 2),
    "+FastGelu": "gelu_tanh",
    "+BiasGelu": Weights(6, 1),
    "+QuickGelu": Weights(6, 2),
    "+BiasDropout": Weights(2),
    "*SwiGLU": Weights(6, 2),
    "+BiasSplitGelu": Weights(7, 1),
    "Pow": "special",
    "And Or Xor Not BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitShift": integer(),
    "Sum": combined(),
    "Min Max": combined("comparison"),
    "Mean": combined(divided=True),
    "HannWindow HammingWindow": Weights(4, 1),
    "BlackmanWindow": Weights(10, 2),
    "*RotaryEmbedding": Weights(3),
    # a difference, a scaling by the scale's reciprocal, rounding, two bounds
    "*QuantizeLinear": Weights(5, 1, 3),
    "DynamicQuantizeLinear": Weights(7, 1, 5),
    "+QLinearAdd": Weights(8, 1, 3),
    "+QLinearMul": Weights(6, 1, 3),
    "+QLinearSigmoid +QLinearLeakyRelu": Weights(6, 2, 3),
})  # fmt: skip


@onnx.each("*Gelu", "5 per element; with the approximation by tanh 9")
def gelu(op: OpCall) -> Weights:
    """x Phi(x), Phi by erf or by tanh."""
    return WEIGHTS["gelu_tanh" if op.arg("approximate", "none") == "tanh" else "gelu"]


@onnx.each("Clip", "1 compared per element and bound")
def clip(op: OpCall) -> Weights:
    """Between bounds."""
    bounds = len(op.inputs) - 1 or sum(name in op.arguments for name in ("min", "max"))
    return Weights(bounds, 0, bounds)


@onnx.each("*DequantizeLinear", "2 per element (1 without a zero point)", kind=Kind.REAL)
def dequantize(op: OpCall) -> Weights:
    """A difference and a scaling."""
    return Weights(1 + (len(op.inputs) > 2))
