"""Ops of TensorFlow graphs that move bytes or nothing at all: views, control flow, copies, rows; updates of variables,
optimizer steps and random draws."""

from __future__ import annotations

from tensortide.cost.access import Bytes, BytesRule, nothing, reads, selected_rows, size, writes_only
from tensortide.cost.kinds import elements
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import FREE, Cost
from tensortide.cost.registry import Vocabulary
from tensortide.cost.rules.pointwise import ARITHMETIC, COMPARISON
from tensortide.graph.model import Tensor

VIEWS = (
    "Identity IdentityN StopGradient PreventGradient PlaceholderWithDefault Snapshot EnsureShape RefIdentity Reshape "
    "Squeeze ExpandDims Bitcast ReadVariableOp DisableCopyOnRead OptionalFromValue OptionalGetValue OptionalNone "
    "Real Imag"
)
CONTROL = (
    "NoOp ControlTrigger Enter RefEnter Exit RefExit Switch RefSwitch _SwitchN Merge RefMerge NextIteration "
    "RefNextIteration LoopCond Assert Print "
    "Stack StackV2 StackPush StackPushV2 StackPop StackPopV2 StackClose StackCloseV2 "
    "TensorArrayV3 TensorArrayWriteV3 TensorArrayReadV3 TensorArrayGradV3 TensorArraySizeV3 TensorArrayCloseV3 "
    "TensorListReserve EmptyTensorList TensorListSetItem TensorListGetItem TensorListPushBack TensorListPopBack "
    "TensorListLength TensorListResize TensorListElementShape PrintV2 StringFormat"
)
STATE = (
    "Const Variable VariableV2 VarHandleOp TemporaryVariable Placeholder PlaceholderV2 IsVariableInitialized "
    "VarIsInitializedOp Shape ShapeN Size Rank VariableShape StatelessRandomGetKeyCounter StatelessRandomGetAlg "
    "StatelessRandomGetKeyCounterAlg RngReadAndSkip"
)
INPUT = (
    "FIFOQueueV2 RandomShuffleQueueV2 PaddingFIFOQueueV2 QueueEnqueueV2 QueueEnqueueManyV2 QueueDequeueV2 "
    "QueueDequeueManyV2 QueueDequeueUpToV2 QueueCloseV2 QueueSizeV2 Iterator IteratorV2 IteratorGetNext "
    "OneShotIterator ScalarSummary HistogramSummary ImageSummary MergeSummary"
)


tf = Vocabulary("tf")


@tf(f"{VIEWS} {CONTROL} {STATE} {INPUT}", "0: no bytes move", bytes=nothing, is_free=True)
def free(op: OpCall) -> Cost:
    """A renaming, control flow, state that exists, a question about a shape, or work of the host that feeds the step.

    Loops, stacks and arrays pass tensors on as they are: what they keep is in memory, but nobody copies it.
    """
    del op
    return FREE


def _scattered(op: OpCall) -> Bytes:
    value = op.first("value", "tensor")
    return Bytes(value.region_bytes, value.nbytes)


def assigned(op: OpCall) -> Bytes:
    """The value is read, the variable written."""
    return Bytes(size(op.inputs[1:2]), op.inputs[1].nbytes)


def replaced_rows(op: OpCall) -> Bytes:
    """Indices and updates are read, as many rows of the variable written."""
    updates = op.tensor("updates")
    return Bytes(size([*op.tensors("indices"), updates]), updates.nbytes)


