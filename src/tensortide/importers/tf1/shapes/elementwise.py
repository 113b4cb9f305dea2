"""Ops that work element by element, with broadcasting; reductions; their values where they compute sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensortide.expr import Expr, constant, maximum, minimum
from tensortide.importers.tf1.program import Shape
from tensortide.importers.tf1.shapes.table import ONE, Function, Op, Result, Tensor, Unknown, product, shape_of
from tensortide.importers.tf1.sizes.unify import Contradiction

__all__ = ["broadcast"]

MOST_VALUES = 64
"""Longer whole-number tensors are data, not sizes."""


def broadcast_dim(op: Op, a: Expr, b: Expr) -> Expr:
    """Return the size that two sizes broadcast to. One that is 1 in the file gives way; others are one size."""
    if a == b or b == ONE:
        return a
    if a == ONE:
        return b
    sizes = op.sizes
    left, right = sizes.number(a), sizes.number(b)
    if left == 1 and right != 1 and sizes.stored(a):
        return b
    if right == 1 and left != 1 and sizes.stored(b):
        return a
    return op.equal(a, b)


def broadcast(op: Op, a: Shape, b: Shape) -> Shape:
    """Return the shape that two shapes broadcast to. Raises Contradiction."""
    if len(a) < len(b):
        a, b = b, a
    split = len(a) - len(b)
    return a[:split] + tuple(broadcast_dim(op, x, y) for x, y in zip(a[split:], b, strict=True))


@shape_of(
    "Abs Acos Acosh Asin Asinh Atan Atanh BesselI0e BesselI1e Ceil Conj Cos Cosh Digamma Elu Erf Erfc Exp Expm1 Floor "
    "Inv Invert IsFinite IsInf IsNan LeakyRelu Lgamma Log Log1p LogicalNot Neg Reciprocal Relu Relu6 Rint Round Rsqrt "
    "Selu Sigmoid Sign Sin Sinh Softmax LogSoftmax Softplus Softsign Sqrt Square Tan Tanh ZerosLike OnesLike "
    "CheckNumerics ClipByValue Cumsum Cumprod Bitcast LRN MatrixBandPart MatrixInverse ReverseSequence ReverseV2 Roll "
    "QuantizeAndDequantizeV2 FakeQuantWithMinMaxVars FakeQuantWithMinMaxArgs Bucketize Erfinv Ndtri RandomShuffle "
    "EluGrad MaxPoolGrad MaxPool3DGrad TensorScatterUpdate TensorScatterAdd TensorScatterSub"
)
def like_first(op: Op) -> Result:
    """The shape of the first input."""
    values = op.inputs[0].values
    if values is not None:
        unary = _UNARY.get(op.type)
        values = tuple(unary(v) for v in values) if unary else None
    return [Tensor(op.shape(0), values, op.inputs[0].handle if op.type == "ZerosLike" else -1)]


_UNARY: dict[str, Callable[[Expr], Expr]] = {
    "Neg": lambda v: -v,
    "Square": lambda v: v * v,
    "ZerosLike": lambda v: constant(0),
    "OnesLike": lambda v: ONE,
}


@shape_of(
    "Cast Identity StopGradient PreventGradient PlaceholderWithDefault Snapshot EnsureShape Print PrintV2 "
    "DebugIdentity DeepCopy OptimizationBarrier Copy CopyHost"
)
def same_as_first(op: Op) -> Result:
    first = op.inputs[0]
    return [Tensor(op.shape(0), first.values, first.handle)]


@shape_of(
    "Relu6Grad ReluGrad LeakyReluGrad SeluGrad SigmoidGrad TanhGrad RsqrtGrad SqrtGrad ReciprocalGrad InvGrad "
    "SoftplusGrad SoftsignGrad"
)
def alike(op: Op) -> Result:
    known = [op.shape(i) for i in range(2) if op.known(i)]
    return [Tensor(op.same(known[0], known[-1]))] if known else [Tensor()]


def _floor_mod(a: Expr, b: Expr) -> Expr:
    return a % b


_BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "Add": lambda a, b: a + b,
    "AddV2": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a // b,
    "FloorDiv": lambda a, b: a // b,
    "TruncateDiv": lambda a, b: a // b,
    "FloorMod": _floor_mod,
    "Mod": _floor_mod,
    "TruncateMod": _floor_mod,
    "Maximum": maximum,
    "Minimum": minimum,
}

_COMPARED: dict[str, Callable[[int], bool]] = {
    "Equal": lambda d: d == 0,
    "NotEqual": lambda d: d != 0,
    "Less": lambda d: d < 0,
    "LessEqual": lambda d: d <= 0,
    "Greater": lambda d: d > 0,
    "GreaterEqual": lambda d: d >= 0,
}


def _binary_values(op: Op) -> tuple[Expr, ...] | None:
    a, b = op.inputs[0].values, op.inputs[1].values
    if a is None or b is None or max(len(a), len(b)) > MOST_VALUES or op.rank(0) > 1 or op.rank(1) > 1:
        return None
    if len(a) != len(b) and 1 not in (len(a), len(b)):
        return None
    length = 0 if not a or not b else max(len(a), len(b))
    pairs = [(a[i % len(a)], b[i % len(b)]) for i in range(length)]
    compute = _BINARY.get(op.type)
    try:
        if compute is not None:
            return tuple(compute(op.sizes.now(x), op.sizes.now(y)) for x, y in pairs)
    except ArithmeticError:
        return None
    compare = _COMPARED.get(op.type)
    if compare is None:
        return None
    differences = [op.sizes.now(x - y) for x, y in pairs]
    if not all(d.value is not None or op.sizes.stored(d) for d in differences):
        return None
    return tuple(constant(int(compare(op.int_of(d)))) for d in differences)


@shape_of("AddN AccumulateNV2")
def add_all(op: Op) -> Result:
    shapes = [op.shape(i) for i in range(len(op.inputs)) if op.known(i)]
    if not shapes:
        return [Tensor()]
    for shape in shapes[1:]:
        op.same(shapes[0], shape)
    return [Tensor(shapes[0], handle=op.inputs[0].handle)]


@shape_of("Select")
def select(op: Op) -> Result:
    if not (op.known(1) or op.known(2)):
        return [Tensor()]
    shapes = [op.shape(i) for i in (1, 2) if op.known(i)]
    return [Tensor(op.same(shapes[0], shapes[-1]))]


@shape_of("BroadcastGradientArgs")
def broadcast_gradient(op: Op) -> Result:
    """Axes to sum over, in the gradient of each operand.

    Inexact: an axis along which both are 1 is forgotten for the second, as the ``catamount`` table has it.
    """
    a, b = op.values(0), op.values(1)
    rank = max(len(a), len(b))
    left, right = ((ONE,) * (rank - len(dims)) + dims for dims in (a, b))
    axes: tuple[list[Expr], list[Expr]] = [], []
    for i, (x, y) in enumerate(zip(left, right, strict=True)):
        ones = [op.sizes.number(size) == 1 for size in (x, y)]
        if all(ones) and not op.exact:
            ones[1] = False
        for one, found in zip(ones, axes, strict=True):
            if one:
                found.append(constant(i))
    return [Tensor((constant(len(found)),), tuple(found)) for found in axes]


@shape_of("BroadcastArgs")
def broadcast_args(op: Op) -> Result:
    dims = broadcast(op, op.values(0), op.values(1))
    return [Tensor((constant(len(dims)),), dims)]


_REDUCED: dict[str, Callable[[Sequence[Expr]], Expr]] = {
    "Sum": lambda values: sum(values, start=constant(0)),
    "Prod": product,
    "Max": lambda values: maximum(*values),
    "Min": lambda values: minimum(*values),
}


@shape_of("Sum Mean Max Min Prod All Any EuclideanNorm")
def reduction(op: Op) -> Result:
    shape = op.shape(0)
    keep = op.flag("keep_dims")
    if len(op.inputs) > 1 and op.inputs[1].values is None and not op.known(1):
        raise Unknown
    axes = {op.axis(axis, len(shape)) for axis in op.numbers(1)} if len(op.inputs) > 1 else set(range(len(shape)))
    left = tuple(ONE if i in axes else dim for i, dim in enumerate(shape) if keep or i not in axes)
    values = op.inputs[0].values
    compute = _REDUCED.get(op.type)
    if values is None or compute is None or (len(shape) == 1 and not axes) or len(shape) > 1:
        return [Tensor(left)]
    if not values and op.type in ("Max", "Min"):
        raise Contradiction("the extreme of no elements")
    return [Tensor(left, (compute(tuple(map(op.sizes.now, values))),))]


@shape_of("ArgMax ArgMin")
def arg_reduction(op: Op) -> Result:
    shape = op.shape(0)
    axis = op.axis(op.numbers(1)[0], len(shape))
    return [Tensor(shape[:axis] + shape[axis + 1 :])]


_PLAIN: dict[str, Function] = {
    "IdentityN": lambda op: op.inputs,
    "Add AddV2 Sub Mul Div RealDiv FloorDiv TruncateDiv FloorMod Mod TruncateMod Maximum Minimum Pow "
    "SquaredDifference MulNoNan DivNoNan Xdivy Xlogy Xlog1py Atan2 Complex Zeta Equal NotEqual Less LessEqual Greater "
    "GreaterEqual LogicalAnd LogicalOr ApproximateEqual BitwiseAnd BitwiseOr BitwiseXor LeftShift RightShift Igamma "
    "Igammac Polygamma NextAfter": lambda op: [Tensor(broadcast(op, op.shape(0), op.shape(1)), _binary_values(op))],
    "SelectV2": lambda op: [Tensor(broadcast(op, broadcast(op, op.shape(0), op.shape(1)), op.shape(2)))],
    "L2Loss LoopCond IsVariableInitialized VarIsInitializedOp QueueSizeV2 QueueSize ScalarSummary HistogramSummary "
    "MergeSummary ImageSummary AudioSummary StringJoin": lambda op: [Tensor(())],
}
"""Ops whose outputs are one expression."""

for _types, _function in _PLAIN.items():
    shape_of(_types)(_function)
