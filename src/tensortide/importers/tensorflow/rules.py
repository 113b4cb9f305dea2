"""Cost rules of TensorFlow's ops. The same counts as for the ops of other vocabularies: docs/cost.md.

Sizes may be expressions, which have no order: what must hold for them is exact arithmetic.
"""

from __future__ import annotations

import msgspec

from tensortide.cost.access import Bytes, interface, nothing, reads, size
from tensortide.cost.families import (
    channelwise,
    combined,
    contraction,
    convolution,
    decomposition,
    einsum,
    elementwise,
    fill,
    fourier,
    free,
    gather,
    integer,
    local_response,
    move,
    numbered,
    part,
    placed,
    pool,
    random,
    reduction,
    resample,
    running,
    sampled,
    scatter,
    search,
    segment,
    selected,
    softmax,
    substitution,
    topk,
    update,
)
from tensortide.cost.families.products import product
from tensortide.cost.families.reductions import along
from tensortide.cost.kinds import Weights, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import FREE, Cost
from tensortide.cost.registry import Rule, Vocabulary, find
from tensortide.expr import expr_of

tf = Vocabulary("tf")

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
"""Loops, stacks and arrays pass tensors on as they are: what they keep is in memory, but nobody copies it."""
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
GRADIENT_OF_INPUT, GRADIENT_OF_FILTER = reads("filter", "out_backprop"), reads("input", "out_backprop")


def _scattered(op: OpCall) -> Bytes:
    value = op.first("value", "tensor")
    return Bytes(value.region_bytes, value.nbytes)


def _same_shape(op: OpCall) -> bool:
    return tuple(map(expr_of, op.inputs[0].shape)) == tuple(map(expr_of, op.out.shape))


def _over_axes(how: str) -> Rule:
    """A reduction; one over no axes is a view."""
    made = reduction(how)

    def work(op: OpCall) -> Cost | None:
        """Rows reduced to one element each; over no axes nothing is done."""
        return FREE if _same_shape(op) else made.work(op)

    def moved(op: OpCall) -> Bytes:
        return nothing(op) if _same_shape(op) else Bytes(op.inputs[0].region_bytes, interface(op).written)

    return msgspec.structs.replace(made, work=work, bytes=moved)


