"""Charges of the ``catamount`` table per op of a TensorFlow 1 graph, as expressions.

The rules of Catamount (2019), to the letter, oddities included: they are a target to reproduce, not a convention to
follow. Default bytes are those of all inputs and outputs, default footprint those of all outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from tensortide.cost.opcall import OpCall
from tensortide.expr import Expr, constant, expr_of, total
from tensortide.graph.model import Tensor

__all__ = ["Charge", "charge", "formula", "nbytes", "numel"]


class Charge(NamedTuple):
    """The cost of one run of an op. ``known``: the table has a rule for its type; without one it charges nothing."""

    flops: Expr
    bytes: Expr
    footprint: Expr
    parameters: Expr
    known: bool


Flops: TypeAlias = Callable[[OpCall], Expr]
ZERO = constant(0)

ITEM_BYTES = {
    **dict.fromkeys(["bool", "int8", "uint8"], 1),
    **dict.fromkeys(["float16", "int16", "uint16"], 2),
    **dict.fromkeys(["float32", "int32", "uint32"], 4),
    **dict.fromkeys(["float64", "int64", "uint64"], 8),
}
"""The twelve dtypes whose elements have a size; those of all others have none."""


def numel(tensor: Tensor) -> Expr:
    """Count the elements."""
    return math.prod(map(expr_of, tensor.shape), start=constant(1))


def nbytes(*tensors: Tensor) -> Expr:
    """Count the bytes of all of ``tensors``."""
    return total(numel(tensor) * ITEM_BYTES.get(tensor.dtype, 0) for tensor in tensors)


def _out(op: OpCall) -> Expr:
    return numel(op.outputs[0])


def _in(op: OpCall) -> Expr:
    return numel(op.inputs[0])


# -- FLOPs ------------------------------------------------------------------------------------------


def _matmul(op: OpCall) -> Expr:
    a = op.inputs[0].shape
    transposed = op.arg("transpose_a", False) or op.arg("adj_x", False)
    return 2 * expr_of(a[-2] if transposed else a[-1]) * _out(op)


def _per_attribute(op: OpCall, name: str) -> int:
    """Return the product of a list attribute: the elements of a window, or the strides in all directions."""
    return math.prod(op.arg(name, ()))


def _taps(shape: tuple[int, ...], channels: int) -> Expr:
    """Multiply the height and width of a kernel with its dimension ``channels``."""
    return expr_of(shape[0]) * expr_of(shape[1]) * expr_of(shape[channels])


def _conv(op: OpCall) -> Expr:
    return 2 * _out(op) * _taps(op.shape("filter"), 2)


def _conv_input(op: OpCall) -> Expr:
    return 2 * _out(op) * _taps(op.shape("filter"), 3) / _per_attribute(op, "strides")


def _conv_filter(op: OpCall) -> Expr:
    return 2 * _in(op) * _taps(op.outputs[0].shape, 3) / _per_attribute(op, "strides")


_EACH_OUTPUT = (
    "Add BiasAdd AssignAdd AssignSub Sub Mul RealDiv Neg Reciprocal Pow Square Sqrt Exp Log Erf Floor FloorDiv "
    "FloorMod Maximum Minimum Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalNot "
    "Relu ReluGrad"
)
_EACH_INPUT = "Sum Mean Max Min Prod All Any ArgMax BiasAddGrad Where UnsortedSegmentSum"
_FREE = (
    "Reshape Transpose ConcatV2 Split SplitV Slice StridedSlice StridedSliceGrad Pad Tile Squeeze ExpandDims Pack "
    "Unpack OneHot Fill Cast Range DynamicStitch ReverseSequence InvertPermutation ListDiff ConcatOffset "
    "BroadcastGradientArgs InTopK InTopKV2"
)

_FLOPS: dict[str, tuple[str, Flops]] = {
    **dict.fromkeys(_EACH_OUTPUT.split(), ("|out|", _out)),
    **dict.fromkeys(_EACH_INPUT.split(), ("|in|", _in)),
    **dict.fromkeys(_FREE.split(), ("0", lambda op: ZERO)),
    **dict.fromkeys(
        ["Log1p", "Rsqrt", "RsqrtGrad", "SqrtGrad", "SquaredDifference"], ("2|out|", lambda op: 2 * _out(op))
    ),
    "Sigmoid": ("4|out|", lambda op: 4 * _out(op)),
    "Tanh": ("6|out|", lambda op: 6 * _out(op)),
    **dict.fromkeys(["SigmoidGrad", "TanhGrad"], ("3|in|", lambda op: 3 * _in(op))),
    "AddN": ("(n-1)|out|", lambda op: (len(op.inputs) - 1) * _out(op)),
    **dict.fromkeys(["MatMul", "BatchMatMul"], ("2K|out|", _matmul)),
    "Conv2D": ("2|out| Cin kh kw", _conv),
    "Conv2DBackpropInput": ("2|dx| Cout kh kw/(sh sw)", _conv_input),
    "Conv2DBackpropFilter": ("2|x| Cout kh kw/(sh sw)", _conv_filter),
    "MaxPool": ("|out| kh kw", lambda op: _out(op) * _per_attribute(op, "ksize")),
    "MaxPoolGrad": ("|forward out| kh kw", lambda op: numel(op.inputs[1]) * _per_attribute(op, "ksize")),
    "FusedBatchNorm": ("6|x| + 3C", lambda op: 6 * _in(op) + 3 * numel(op.inputs[1])),
    "FusedBatchNormGrad": ("6|x| + C", lambda op: 6 * _in(op) + numel(op.inputs[2])),
    "L2Loss": ("3", lambda op: constant(3)),
    "Multinomial": ("5|logits| samples", lambda op: 5 * _in(op) * expr_of(op.outputs[0].shape[-1])),
    "LogUniformCandidateSampler": ("|out1|", lambda op: numel(op.outputs[1])),
    **dict.fromkeys(
        ["Softmax", "LogSoftmax", "SparseSoftmaxCrossEntropyWithLogits"], ("3|in|", lambda op: 3 * _in(op))
    ),
    "ScatterSub": ("|updates|", lambda op: numel(op.inputs[2])),
    "Select": ("|cond|", _in),
    **dict.fromkeys(["Gather", "GatherV2"], ("0", lambda op: ZERO)),
    "ApplyGradientDescent": ("2N", lambda op: 2 * _in(op)),
    "ApplyMomentum": ("4N", lambda op: 4 * _in(op)),
    "MPIAllreduce": ("N", _in),
    "MPIAllgather": ("0", lambda op: ZERO),
    "Assign": ("0", lambda op: ZERO),
}
"""FLOPs by op type, as text and as a function."""

_WRITES_ONLY_NAMES = (
    "Shape ShapeN Size Rank ZerosLike OnesLike Const Placeholder TruncatedNormal RandomUniform RandomUniformInt "
    "RandomStandardNormal RandomShuffle RandomGamma RandomPoisson"
)
_WRITES_ONLY = frozenset(_WRITES_ONLY_NAMES.split())
_NOTHING_NAMES = (
    "Identity StopGradient PreventGradient PlaceholderWithDefault NoOp ControlTrigger Enter RefEnter Exit Switch Merge "
    "NextIteration Stack StackV2 StackPush StackPushV2 StackPop StackPopV2 StackClose StackCloseV2 TensorArrayV3"
)
_NOTHING = frozenset(_NOTHING_NAMES.split())
VARIABLES = frozenset(["Variable", "VariableV2"])
IN_PLACE = frozenset(["ScatterSub", "ApplyGradientDescent", "ApplyMomentum"])
SOFTMAX = frozenset(["Softmax", "LogSoftmax"])

SPLIT_SIZES = 4
"""Bytes of the constant of sizes that a Split is given here, as a row of its own (``<name>_size_splits``)."""


def charge(op: OpCall) -> Charge:
    """Return the cost of one run of ``op``, a ``tf::<Type>``."""
    kind = op.base
    if kind in VARIABLES:
        return Charge(ZERO, ZERO, nbytes(*op.outputs), _out(op), True)
    if kind in _WRITES_ONLY:
        return Charge(ZERO, nbytes(*op.outputs), nbytes(*op.outputs), ZERO, True)
    if kind == "LoopCond":
        return Charge(ZERO, constant(2), constant(1), ZERO, True)
    if kind in _FLOPS:
        moved = _BYTES[kind](op) if kind in _BYTES else nbytes(*op.inputs, *op.outputs)
        held = ZERO if kind in IN_PLACE else nbytes(*op.outputs, *(op.inputs[:1] if kind in SOFTMAX else ()))
        return Charge(_FLOPS[kind][1](op), moved, held, ZERO, True)
    return Charge(ZERO, ZERO, ZERO, ZERO, kind in _NOTHING)


def formula(kind: str) -> str:
    """Return the FLOPs of an op type as text, empty where the table has no rule."""
    if kind in _FLOPS:
        return _FLOPS[kind][0]
    return "0" if kind in _NOTHING | _WRITES_ONLY | VARIABLES | {"LoopCond"} else ""


_BYTES: dict[str, Callable[[OpCall], Expr]] = {
    **dict.fromkeys(["Gather", "GatherV2"], lambda op: nbytes(op.inputs[1]) + 2 * nbytes(op.outputs[0])),
    "ScatterSub": lambda op: nbytes(op.inputs[1]) + 3 * nbytes(op.inputs[2]),
    "Select": lambda op: nbytes(*op.inputs[:2], op.outputs[0]),
    "Assign": lambda op: nbytes(op.inputs[0], op.outputs[0]),
    **dict.fromkeys(SOFTMAX, lambda op: 2 * nbytes(op.inputs[0]) + nbytes(op.outputs[0])),
    "MPIAllgather": lambda op: 2 * nbytes(op.outputs[0]),
    "Split": lambda op: nbytes(*op.inputs, *op.outputs) + SPLIT_SIZES,
}
"""Bytes by op type, where they are not those of all inputs and outputs."""
