"""The ``catamount`` table of a TensorFlow 1 graph: one row per op, charged as Catamount lists and charges them.

The rules of Catamount (2019), to the letter, oddities included: they are a target to reproduce, not a convention to
follow. Default bytes are those of all inputs and outputs, default footprint those of all outputs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from tensortide.cost.opcall import OpCall
from tensortide.cost.table import ZERO, Row, Table, row_of
from tensortide.expr import Expr, constant, expr_of, total
from tensortide.graph.model import Graph, Tensor

NOT_PARAMETERS = {"resnet": "Momentum|EMA"}
"""Variables that the published numbers of a model leave out of its parameters, by preset."""


def tabulate(graph: Graph, hints: Mapping[str, int] | None = None, *, skip_parameters: str = "") -> Table:
    """Return the rows of ``graph``, a graph prepared as the table assumes.

    Variables whose name the pattern ``skip_parameters`` is found in are no parameters; a Split comes with a constant
    of its sizes.
    """
    rows: list[Row] = []
    for view in graph:
        call, label = OpCall.of(view), view.op.label
        found = charge(call)
        if call.base in VARIABLES and skip_parameters and re.search(skip_parameters, label):
            found = found._replace(parameters=ZERO)
        io = nbytes(*view.outputs) if call.base == "Placeholder" else ZERO
        row = msgspec.structs.replace(row_of(view), io=io, rule=formula(call.base), **found._asdict())
        rows.append(row)
        if call.base == "Split":
            size, name = constant(SPLIT_SIZES), f"{label}_size_splits"
            rows.append(Row(name=name, type="Const", scope=row.scope, bytes=size, footprint=size))
    return Table(tuple(rows), dict(hints or {}), "catamount", graph.meta.assumptions)


class Charge(NamedTuple):
    """The cost of one run of an op. ``known``: the table has a rule for its type; without one it charges nothing."""

    flops: Expr = ZERO
    bytes: Expr = ZERO
    footprint: Expr = ZERO
    parameters: Expr = ZERO
    known: bool = True


def charge(op: OpCall) -> Charge:
    """Return the cost of one run of ``op``, a ``tf::<Type>``."""
    kind, made = op.base, nbytes(*op.outputs)
    if kind in VARIABLES:
        return Charge(footprint=made, parameters=_out(op))
    if kind in _WRITES_ONLY:
        return Charge(bytes=made, footprint=made)
    if kind == "LoopCond":
        return Charge(bytes=constant(2), footprint=constant(1))
    if kind in _FLOPS:
        moved = _BYTES[kind](op) if kind in _BYTES else nbytes(*op.inputs) + made
        held = ZERO if kind in IN_PLACE else made + nbytes(*(op.inputs[:1] if kind in SOFTMAX else ()))
        return Charge(_FLOPS[kind][1](op), moved, held)
    return Charge(known=kind in _NOTHING)


def formula(kind: str) -> str:
    """Return the FLOPs of an op type as text, empty where the table has no rule."""
    if kind in _FLOPS:
        return _FLOPS[kind][0]
    return "0" if kind in _NOTHING | _WRITES_ONLY | VARIABLES | {"LoopCond"} else ""


_SIZED = frozenset(f"{kind}{bits}" for kind in ("float", "int", "uint") for bits in (8, 16, 32, 64)) | {"bool"}
"""The dtypes whose elements have a size here; those of all others have none."""


def numel(tensor: Tensor) -> Expr:
    """Count the elements."""
    return math.prod(map(expr_of, tensor.shape), start=constant(1))


def nbytes(*tensors: Tensor) -> Expr:
    """Count the bytes of all of ``tensors``."""
    return total(numel(tensor) * tensor.itemsize for tensor in tensors if tensor.dtype in _SIZED)


def _out(op: OpCall) -> Expr:
    return numel(op.outputs[0])


def _in(op: OpCall) -> Expr:
    return numel(op.inputs[0])


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


_BY_TYPES: dict[str, tuple[str, Callable[[OpCall], Expr]]] = {
    "Add BiasAdd AssignAdd AssignSub Sub Mul RealDiv Neg Reciprocal Pow Square Sqrt Exp Log Erf Floor FloorDiv "
    "FloorMod Maximum Minimum Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalNot "
    "Relu ReluGrad": ("|out|", _out),
    "Sum Mean Max Min Prod All Any ArgMax BiasAddGrad Where UnsortedSegmentSum": ("|in|", _in),
    "Reshape Transpose ConcatV2 Split SplitV Slice StridedSlice StridedSliceGrad Pad Tile Squeeze ExpandDims Pack "
    "Unpack OneHot Fill Cast Range DynamicStitch ReverseSequence InvertPermutation ListDiff ConcatOffset "
    "BroadcastGradientArgs InTopK InTopKV2 Gather GatherV2 MPIAllgather Assign": ("0", lambda op: ZERO),
    "Log1p Rsqrt RsqrtGrad SqrtGrad SquaredDifference": ("2|out|", lambda op: 2 * _out(op)),
    "Sigmoid": ("4|out|", lambda op: 4 * _out(op)),
    "Tanh": ("6|out|", lambda op: 6 * _out(op)),
    "SigmoidGrad TanhGrad Softmax LogSoftmax SparseSoftmaxCrossEntropyWithLogits": ("3|in|", lambda op: 3 * _in(op)),
    "AddN": ("(n-1)|out|", lambda op: (len(op.inputs) - 1) * _out(op)),
    "MatMul BatchMatMul": ("2K|out|", _matmul),
    "Conv2D": ("2|out| Cin kh kw", lambda op: 2 * _out(op) * _taps(op.shape("filter"), 2)),
    "Conv2DBackpropInput": (
        "2|dx| Cout kh kw/(sh sw)",
        lambda op: 2 * _out(op) * _taps(op.shape("filter"), 3) / _per_attribute(op, "strides"),
    ),
    "Conv2DBackpropFilter": (
        "2|x| Cout kh kw/(sh sw)",
        lambda op: 2 * _in(op) * _taps(op.outputs[0].shape, 3) / _per_attribute(op, "strides"),
    ),
    "MaxPool": ("|out| kh kw", lambda op: _out(op) * _per_attribute(op, "ksize")),
    "MaxPoolGrad": ("|forward out| kh kw", lambda op: numel(op.inputs[1]) * _per_attribute(op, "ksize")),
    "FusedBatchNorm": ("6|x| + 3C", lambda op: 6 * _in(op) + 3 * numel(op.inputs[1])),
    "FusedBatchNormGrad": ("6|x| + C", lambda op: 6 * _in(op) + numel(op.inputs[2])),
    "L2Loss": ("3", lambda op: constant(3)),
    "Multinomial": ("5|logits| samples", lambda op: 5 * _in(op) * expr_of(op.outputs[0].shape[-1])),
    "LogUniformCandidateSampler": ("|out1|", lambda op: numel(op.outputs[1])),
    "ScatterSub": ("|updates|", lambda op: numel(op.inputs[2])),
    "Select": ("|cond|", _in),
    "ApplyGradientDescent": ("2N", lambda op: 2 * _in(op)),
    "ApplyMomentum": ("4N", lambda op: 4 * _in(op)),
    "MPIAllreduce": ("N", _in),
}
_FLOPS = {kind: row for kinds, row in _BY_TYPES.items() for kind in kinds.split()}
"""FLOPs by op type, as text and as a function."""

_WRITES = (
    "Shape ShapeN Size Rank ZerosLike OnesLike Const Placeholder TruncatedNormal RandomUniform RandomUniformInt "
    "RandomStandardNormal RandomShuffle RandomGamma RandomPoisson"
)
_PASSES = (
    "Identity StopGradient PreventGradient PlaceholderWithDefault NoOp ControlTrigger Enter RefEnter Exit Switch Merge "
    "NextIteration Stack StackV2 StackPush StackPushV2 StackPop StackPopV2 StackClose StackCloseV2 TensorArrayV3"
)
_WRITES_ONLY, _NOTHING = frozenset(_WRITES.split()), frozenset(_PASSES.split())
VARIABLES = frozenset(["Variable", "VariableV2"])
IN_PLACE = frozenset(["ScatterSub", "ApplyGradientDescent", "ApplyMomentum"])
SOFTMAX = frozenset(["Softmax", "LogSoftmax"])

SPLIT_SIZES = 4
"""Bytes of the constant of sizes that a Split is given here, as a row of its own (``<name>_size_splits``)."""

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
