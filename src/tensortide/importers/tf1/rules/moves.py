"""Ops of TensorFlow graphs that move bytes or nothing at all: views, control flow, state, copies, rows. No FLOPs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tensortide.cost.access import Bytes, nothing, selected_rows, size
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import FREE, Cost
from tensortide.cost.registry import rule

W = TypeVar("W", bound=Callable[[OpCall], Cost | None])

VIEWS = (
    "Identity IdentityN StopGradient PreventGradient PlaceholderWithDefault Snapshot EnsureShape RefIdentity Reshape "
    "Squeeze ExpandDims Bitcast ReadVariableOp"
)
CONTROL = (
    "NoOp ControlTrigger Enter RefEnter Exit RefExit Switch RefSwitch Merge RefMerge NextIteration RefNextIteration "
    "LoopCond Assert Print Stack StackV2 StackPush StackPushV2 StackPop StackPopV2 StackClose StackCloseV2 "
    "TensorArrayV3 TensorArrayWriteV3 TensorArrayReadV3 TensorArrayGradV3 TensorArraySizeV3 TensorArrayCloseV3"
)
STATE = (
    "Const Variable VariableV2 VarHandleOp TemporaryVariable Placeholder PlaceholderV2 IsVariableInitialized "
    "VarIsInitializedOp Shape ShapeN Size Rank VariableShape"
)
INPUT = (
    "FIFOQueueV2 RandomShuffleQueueV2 PaddingFIFOQueueV2 QueueEnqueueV2 QueueEnqueueManyV2 QueueDequeueV2 "
    "QueueDequeueManyV2 QueueDequeueUpToV2 QueueCloseV2 QueueSizeV2 Iterator IteratorV2 IteratorGetNext "
    "OneShotIterator ScalarSummary HistogramSummary ImageSummary MergeSummary"
)


def tf(names: str, formula: str, meaning: str = "", **options: Any) -> Callable[[W], W]:
    """Register the decorated function as the rule of the op types ``names``, separated by spaces: ``tf::<Type>``."""
    return rule(*(f"tf::{name}" for name in names.split()), formula=formula, meaning=meaning, **options)


@tf(f"{VIEWS} {CONTROL} {STATE} {INPUT}", "0: no bytes move", bytes=nothing, is_free=True)
def free(op: OpCall) -> Cost:
    """A renaming, control flow, state that exists, a question about a shape, or work of the host that feeds the step.

    Loops, stacks and arrays pass tensors on as they are: what they keep is in memory, but nobody copies it.
    """
    del op
    return FREE


def _copied(op: OpCall) -> Bytes:
    return Bytes(size(op.inputs), size(op.outputs))


def _taken(op: OpCall) -> Bytes:
    made = size(op.outputs)
    return Bytes(made, made)


def _scattered(op: OpCall) -> Bytes:
    value = op.tensor("value")
    return Bytes(value.region_bytes, value.numel * value.itemsize)


def _filled(op: OpCall) -> Bytes:
    return Bytes(size(op.inputs[:1]) if op.base == "OneHot" else 0, size(op.outputs))


def _padded(op: OpCall) -> Bytes:
    return Bytes(size([op.tensor("dy")] if op.has("dy") else op.inputs[:1]), size(op.outputs))


def assigned(op: OpCall) -> Bytes:
    """The value is read, the variable written."""
    return Bytes(size(op.inputs[1:2]), op.inputs[1].numel * op.inputs[1].itemsize)


def replaced_rows(op: OpCall) -> Bytes:
    """Indices and updates are read, as many rows of the variable written."""
    updates = op.tensor("updates")
    return Bytes(size([*op.tensors("indices"), updates]), updates.numel * updates.itemsize)


@tf(
    "Cast Transpose Pack ParallelConcat Concat ConcatV2 ReverseV2 Reverse ReverseSequence Roll DynamicStitch "
    "DynamicPartition Unpack Split SplitV Tile SpaceToBatchND BatchToSpaceND SpaceToDepth DepthToSpace",
    "0 FLOP: read and written", "A copy, in another order, layout or dtype.", bytes=_copied,
)  # fmt: skip
@tf(
    "Slice StridedSlice TensorArrayGatherV3 TensorArrayConcatV3", "0 FLOP: what is taken is read and written",
    "A copy of a part, or of all elements of an array together.", bytes=_taken,
)  # fmt: skip
@tf(
    "TensorArrayScatterV3", "0 FLOP: the value is read, its parts written",
    "A tensor cut into the elements of an array.", bytes=_scattered,
)  # fmt: skip
@tf(
    "Fill ZerosLike OnesLike OneHot Zeros Ones Empty", "0 FLOP: written", "A fill; OneHot reads its indices.",
    bytes=_filled,
)  # fmt: skip
@tf(
    "Pad PadV2 MirrorPad StridedSliceGrad", "0 FLOP: zeros with the input copied into place",
    "A tensor in a larger one.", bytes=_padded,
)  # fmt: skip
@tf(
    "Assign AssignVariableOp", "0 FLOP: value read, variable written", "A variable gets a value.", bytes=assigned
)  # fmt: skip
@tf(
    "Gather GatherV2 GatherNd ResourceGather ResourceGatherNd", "0 FLOP: indices and the selected rows",
    "Rows by their indices.", bytes=selected_rows("indices"),
)  # fmt: skip
@tf(
    "ScatterUpdate ResourceScatterUpdate ScatterNdUpdate", "0 FLOP: rows written", "Rows of a variable replaced.",
    bytes=replaced_rows,
)  # fmt: skip
def moved(op: OpCall) -> Cost:
    """Nothing is computed: bytes move."""
    del op
    return Cost()