tf.rows({
    "Add AddV2 Sub Neg BiasAdd BiasAddV1": "arithmetic",
    "Mul Square": "multiplication",
    "SquaredDifference": Weights(2, 0, 0, 8),
    "Div RealDiv Reciprocal Inv DivNoNan Xdivy": "division",
    "FloorDiv FloorMod Mod TruncateDiv TruncateMod": "remainder",
    "Maximum Minimum Equal NotEqual Less LessEqual Greater GreaterEqual Relu Abs Sign Floor Ceil Round Rint IsNan "
    "IsInf IsFinite Select SelectV2 NextAfter": "comparison",
    "Pow Exp Expm1 Log Log1p Sqrt Rsqrt Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Tanh Erf Erfc Erfinv "
    "Ndtri Lgamma Digamma Atan2 Angle Zeta Polygamma Igamma Igammac": "special",
    "Xlogy Xlog1py": "xlogy",
    "ClipByValue Relu6": "bounds",
    "Sigmoid": "sigmoid",
    "LeakyRelu": "leaky_relu",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Elu": "elu",
    "Selu": "selu",
    "ReluGrad": "relu_gradient",
    "Relu6Grad FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxArgsGradient": "bounds_gradient",
    "LeakyReluGrad": "leaky_relu_gradient",
    "EluGrad SeluGrad": "elu_gradient",
    "SigmoidGrad TanhGrad": "sigmoid_gradient",
    "SoftplusGrad": "softplus_gradient",
    "SoftsignGrad": "softsign_gradient",
    # dy / 2 / y; -dy / 2 * y * y * y; -dy * y * y
    "SqrtGrad": Weights(2, 1),
    "RsqrtGrad": Weights(4),
    "ReciprocalGrad InvGrad": Weights(3),
    "MulNoNan": Weights(2, 0, 1),
    "ComplexAbs": Weights(4, 1),
    "Conj": "conjugate",
    "ApproximateEqual": Weights(3, 0, 2),
    "Dequantize": Weights(2),
    "QuantizeV2": "quantize",
    "FakeQuantWithMinMaxVars FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVarsPerChannel QuantizeAndDequantizeV2 "
    "QuantizeAndDequantizeV3 QuantizeAndDequantizeV4": "fake_quantize",
    "CheckNumerics": elementwise("comparison", bytes=reads("x", "tensor", "input_0")),
    "InTopK InTopKV2": elementwise("comparison", of="0"),
    "AddN AccumulateNV2": combined(),
    "LogicalAnd LogicalOr LogicalNot BitwiseAnd BitwiseOr BitwiseXor Invert LeftShift RightShift": integer(),
    "BroadcastGradientArgs ConcatOffset InvertPermutation ListDiff BroadcastArgs": integer("inputs"),
    "Bincount DenseBincount": integer("0"),
    "Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 SetDiff1D Where": selected(),
    "Range LinSpace": numbered(bytes=interface),
    f"{VIEWS} {CONTROL} {STATE} {INPUT}": free(),
    "Cast Transpose Pack ParallelConcat Concat ConcatV2 ReverseV2 Reverse ReverseSequence Roll DynamicStitch "
    "DynamicPartition Unpack Split SplitV Tile BroadcastTo SpaceToBatchND BatchToSpaceND SpaceToDepth DepthToSpace "
    "ConjugateTranspose ParallelDynamicStitch Diag DiagPart MatrixDiagV3 MatrixDiagPartV3 MatrixBandPart "
    "MatrixSetDiagV3 ExtractImagePatches ResizeNearestNeighbor Complex": move(),
    "Slice StridedSlice TensorArrayGatherV3 TensorArrayConcatV3 TensorListStack TensorListGather":
        part("A copy of a part, or of all elements of an array together."),
    "TensorArrayScatterV3 TensorListFromTensor": move("A tensor cut into the elements of an array.", bytes=_scattered),
    "Fill ZerosLike OnesLike Zeros Ones Empty": fill(),
    "OneHot": placed(meaning="Zeros with a one for every index."),
    "Pad PadV2 MirrorPad StridedSliceGrad TensorScatterUpdate TensorStridedSliceUpdate": placed("dy 0"),
    "Assign AssignVariableOp": scatter(updates="1", into="place"),
    "AssignAdd AssignSub AssignAddVariableOp AssignSubVariableOp": scatter("arithmetic", updates="1", into="place"),
    "Gather GatherV2 GatherNd ResourceGather ResourceGatherNd": gather(),
    "ScatterUpdate ResourceScatterUpdate ScatterNdUpdate": scatter(into="place"),
    "ScatterAdd ScatterSub ScatterNdAdd ScatterNdSub ResourceScatterAdd ResourceScatterSub ResourceScatterNdAdd "
    "ResourceScatterNdSub ScatterMul ScatterDiv": scatter("arithmetic", into="place"),
    "ScatterNd TensorScatterAdd TensorScatterSub": scatter("arithmetic", into="zeros"),
    "TensorScatterMax TensorScatterMin": scatter("comparison", into="zeros"),
    "UnsortedSegmentSum SegmentSum UnsortedSegmentProd": segment(bytes=reads("data", "segment_ids")),
    "UnsortedSegmentMax UnsortedSegmentMin": segment("comparison"),
    "SparseSegmentSum": segment(bytes=reads("x0", "data", "input_0")),
    "SegmentMean SparseSegmentMean SparseSegmentSqrtN": segment(mean=True, bytes=reads("x0", "data", "input_0")),
    "RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal RandomShuffle RandomGamma "
    "StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal StatelessRandomUniformV2 "
    "StatelessRandomNormalV2 StatelessTruncatedNormalV2 StatelessRandomUniformIntV2 StatelessRandomUniformFullIntV2 "
    "ParameterizedTruncatedNormal StatelessShuffle": random(),
    "Multinomial": sampled("logits"),
    "Sum BiasAddGrad": _over_axes("sum"),
    "Prod": _over_axes("product"),
    "Max Min ArgMax ArgMin All Any": _over_axes("max"),
    "Mean": _over_axes("mean"),
    "L2Loss": reduction("half_squares"),
    "Cumsum": running(),
    "Cumprod": running("multiplication"),
    "Softmax": softmax(),
    "LogSoftmax": softmax(log=True),
    "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3": channelwise("is_training", True, channels="scale"),
    "LRN": local_response(radius="depth_radius", default=5),
    "MaxPool MaxPoolV2 MaxPool3D MaxPoolWithArgmax": pool("max", "ksize"),
    "AvgPool AvgPool3D": pool("mean", "ksize"),
    "MaxPoolGrad MaxPool3DGrad": pool("max_gradient", "", of="grad"),
    "AvgPoolGrad AvgPool3DGrad": pool("mean_gradient", "ksize", of="grad"),
    "ResizeBilinear": resample(4),
    "ResizeBicubic": resample(16),
    "ResizeBilinearGrad": resample(4, of="0", gradient=True),
    "ResizeNearestNeighborGrad": resample(1, gradient=True),
    "TopKV2 TopK": topk(),
    "SearchSorted LowerBound UpperBound": search(),
    "Bucketize": search("boundaries"),
    "MatMul SparseMatMul": contraction("_k", "0", turned="transpose_a"),
    "BatchMatMul BatchMatMulV2 BatchMatMulV3": contraction("*_k", "x", turned="adj_x"),
    "Einsum XlaEinsum": einsum(),
    "Conv2D Conv3D": convolution("*IO", kernel="filter", bias=""),
    "DepthwiseConv2dNative": convolution("*OO", kernel="filter", bias=""),
    "Conv2DBackpropInput Conv3DBackpropInputV2":
        convolution("*IO", kernel="filter", of="out_backprop", bias="", bytes=GRADIENT_OF_INPUT),
    "Conv2DBackpropFilter Conv3DBackpropFilterV2":
        convolution("*IO", kernel="out", of="out_backprop", bias="", bytes=GRADIENT_OF_FILTER),
    "DepthwiseConv2dNativeBackpropInput":
        convolution("*OO", kernel="filter", of="out_backprop", bias="", bytes=GRADIENT_OF_INPUT),
    "DepthwiseConv2dNativeBackpropFilter":
        convolution("*OO", kernel="out", of="out_backprop", bias="", bytes=GRADIENT_OF_FILTER),
    "Cholesky": decomposition("cholesky"),
    "MatrixInverse": decomposition("inverse"),
    "MatrixTriangularSolve": substitution("out"),
    "FFT IFFT": fourier(1),
    "FFT2D IFFT2D": fourier(2),
    "FFT3D IFFT3D": fourier(3),
    "RFFT": fourier(1, real=True),
    "RFFT2D": fourier(2, real=True),
    "RFFT3D": fourier(3, real=True),
    "IRFFT": fourier(1, real=True, of="out"),
    "IRFFT2D": fourier(2, real=True, of="out"),
    "IRFFT3D": fourier(3, real=True, of="out"),
})  # fmt: skip


