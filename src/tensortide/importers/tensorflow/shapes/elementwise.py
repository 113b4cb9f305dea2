"""Ops that work element by element, with broadcasting; reductions; their values where they compute sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import starmap

from tensortide.expr import Expr, constant, maximum, minimum, total
from tensortide.importers.shapes import ShapeError, broadcast, of_family, reduced, replaced, said
from tensortide.importers.tensorflow.shapes.op import (
    MOST_VALUES,
    ONE,
    Op,
    Result,
    Tensor,
    product,
    shape_of,
    vector,
)

__all__ = ["of_elements"]


@shape_of(
    "BesselI0e BesselI1e Bitcast Bucketize CheckNumerics Dequantize EluGrad MatrixBandPart MatrixInverse MaxPoolGrad "
    "MaxPool3DGrad OnesLike QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4 RandomShuffle "
    "ReverseV2 Roll TensorScatterUpdate TensorScatterAdd TensorScatterSub ZerosLike FFT FFT2D FFT3D IFFT IFFT2D "
    "IFFT3D Real Imag Cholesky StatelessShuffle CumulativeLogsumexp"
)
def like_first(op: Op) -> Result:
    """The shape of the first input."""
    filled = {"ZerosLike": constant(0), "OnesLike": ONE}.get(op.type)
    values = op.inputs[0].values
    made = None if values is None or filled is None else (filled,) * len(values)
    return Tensor(op.shape(0), made, op.handle if op.type == "ZerosLike" else -1)


@shape_of(
    "Relu6Grad ReluGrad LeakyReluGrad SeluGrad SigmoidGrad TanhGrad RsqrtGrad SqrtGrad ReciprocalGrad InvGrad "
    "SoftplusGrad SoftsignGrad AddN AccumulateNV2 Select"
)
def alike(op: Op) -> Result:
    """The shape of all inputs; the condition of a Select may be one for every row."""
    known = [op.shape(i) for i in range(op.type == "Select", len(op.inputs)) if op.known(i)]
    for shape in known[1:]:
        op.same(known[0], shape)
    if op.type == "Select" and known and op.known(0) and op.shape(0):
        op.same(op.shape(0), known[0][: len(op.shape(0))])
    return Tensor(known[0], handle=op.handle) if known else Tensor()


_UNARY: dict[str, Callable[[Expr], Expr]] = {"Neg": operator.neg, "Square": lambda v: v * v}

_BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    **dict.fromkeys(["Add", "AddV2"], operator.add),
    "Sub": operator.sub,
    "Mul": operator.mul,
    **dict.fromkeys(["Div", "FloorDiv", "TruncateDiv"], operator.floordiv),
    **dict.fromkeys(["FloorMod", "Mod", "TruncateMod"], operator.mod),
    "Maximum": maximum,
    "Minimum": minimum,
}

_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "Equal": operator.eq,
    "NotEqual": operator.ne,
    "Less": operator.lt,
    "LessEqual": operator.le,
    "Greater": operator.gt,
    "GreaterEqual": operator.ge,
}


def of_elements(op: Op) -> Result:
    """The shape that follows from those of the inputs, as the family of an op says, and its values; nothing for an op
    of no such family."""
    name = f"tf.{op.type}"
    if said(name) == "reduced":
        return reduction(op)
    combine = of_family(name)
    if combine is None:
        return []
    computed = op.type in _BINARY or op.type in _COMPARED
    shape = combine(op.sizes, (op.shape(i) for i in range(max(len(op.inputs), 1 + computed))))
    values = op.inputs[0].values
    if op.type in _UNARY:
        return Tensor(shape, None if values is None else tuple(map(_UNARY[op.type], values)))
    return Tensor(shape, _binary_values(op) if computed else None)


def _binary_values(op: Op) -> tuple[Expr, ...] | None:
    """Compute or compare vectors, one of which may be a scalar; None for what is not known."""
    if any(tensor.values is None or tensor.shape is None or len(tensor.shape) > 1 for tensor in op.inputs[:2]):
        return None
    a, b = op.values(0), op.values(1)
    length = 0 if not a or not b else max(len(a), len(b))
    if max(len(a), len(b)) > MOST_VALUES or (len(a) != len(b) and 1 not in (len(a), len(b))):
        return None
    pairs = [(a[i % len(a)], b[i % len(b)]) for i in range(length)]
    if op.type in _BINARY:
        try:
            return tuple(starmap(_BINARY[op.type], pairs))
        except ArithmeticError:
            return None
    compare, differences = _COMPARED.get(op.type), [op.sizes.now(x - y) for x, y in pairs]
    if compare is None or not all(map(op.sizes.stored, differences)):
        return None
    return tuple(constant(int(compare(op.int_of(d), 0))) for d in differences)


@shape_of("BroadcastGradientArgs")
def broadcast_gradient(op: Op) -> Result:
    """Axes to sum over, in the gradient of each operand.

    Inexact: an axis along which both are 1 is forgotten for the second, as the ``catamount`` table has it.
    """
    a, b = op.values(0), op.values(1)
    rank = max(len(a), len(b))
    first, second = (
        [op.sizes.number(size) == 1 for size in (ONE,) * (rank - len(dims)) + dims] for dims in (a, b)
    )  # fmt: skip
    if not op.exact:
        second = [one and not other for one, other in zip(second, first, strict=True)]
    return [vector(constant(i) for i, one in enumerate(ones) if one) for ones in (first, second)]


@shape_of("ReverseSequence")
def reverse_sequence(op: Op) -> Result:
    """The shape of the first input, with a length for each of its batch."""
    shape, lengths = op.shape(0), op.shape(1) if op.known(1) else ()
    if lengths:
        op.equal(shape[op.axis(op.attribute("batch_dim", 0), len(shape))], lengths[0])
    return shape


_REDUCED: dict[str, Callable[[Sequence[Expr]], Expr]] = {
    "Sum": total,
    "Prod": product,
    "Max": lambda values: maximum(*values),
    "Min": lambda values: minimum(*values),
}


@shape_of("EuclideanNorm")
def reduction(op: Op) -> Result:
    shape = op.shape(0)
    keep = op.attribute("keep_dims", False)
    axes = {op.axis(axis, len(shape)) for axis in op.numbers(1)} if len(op.inputs) > 1 else set(range(len(shape)))
    left = reduced(shape, axes, *(ONE,) * keep)
    compute = _REDUCED.get(op.type)
    if op.inputs[0].values is None or compute is None or (len(shape) == 1 and not axes) or len(shape) > 1:
        return left
    values = op.values(0)
    if not values and op.type in ("Max", "Min"):
        raise ShapeError("the extreme of no elements")
    return Tensor(left, (compute(values),))


shape_of(
    "Cast Identity StopGradient PreventGradient PlaceholderWithDefault Snapshot EnsureShape Print PrintV2 "
    "DebugIdentity DeepCopy OptimizationBarrier Copy CopyHost"
)(lambda op: replace(op.inputs[0], shape=op.shape(0)))
shape_of("ArgMax ArgMin")(lambda op: replaced(op.shape(0), op.axis(op.numbers(1)[0], len(op.shape(0)))))
shape_of("IdentityN")(lambda op: op.inputs)
shape_of("Complex")(lambda op: broadcast(op.sizes, op.shape(0), op.shape(1)))
shape_of("BroadcastArgs")(lambda op: vector(broadcast(op.sizes, op.values(0), op.values(1))))
shape_of(
    "L2Loss LoopCond IsVariableInitialized VarIsInitializedOp QueueSizeV2 QueueSize ScalarSummary HistogramSummary "
    "MergeSummary ImageSummary AudioSummary StringJoin"
)(lambda op: ())
