"""Element work of TensorFlow graphs, reductions, softmax, normalization, pooling. The same counts as for the ops of
other vocabularies: docs/cost.md."""

from __future__ import annotations

import math

from tensortide.cost.access import Bytes, interface, nothing, reads
from tensortide.cost.forms import simple
from tensortide.cost.kinds import Kind, Weights, elements, kind_of, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.rules.pointwise import (
    ARITHMETIC,
    BOUNDS,
    COMPARISON,
    DIVISION,
    ELU,
    LEAKY,
    MULTIPLICATION,
    REMAINDER,
    SELU,
    SIGMOID,
    SOFTPLUS,
    SOFTSIGN,
    SPECIAL,
    describe,
)
from tensortide.expr import expr_of
from tensortide.importers.tensorflow.rules.moves import tf

TABLE: dict[str, Weights] = {
    "Add AddV2 Sub Neg BiasAdd BiasAddV1": ARITHMETIC,
    "Mul Square": MULTIPLICATION,
    "SquaredDifference": Weights(2, 0, 0, 8),
    "Div RealDiv Reciprocal Inv DivNoNan Xdivy": DIVISION,
    "FloorDiv FloorMod Mod TruncateDiv TruncateMod": REMAINDER,
    "Maximum Minimum Equal NotEqual Less LessEqual Greater GreaterEqual Relu Abs Sign Floor Ceil Round Rint IsNan "
    "IsInf IsFinite Select SelectV2": COMPARISON,
    "Pow Exp Expm1 Log Log1p Sqrt Rsqrt Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Tanh Erf Erfc Erfinv "
    "Ndtri Lgamma Digamma Atan2": SPECIAL,
    "Xlogy": Weights(3, 1, 1),
    "ClipByValue Relu6": BOUNDS,
    "Sigmoid": SIGMOID,
    "LeakyRelu": LEAKY,
    "Softplus": SOFTPLUS,
    "Softsign": SOFTSIGN,
    "Elu": ELU,
    "Selu": SELU,
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


def _reduced(op: OpCall) -> Bytes:
    """A reduction over no axes is its input."""
    return nothing(op) if _same_shape(op) else Bytes(op.inputs[0].region_bytes, interface(op).written)


def _same_shape(op: OpCall) -> bool:
    given, made = op.inputs[0].shape, op.out.shape
    return tuple(map(expr_of, given)) == tuple(map(expr_of, made))


@tf("Sum Prod BiasAddGrad", "R (n - 1); a view if no axis is reduced", bytes=_reduced)
@tf(
    "Max Min ArgMax ArgMin All Any", "R (n - 1) comparisons; a view if no axis is reduced",
    "Largest or smallest, or its place.", bytes=_reduced,
)  # fmt: skip
def reduction(op: OpCall) -> Cost:
    """n - 1 additions or products per row of n."""
    op.let(E=op.inputs[0].numel, R=op.out.numel)
    count = op.inputs[0].numel - op.out.numel
    if op.base in ("Sum", "Prod", "BiasAddGrad"):
        return elements(op, count, Weights(1, 0, 0, 6 if op.base == "Prod" else 2))
    return elements(op, count, Weights(1, 0, 1), kind_of(op.inputs[:1]))


@tf("Mean", "R n: n - 1 adds and a division per row; a view if no axis is reduced", bytes=_reduced)
def mean(op: OpCall) -> Cost:
    """Average."""
    op.let(E=op.inputs[0].numel, R=op.out.numel)
    return Cost() if _same_shape(op) else rows_work(op, op.inputs[0].numel, op.out.numel)


@tf("Cumsum Cumprod", "1 per element (bound: n - 1 per row of n)")
def scan(op: OpCall) -> Cost:
    """Running sum or product. Along which axis is a value, which a graph does not have."""
    work = elements(op, op.inputs[0].numel, Weights(1, 0, 0, 2))
    return work + Cost(exact=False, reason="bound: the axis is not known")


@tf("Softmax", "R (5n - 2)", "Per row: maximum n-1, subtract n, exp n, add n-1, divide n.")
@tf("LogSoftmax", "R (5n - 1)", "Per row: maximum n-1, subtract n, exp n, add n-1, log 1, subtract n.")
@tf(
    "SparseSoftmaxCrossEntropyWithLogits", "R 4n for the loss, + R (n + 1) for the gradient if it is read",
    "Loss per row: maximum n-1, subtract n, exp n, add n-1, log 1, subtract 1. Gradient: divide n, subtract 1.",
    asks_wanted=True,
)  # fmt: skip
@tf(
    "SoftmaxCrossEntropyWithLogits", "R (7n - 2) for the loss, + 2 R n for the gradient if it is read",
    "Loss per row: maximum n-1, subtract n, exp n, add n-1, log 1, subtract n, multiply n, add n-1. Gradient: divide\n"
    "n, subtract n.",
    asks_wanted=True,
)  # fmt: skip
def softmax(op: OpCall) -> Cost:
    """A softmax, its logarithm, or a loss of it with its gradient: FLOPs and special functions per row."""
    *outer, n = op.inputs[0].shape
    rows = math.prod(outer)
    op.let(R=rows, n=n)
    gradient = op.base.endswith("WithLogits") and op.wanted(1)
    flops, special = {
        "Softmax": (5 * n - 2, 2 * n),
        "LogSoftmax": (5 * n - 1, n + 1),
        "SparseSoftmaxCrossEntropyWithLogits": (4 * n + (n + 1 if gradient else 0), n + 1),
        "SoftmaxCrossEntropyWithLogits": (7 * n - 2 + (2 * n if gradient else 0), n + 1),
    }[op.base]
    return rows_work(op, rows * flops, rows * (special + (n if gradient else 0)), rows * (n - 1))


@tf(
    "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3",
    "per channel 7m + 2 (statistics, scale and offset); in evaluation 2m + 5",
)  # fmt: skip
@tf(
    "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3", "per channel 9m + 1; in evaluation 6m - 2",
    "Gradients for input, scale and offset.",
)  # fmt: skip
def batch_norm(op: OpCall) -> Cost:
    """Normalization over batch and space; running averages are ops of their own here."""
    total, channels = op.tensor("x").numel, op.tensor("scale").numel
    op.let(E=total, C=channels)
    training = op.arg("is_training", True)
    if "Grad" in op.base:
        flops, special = (9 * total + channels, 2) if training else (6 * total - 2 * channels, 0)
    else:
        flops, special = (7 * total + 2 * channels, 3) if training else (2 * total + 5 * channels, 1)
    return Cost(elementwise_flops=flops, transcendentals=special * channels)


def _window(op: OpCall) -> int:
    window: int = math.prod(op.arg("ksize", ()))
    op.let(K=window)
    return window


@tf("MaxPool MaxPoolV2 MaxPool3D MaxPoolWithArgmax", "K - 1 comparisons per output")
def max_pool(op: OpCall) -> Cost:
    """Largest of each window."""
    compared = (_window(op) - 1) * op.out.numel
    return Cost(elementwise_flops=compared, comparisons=compared)


@tf("MaxPoolGrad MaxPool3DGrad", "1 per output of the forward")
def max_pool_gradient(op: OpCall) -> Cost:
    """Each gradient goes to the element that was the largest."""
    return Cost(elementwise_flops=op.tensor("grad").numel)


@tf("AvgPool AvgPool3D", "K per output: K - 1 adds, 1 division")
def average_pool(op: OpCall) -> Cost:
    """Mean of each window."""
    return Cost(elementwise_flops=_window(op) * op.out.numel, transcendentals=op.out.numel)


@tf("AvgPoolGrad AvgPool3DGrad", "K + 1 per output of the forward")
def average_pool_gradient(op: OpCall) -> Cost:
    """Each gradient, divided, is added to every element of its window."""
    count = op.tensor("grad").numel
    return Cost(elementwise_flops=(_window(op) + 1) * count, transcendentals=count)
