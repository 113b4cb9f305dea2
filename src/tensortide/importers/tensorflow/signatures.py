"""Inputs and outputs of TensorFlow's ops: names, which rules and function bodies use, and dtypes of outputs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tensortide.graph.model import TENSOR, Value
from tensortide.importers.tensorflow.program import Attribute

_TEXT = """
x: Neg Exp Log Log1p Sqrt Rsqrt Square Erf Erfc Tanh Sigmoid Floor Ceil Round Rint Abs Sign Reciprocal Inv ZerosLike
x: OnesLike InvertPermutation Softplus Sin Cos Expm1
x -> =bool: LogicalNot IsNan IsInf IsFinite
x -> @DstT: Cast
x y: Add AddV2 Sub Mul Div RealDiv FloorDiv TruncateDiv FloorMod Mod Pow Maximum Minimum SquaredDifference DivNoNan
x y: BatchMatMul BatchMatMulV2 BatchMatMulV3
x y -> =bool: Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr
a b: MatMul
y dy: TanhGrad SigmoidGrad SqrtGrad RsqrtGrad ReciprocalGrad InvGrad
features: Relu Relu6 Elu Selu LeakyRelu
gradients features: ReluGrad Relu6Grad LeakyReluGrad SoftplusGrad
logits: Softmax LogSoftmax
features labels -> loss backprop: SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits
value bias: BiasAdd BiasAddV1
out_backprop: BiasAddGrad
input filter: Conv2D Conv3D DepthwiseConv2dNative
input_sizes filter out_backprop: Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput
input filter_sizes out_backprop: Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter
input: MaxPool MaxPoolV2 MaxPool3D AvgPool3D Squeeze Identity StopGradient PreventGradient
input -> output argmax@Targmax: MaxPoolWithArgmax
value: AvgPool
orig_input orig_output grad: MaxPoolGrad MaxPool3DGrad
orig_input_shape grad: AvgPoolGrad AvgPool3DGrad
x scale offset mean variance -> y batch_mean batch_variance reserve_space_1 reserve_space_2 reserve_space_3:
  FusedBatchNorm
x scale offset mean variance -> y batch_mean@U batch_variance@U reserve_space_1@U reserve_space_2@U reserve_space_3@U:
  FusedBatchNormV2 FusedBatchNormV3
y_backprop x scale reserve_space_1 reserve_space_2 -> x_backprop scale_backprop offset_backprop reserve_space_3
  reserve_space_4: FusedBatchNormGrad
y_backprop x scale reserve_space_1 reserve_space_2 -> x_backprop scale_backprop@U offset_backprop@U reserve_space_3@U
  reserve_space_4@U: FusedBatchNormGradV2
y_backprop x scale reserve_space_1 reserve_space_2 reserve_space_3 -> x_backprop scale_backprop@U offset_backprop@U
  reserve_space_3@U reserve_space_4@U: FusedBatchNormGradV3