@tf(
    "SparseSoftmaxCrossEntropyWithLogits", "R 4n for the loss, + R (n + 1) for the gradient if it is read",
    "Loss per row: maximum n-1, subtract n, exp n, add n-1, log 1, subtract 1. Gradient: divide n, subtract 1.",
    asks_wanted=True, family="loss",
)  # fmt: skip
@tf(
    "SoftmaxCrossEntropyWithLogits", "R (7n - 2) for the loss, + 2 R n for the gradient if it is read",
    "Loss per row: maximum n-1, subtract n, exp n, add n-1, log 1, subtract n, multiply n, add n-1. Gradient: divide\n"
    "n, subtract n.",
    asks_wanted=True, family="loss",
)  # fmt: skip
def cross_entropy(op: OpCall) -> Cost:
    """A loss of a softmax with its gradient: FLOPs and special functions per row."""
    (rows, n), gradient = along(op), op.wanted(1)
    if op.base.startswith("Sparse"):
        flops = 4 * n + (n + 1 if gradient else 0)
    else:
        flops = 7 * n - 2 + (2 * n if gradient else 0)
    return rows_work(op, rows * flops, rows * (n + 1 + (n if gradient else 0)), rows * (n - 1))


@tf(
    "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3", "per channel 9m + 1; in evaluation 6m - 2",
    family="normalization",
)  # fmt: skip
def batch_norm_gradient(op: OpCall) -> Cost:
    """Gradients for input, scale and offset."""
    total, channels = op.tensor("x").numel, op.tensor("scale").numel
    op.let(E=total, C=channels)
    if op.arg("is_training", True):
        return Cost(elementwise_flops=9 * total + channels, transcendentals=2 * channels)
    return Cost(elementwise_flops=6 * total - 2 * channels)


