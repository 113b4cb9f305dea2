"""What moves bytes or nothing at all in TensorFlow graphs: views, control flow, copies, arrays. No FLOPs."""

from __future__ import annotations

from tensortide.cost.access import Bytes, nothing, size
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import FREE, Cost
from tensortide.cost.registry import rule

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
FEEDS = (
    "FIFOQueueV2 RandomShuffleQueueV2 PaddingFIFOQueueV2 QueueEnqueueV2 QueueEnqueueManyV2 QueueDequeueV2 "
    "QueueDequeueManyV2 QueueDequeueUpToV2 QueueCloseV2 QueueSizeV2 Iterator IteratorV2 IteratorGetNext "
    "OneShotIterator ScalarSummary HistogramSummary ImageSummary MergeSummary"
)


def _names(text: str) -> list[str]:
    return [f"tf::{name}" for name in text.split()]


@rule(*_names(f"{VIEWS} {CONTROL} {STATE} {FEEDS}"), formula="0: no bytes move", bytes=nothing, is_free=True)
def free(op: OpCall) -> Cost:
    """A renaming, control flow, state that exists, a question about a shape, or work of the host that feeds the step.

    Loops, stacks and arrays pass tensors on as they are: what they keep is in memory, but nobody copies it.
    """
    del op
    return FREE


def _copied(op: OpCall) -> Bytes:
    return Bytes(size(op.inputs), size(op.outputs))


@rule(
    *_names("Cast Transpose Pack ParallelConcat Concat ConcatV2 ReverseV2 Reverse ReverseSequence Roll DynamicStitch "
            "DynamicPartition Unpack Split SplitV Tile SpaceToBatchND BatchToSpaceND SpaceToDepth DepthToSpace"),
    formula="0 FLOP: read and written", bytes=_copied,
)  # fmt: skip
def copied(op: OpCall) -> Cost:
    """A copy, in another order, layout or dtype."""
    del op
    return Cost()


def _taken(op: OpCall) -> Bytes:
    made = size(op.outputs)
    return Bytes(made, made)


@rule(
    *_names("Slice StridedSlice TensorArrayGatherV3 TensorArrayConcatV3"),
    formula="0 FLOP: what is taken is read and written", bytes=_taken,
)  # fmt: skip
def taken(op: OpCall) -> Cost:
    """A copy of a part, or of all elements of an array together."""
    del op
    return Cost()


def _scattered(op: OpCall) -> Bytes:
    value = op.tensor("value")
    return Bytes(value.region_bytes, value.numel * value.itemsize)


@rule("tf::TensorArrayScatterV3", formula="0 FLOP: the value is read, its parts written", bytes=_scattered)
def scattered(op: OpCall) -> Cost:
    """A tensor cut into the elements of an array."""
    del op
    return Cost()


@rule(
    *_names("Fill ZerosLike OnesLike OneHot Zeros Ones Empty"),
    formula="0 FLOP: written",
    bytes=lambda op: Bytes(size(op.inputs[:1]) if op.base == "OneHot" else 0, size(op.outputs)),
)  # fmt: skip
def filled(op: OpCall) -> Cost:
    """A fill; OneHot reads its indices."""
    del op
    return Cost()


@rule(
    *_names("Pad PadV2 MirrorPad StridedSliceGrad"),
    formula="0 FLOP: zeros with the input copied into place",
    bytes=lambda op: Bytes(size([op.tensor("dy")] if op.has("dy") else op.inputs[:1]), size(op.outputs)),
)  # fmt: skip
def padded(op: OpCall) -> Cost:
    """A tensor in a larger one."""
    del op
    return Cost()