input axis: Sum Mean Max Min Prod
input axis -> =bool: All Any
input axis -> @output_type: ArgMax ArgMin
x axis: Cumsum Cumprod
t: L2Loss
data segment_ids num_segments: UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd
params indices -> @Tparams: Gather GatherNd
params indices axis -> @Tparams: GatherV2
params indices: ResourceGatherNd
resource indices -> @dtype: ResourceGather
ref value: Assign AssignAdd AssignSub
resource value: AssignVariableOp AssignAddVariableOp AssignSubVariableOp
resource: ReadVariableOp
resource -> @out_type: VariableShape
ref indices updates: ScatterAdd ScatterSub ScatterUpdate ScatterMul ScatterDiv ScatterNdAdd ScatterNdSub ScatterNdUpdate
ref indices updates: ResourceScatterAdd ResourceScatterSub ResourceScatterUpdate
indices updates shape: ScatterNd
var alpha delta: ApplyGradientDescent ResourceApplyGradientDescent
var accum lr grad momentum: ApplyMomentum ResourceApplyMomentum
var accum lr grad indices momentum: SparseApplyMomentum ResourceSparseApplyMomentum
var accum lr grad: ApplyAdagrad ResourceApplyAdagrad
var accum lr grad indices: SparseApplyAdagrad ResourceSparseApplyAdagrad
var m v beta1_power beta2_power lr beta1 beta2 epsilon grad: ApplyAdam ResourceApplyAdam
var ms mom lr rho momentum epsilon grad: ApplyRMSProp ResourceApplyRMSProp
tensor shape: Reshape
input -> @out_type: Shape Size
-> @out_type: ShapeN
input -> =int32: Rank
input dim: ExpandDims
x perm: Transpose
input begin size: Slice
input begin end strides: StridedSlice
shape begin end strides dy: StridedSliceGrad
x paddings: Pad
input paddings constant_values: PadV2
input multiples: Tile
split_dim value: Split
value size_splits split_dim: SplitV
dims value: Fill
start limit delta -> @Tidx: Range
condition t e: Select SelectV2
condition -> =int64: Where
data: Enter RefEnter Exit RefExit NextIteration RefNextIteration
data pred -> output_false output_true: Switch RefSwitch
data output_index: _SwitchN
handle elem: StackPushV2
handle -> @elem_type: StackPopV2
-> handle=resource flow=float32: TensorArrayV3
handle flow_in -> grad_handle=resource flow_out=float32: TensorArrayGradV3
handle index value flow_in -> =float32: TensorArrayWriteV3
handle index flow_in -> @dtype: TensorArrayReadV3
handle indices flow_in: TensorArrayGatherV3
handle indices value flow_in -> =float32: TensorArrayScatterV3
handle flow_in -> =int32: TensorArraySizeV3
-> =float32: TensorArraySplitV3
-> value lengths: TensorArrayConcatV3
input_handle element_shape -> output_handle=variant tensor@element_dtype: TensorListPopBack
input_handle tensor -> =variant: TensorListPushBack
input_handle index element_shape -> @element_dtype: TensorListGetItem
input_handle index item -> =variant: TensorListSetItem
input_handle element_shape -> @element_dtype: TensorListStack
input_handle indices element_shape -> @element_dtype: TensorListGather
tensor element_shape -> =variant: TensorListFromTensor
element_shape num_elements -> =variant: TensorListReserve
element_shape max_num_elements -> =variant: EmptyTensorList
input_handle size -> =variant: TensorListResize
input_handle -> =int32: TensorListLength
input_handle -> @shape_type: TensorListElementShape
a b *args: _FusedMatMul
input filter *args: _FusedConv2D _FusedDepthwiseConv2dNative
a b: XlaEinsum
input block_shape paddings: SpaceToBatchND
input block_shape crops: BatchToSpaceND
seed -> key=uint64 counter=uint64: StatelessRandomGetKeyCounter
-> =int32: StatelessRandomGetAlg
shape key counter alg -> @dtype: StatelessRandomUniformV2 StatelessRandomNormalV2 StatelessTruncatedNormalV2
shape key counter alg minval maxval -> @dtype: StatelessRandomUniformIntV2 StatelessRandomUniformFullIntV2
input -> @Tcomplex: FFT FFT2D FFT3D IFFT IFFT2D IFFT3D
input fft_length -> @Tcomplex: RFFT RFFT2D RFFT3D
input fft_length -> @Treal: IRFFT IRFFT2D IRFFT3D
input -> @Tout: Real Imag ComplexAbs Angle
real imag -> @Tout: Complex
sorted_sequence values -> @out_type: SearchSorted LowerBound UpperBound
a_indices a_values a_shape b: SparseTensorDenseMatMul
images size -> =float32: ResizeBilinear ResizeBicubic ResizeArea
images size: ResizeNearestNeighbor
grads original_image: ResizeBilinearGrad
grads size: ResizeNearestNeighborGrad
tensor indices updates: TensorScatterUpdate TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin
var accum lr grad momentum: ResourceApplyKerasMomentum
var m v vhat beta1_power beta2_power lr beta1 beta2 epsilon grad: ResourceApplyAdamWithAmsgrad
var accum lr epsilon grad: ResourceApplyAdagradV2
var accum accum_update lr rho epsilon grad: ResourceApplyAdadelta
gradients inputs min max: FakeQuantWithMinMaxVarsGradient
matrix rhs: MatrixTriangularSolve
resource: DisableCopyOnRead
-> tensor lengths: TensorListConcatV2
logits num_samples -> @output_dtype: Multinomial
input k -> values indices=int32: TopK TopKV2
*inputs: AddN Einsum IdentityN
*inputs -> output value_index=int32: Merge RefMerge
*values: Pack
*values axis: ConcatV2
concat_dim *values: Concat
-> =bool: LoopCond InTopK InTopKV2 IsVariableInitialized VarIsInitializedOp ApproximateEqual
-> =int32: ConcatOffset QueueSizeV2 Bucketize
-> =resource: StackV2 VarHandleOp FIFOQueueV2 RandomShuffleQueueV2 IteratorV2 Iterator HashTableV2 OneShotIterator
-> =string: ScalarSummary MergeSummary HistogramSummary StringJoin
-> sampled_candidates=int64 true_expected_count=float32 sampled_expected_count=float32: LogUniformCandidateSampler
  UniformCandidateSampler LearnedUnigramCandidateSampler