@tf("SparseTensorDenseMatMul", "nnz n MACs", family="contraction")
def sparse_dense(op: OpCall) -> Cost:
    """Product of a matrix of stored elements and a dense one."""
    return product(op, op.tensor("a_values").numel * int(op.out.shape[-1]))


_FUSED = {
    "_FusedMatMul": "MatMul",
    "_FusedConv2D": "Conv2D",
    "_FusedDepthwiseConv2dNative": "DepthwiseConv2dNative",
}


@tf(" ".join(_FUSED), "as the product + what is fused", family="contraction")
def fused(op: OpCall) -> Cost | None:
    """A product with its bias and activation as one op."""
    steps = op.arg("fused_ops", ())
    total = _cost_as(_FUSED[op.base], op)
    for name in (steps,) if isinstance(steps, str) else steps:
        if name == "FusedBatchNorm":
            channels = op.out.shape[-1]
            after: Cost | None = Cost(elementwise_flops=2 * op.out.numel + 5 * channels, transcendentals=channels)
        else:
            after = _cost_as(name, op, "elementwise")
        if total is None or after is None:
            return None
        total += after
    return total


def _cost_as(name: str, op: OpCall, family: str = "") -> Cost | None:
    """The cost that ``op`` would have as an op of another type, if that has a rule of the family."""
    one = find(f"tf::{name}")
    return None if one is None or family not in ("", one.family) else one.work(op)


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


def _stepped(op: OpCall) -> Bytes:
    """Variable, gradient and slots are read; variable and slots written. With indices, only the rows they name."""
    gradient, slots = op.operand("delta grad"), STEPS[op.base.rpartition("Apply")[2]][2]
    state = (1 + slots) * gradient.nbytes
    return Bytes(state + gradient.region_bytes + size(op.tensors("indices")), state)


tf.rows({
    f"Apply{name} ResourceApply{name} SparseApply{name} ResourceSparseApply{name}": update(
        flops, special, text, of="delta grad", bytes=_stepped, also=" (Momentum: + 2 Nesterov)" * (name == "Momentum"),
        more=lambda op: 2 * bool(op.arg("use_nesterov", False)),
    )
    for name, (flops, special, _, text) in STEPS.items()
})  # fmt: skip


@tf("LogUniformCandidateSampler UniformCandidateSampler", "one draw per sample, 10 per expected count", family="random")
def sampler(op: OpCall) -> Cost:
    """Shared negative samples, and how often each class is expected among them: a probability (two adds, two divisions,
    a logarithm) and ``-expm1(n log1p(-p))``."""
    samples, expected = op.outputs[0].numel, sum(tensor.numel for tensor in op.outputs[1:])
    cost = Cost(elementwise_flops=10 * expected, transcendentals=5 * expected, random_draws=samples)
    return cost + Cost(exact=False, reason="draws that are rejected as duplicates are not seen")
