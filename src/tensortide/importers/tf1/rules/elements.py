"""Element work of TensorFlow graphs. The same counts per element as the ops of other vocabularies: docs/cost.md."""

from __future__ import annotations

from tensortide.cost.access import reads
from tensortide.cost.forms import simple
from tensortide.cost.kinds import Kind, Weights, elements, kind_of
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.rules.pointwise import ARITHMETIC, COMPARISON, DIVISION, SIGMOID, SPECIAL, describe
from tensortide.importers.tf1.rules.moves import tf

TABLE: dict[str, Weights] = {
    "Add AddV2 Sub Neg BiasAdd BiasAddV1": ARITHMETIC,
    "Mul Square": Weights(1, 0, 0, 6),
    "SquaredDifference": Weights(2, 0, 0, 8),
    "Div RealDiv Reciprocal Inv DivNoNan Xdivy": DIVISION,
    "FloorDiv FloorMod Mod TruncateDiv TruncateMod": Weights(2, 1, 1),
    "Maximum Minimum Equal NotEqual Less LessEqual Greater GreaterEqual Relu Abs Sign Floor Ceil Round Rint IsNan "
    "IsInf IsFinite Select SelectV2": COMPARISON,
    "Pow Exp Expm1 Log Log1p Sqrt Rsqrt Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Tanh Erf Erfc Erfinv "
    "Ndtri Lgamma Digamma Atan2": SPECIAL,
    "Xlogy": Weights(3, 1, 1),
    "ClipByValue Relu6": Weights(2, 0, 2),
    "Sigmoid": SIGMOID,
    "LeakyRelu": Weights(2, 0, 1),
    "Softplus": Weights(3, 2, 1),
    "Softsign": Weights(3, 1, 1),
    "Elu": Weights(4, 1, 1),
    "Selu": Weights(5, 1, 1),
    "ReluGrad": Weights(1, 0, 1),
    "Relu6Grad": Weights(2, 0, 2),
    "LeakyReluGrad": Weights(2, 0, 1),
    "EluGrad SeluGrad": Weights(3, 0, 1),
    "SigmoidGrad TanhGrad": Weights(3, 0, 0, 14),
    "SoftplusGrad": Weights(5, 2, 1),
    # dy / 2 / y; -dy / 2 * y * y * y; -dy * y * y
    "SqrtGrad": Weights(2, 1),
    "RsqrtGrad": Weights(4),
    "ReciprocalGrad InvGrad": Weights(3),
}
"""FLOPs per output element, of which special functions and comparisons."""

for _names, _weights in TABLE.items():
    tf(_names, describe(_weights), "Element by element, operands broadcast.")(simple(_weights))


@tf("LogicalAnd LogicalOr LogicalNot BitwiseAnd BitwiseOr BitwiseXor Invert", "1 integer op per output element")
def logical(op: OpCall) -> Cost:
    """Work on booleans and bits."""
    return Cost(int_ops=op.out.numel)


@tf("AddN AccumulateNV2", "(n - 1) E: a sum of n tensors")
def add_n(op: OpCall) -> Cost:
    """Sum of a list of tensors."""
    op.let(n=len(op.inputs), E=op.out.numel)
    return elements(op, (len(op.inputs) - 1) * op.out.numel, ARITHMETIC)


@tf("L2Loss", "2 n: n squares, n - 1 adds, one halving")
def l2_loss(op: OpCall) -> Cost:
    """Half the sum of squares."""
    op.let(n=op.inputs[0].numel)
    return elements(op, 2 * op.inputs[0].numel, ARITHMETIC)


@tf(
    "CheckNumerics", "1 compared per element", "The input, if no element is infinite or no number.",
    bytes=reads("x", "tensor", "input_0"),
)  # fmt: skip
@tf("InTopK InTopKV2", "1 compared per prediction")
def in_top_k(op: OpCall) -> Cost:
    """A test that fewer than k classes are predicted more strongly than the target."""
    return elements(op, op.inputs[0].numel, COMPARISON)


@tf("Range LinSpace", "1 integer op (2 FLOP if floating) per element")
def numbered(op: OpCall) -> Cost:
    """Start plus index times step."""
    if kind_of(op.outputs) is Kind.INTEGER:
        return Cost(int_ops=op.out.numel)
    return Cost(elementwise_flops=2 * op.out.numel)


@tf("Where", "1 integer op per element of a boolean input, else 1 compared")
def where(op: OpCall) -> Cost:
    """Indices of what is true. The sizes are those if everything is."""
    work = elements(op, op.inputs[0].numel, COMPARISON, kind_of(op.inputs))
    return work + Cost(exact=False, reason="bound: as if every element were selected")


@tf("BroadcastGradientArgs ConcatOffset InvertPermutation ListDiff BroadcastArgs", "1 integer op per input element")
def on_shapes(op: OpCall) -> Cost:
    """Work on shapes."""
    return Cost(int_ops=sum(tensor.numel for tensor in op.inputs))