-> =int32 =int64 =float32: ComputeAccidentalHits
-> @Tout: RandomUniformInt LookupTableFindV2
-> r0 r1: BroadcastGradientArgs
-> y idx@out_idx: Unique UniqueV2
-> y idx@out_idx count@out_idx: UniqueWithCounts
-> out idx@out_idx: ListDiff
-> @dtype: SequenceMask RandomStandardNormal
-> @type: Bitcast
-> i cs f o ci co h: LSTMBlockCell BlockLSTM BlockLSTMV2
"""
"""``inputs -> outputs: op types``. ``*`` marks a list of inputs. The name of an output is followed by ``=`` and its
dtype, or ``@`` and the attribute that says it; the last output repeats."""

_INPUTS: dict[str, list[str]] = {}
_OUTPUTS: dict[str, list[str]] = {}
for _line in _TEXT.replace("\n  ", " ").strip().splitlines():
    _sides, _, _ops = _line.partition(": ")
    _given, _, _made = _sides.partition("->")
    for _op in _ops.split():
        _INPUTS[_op], _OUTPUTS[_op] = _given.split(), _made.split()

_LISTS = ("Tout", "output_types", "component_types", "dtypes", "Tcomponents", "T")
"""Attributes that list the dtypes of all outputs."""

_ATTRIBUTES = ("dtype", "out_type", "DstT", "T", "component_type", "output_type", "Tparams", "Tout", "elem_type")
"""The first that a node has names the dtype of its outputs, unless the table says otherwise."""

_DEFAULTS = {"output_type": "int64", "output_dtype": "int64", "out_type": "int32", "out_idx": "int32", "Tidx": "int32"}


def operands(op: str, count: int) -> tuple[tuple[str, Value], ...]:
    """Name ``count`` inputs of ``op``, with holes; a list of inputs is one argument."""
    names = _INPUTS.get(op, [])
    lists = [i for i, name in enumerate(names) if name.startswith("*")]
    if lists and count >= len(names) - 1:
        at, length = lists[0], count - len(names) + 1
        return tuple((name.lstrip("*"), (TENSOR,) * length if i == at else TENSOR) for i, name in enumerate(names))
    return tuple((names[i] if i < len(names) else f"input_{i}", TENSOR) for i in range(count))


def output_index(op: str, name: str) -> int:
    """Return the number of the output of ``op`` called ``name``: the first, where the table has no such name."""
    names = [re.split("[=@]", output)[0] for output in _OUTPUTS.get(op, ())]
    return names.index(name) if name in names else 0


def output_dtypes(op: str, attributes: Mapping[str, Attribute], count: int) -> tuple[str, ...]:
    """Return the dtypes of ``count`` outputs; empty where nothing says."""
    outputs = _OUTPUTS.get(op) or [""]
    listed = next((value for name in _LISTS if isinstance(value := attributes.get(name), tuple) and value), ())
    if listed and not all("=" in output for output in outputs):
        known = tuple(map(str, listed))
    else:
        known = tuple(_dtype(output, attributes) for output in outputs)
    return (known + known[-1:] * count)[:count]


def _dtype(output: str, attributes: Mapping[str, Attribute]) -> str:
    _, fixed, dtype = output.partition("=")
    _, named, attribute = output.partition("@")
    if fixed:
        return dtype
    found = (attributes.get(name) for name in ([attribute] if named else _ATTRIBUTES))
    return next((value for value in found if isinstance(value, str)), _DEFAULTS.get(attribute, ""))