@tf(
    "Cast Transpose Pack ParallelConcat Concat ConcatV2 ReverseV2 Reverse ReverseSequence Roll DynamicStitch "
    "DynamicPartition Unpack Split SplitV Tile BroadcastTo SpaceToBatchND BatchToSpaceND SpaceToDepth DepthToSpace "
    "ConjugateTranspose ParallelDynamicStitch Diag DiagPart MatrixDiagV3 MatrixDiagPartV3 MatrixBandPart "
    "MatrixSetDiagV3 ExtractImagePatches ResizeNearestNeighbor Complex",
    "0 FLOP: read and written", "A copy, in another order, layout or dtype.",
    bytes=lambda op: Bytes(size(op.inputs), size(op.outputs)),
)  # fmt: skip
@tf(
    "Slice StridedSlice TensorArrayGatherV3 TensorArrayConcatV3 TensorListStack TensorListGather",
    "0 FLOP: what is taken is read and written",
    "A copy of a part, or of all elements of an array together.",
    bytes=lambda op: Bytes(size(op.outputs), size(op.outputs)),
)  # fmt: skip
@tf(
    "TensorArrayScatterV3 TensorListFromTensor", "0 FLOP: the value is read, its parts written",
    "A tensor cut into the elements of an array.", bytes=_scattered,
)  # fmt: skip
@tf(
    "Fill ZerosLike OnesLike OneHot Zeros Ones Empty", "0 FLOP: written", "A fill; OneHot reads its indices.",
    bytes=lambda op: Bytes(size(op.inputs[:1]) if op.base == "OneHot" else 0, size(op.outputs)),
)  # fmt: skip
@tf(
    "Pad PadV2 MirrorPad StridedSliceGrad TensorScatterUpdate TensorStridedSliceUpdate",
    "0 FLOP: zeros with the input copied into place",
    "A tensor in a larger one.",
    bytes=lambda op: Bytes(size([op.tensor("dy")] if op.has("dy") else op.inputs[:1]), size(op.outputs)),
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


def _changed(written: BytesRule) -> BytesRule:
    """Read first what ``written`` writes."""

    def rule(op: OpCall) -> Bytes:
        read, wrote = written(op)
        return Bytes(read + wrote, wrote)

    return rule


@tf("AssignAdd AssignSub AssignAddVariableOp AssignSubVariableOp", "1 per element", bytes=_changed(assigned))
def assign_add(op: OpCall) -> Cost:
    """A value is added to a variable, or taken from it."""
    return elements(op, op.inputs[1].numel, ARITHMETIC)


STEPS = {
    "KerasMomentum": (4, 0, 1, "decay, subtract the scaled gradient; add"),
    "AdagradV2": (7, 2, 1, "square and add; root, epsilon, divide, scale, subtract"),
    "Adadelta": (13, 3, 2, "two running squares 3 each, two roots, quotient and products 4, update 1"),
    "AdamWithAmsgrad": (14, 2, 3, "as Adam, and the larger of the second moments"),
    "GradientDescent": (2, 0, 0, "scale and subtract the gradient"),
    "Momentum": (4, 0, 1, "decay, add the gradient; scale and subtract"),
    "Adagrad": (6, 2, 1, "square and add; root, divide, scale, subtract"),
    "Adam": (13, 2, 2, "first moment 3, second moment 4, denominator 3, update 3"),
    "RMSProp": (11, 1, 2, "mean square 4, denominator 2, momentum 4, update 1"),
}
"""Optimizer steps: FLOPs and special functions per element, how many slots they read and write, what they do."""


def _gradient(op: OpCall) -> Tensor:
    return op.tensor("delta" if op.has("delta") else "grad")


def _stepped(op: OpCall) -> Bytes:
    """Variable, gradient and slots are read; variable and slots written. With indices, only the rows they name."""
    gradient, slots = _gradient(op), STEPS[op.base.rpartition("Apply")[2]][2]
    state = (1 + slots) * gradient.nbytes
    return Bytes(state + gradient.region_bytes + size(op.tensors("indices")), state)


def step(op: OpCall) -> Cost:
    """One step per element of the gradient."""
    flops, special, *_ = STEPS[op.base.rpartition("Apply")[2]]
    count, each = _gradient(op).numel, flops + (2 if op.arg("use_nesterov", False) else 0)
    op.let(elements=count, per_element=each)
    return Cost(elementwise_flops=each * count, transcendentals=special * count)


for _name, (_flops, _, _, _text) in STEPS.items():
    _names = f"Apply{_name} ResourceApply{_name} SparseApply{_name} ResourceSparseApply{_name}"
    _formula = f"{_flops} per element" + " (Momentum: + 2 Nesterov)" * (_name == "Momentum")
    tf(_names, _formula, f"One step per element of the gradient: {_text}.", bytes=_stepped)(step)


@tf(
    "ScatterAdd ScatterSub ScatterNdAdd ScatterNdSub ResourceScatterAdd ResourceScatterSub ResourceScatterNdAdd "
    "ResourceScatterNdSub ScatterMul ScatterDiv",
    "1 per element of the updates",
    bytes=_changed(replaced_rows),
)
@tf(
    "ScatterNd", "1 per element of the updates", "Zeros with updates added at indices.",
    bytes=reads("indices", "updates"),
)  # fmt: skip
def scatter_add(op: OpCall) -> Cost:
    """Rows of a variable changed in place."""
    return elements(op, op.tensor("updates").numel, ARITHMETIC)


@tf(
    "UnsortedSegmentSum SegmentSum UnsortedSegmentProd",
    "1 per element (bound: distinct segments need one less)", bytes=reads("data", "segment_ids"),
)  # fmt: skip
@tf(
    "UnsortedSegmentMax UnsortedSegmentMin", "1 compared per element (bound)",
    "Largest or smallest of the rows of equal segment.",
)  # fmt: skip
def segment_sum(op: OpCall) -> Cost:
    """Sum of the rows of equal segment."""
    work = elements(op, op.inputs[0].numel, COMPARISON if "SegmentM" in op.base else ARITHMETIC)
    return work + Cost(exact=False, reason="bound: equal segments are not seen")


@tf(
    "RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal RandomShuffle RandomGamma "
    "StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal StatelessRandomUniformV2 "
    "StatelessRandomNormalV2 StatelessTruncatedNormalV2 StatelessRandomUniformIntV2 StatelessRandomUniformFullIntV2 "
    "ParameterizedTruncatedNormal StatelessShuffle",
    "E random draws, written", bytes=writes_only,
)  # fmt: skip
def drawn(op: OpCall) -> Cost:
    """One draw per element."""
    return Cost(random_draws=op.out.numel)


@tf("Multinomial", "2 n per row; per sample one random draw and log2 n comparisons")
def multinomial(op: OpCall) -> Cost:
    """Samples from rows of weights: normalized running sums, searched."""
    count, samples = op.tensor("logits").numel, op.out.numel
    searched = samples * int(op.shape("logits")[-1]).bit_length()
    return Cost(elementwise_flops=2 * count + searched, comparisons=searched, random_draws=samples)


@tf("LogUniformCandidateSampler UniformCandidateSampler", "one draw per sample, 10 per expected count")
def sampler(op: OpCall) -> Cost:
    """Shared negative samples, and how often each class is expected among them: a probability (two adds, two divisions,
    a logarithm) and ``-expm1(n log1p(-p))``."""
    samples, expected = op.outputs[0].numel, sum(tensor.numel for tensor in op.outputs[1:])
    cost = Cost(elementwise_flops=10 * expected, transcendentals=5 * expected, random_draws=samples)
    return cost + Cost(exact=False, reason="draws that are rejected as duplicates are not seen")
