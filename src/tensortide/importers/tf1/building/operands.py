"""What TensorFlow calls the inputs of its ops: argument names for cost rules and explanations."""

from __future__ import annotations

from tensortide.graph.model import TENSOR, Value

__all__ = ["operands"]

_TEXT = """
x: Neg Exp Log Log1p Sqrt Rsqrt Square Erf Erfc Tanh Sigmoid Floor Ceil Round Rint Abs Sign Reciprocal Inv LogicalNot
x: Cast ZerosLike OnesLike InvertPermutation Softplus Sin Cos Expm1 IsNan IsInf IsFinite
x y: Add AddV2 Sub Mul Div RealDiv FloorDiv TruncateDiv FloorMod Mod Pow Maximum Minimum
x y: SquaredDifference Equal NotEqual
x y: Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr BatchMatMul BatchMatMulV2 BatchMatMulV3 DivNoNan
a b: MatMul
y dy: TanhGrad SigmoidGrad SqrtGrad RsqrtGrad ReciprocalGrad InvGrad
features: Relu Relu6 Elu Selu LeakyRelu
gradients features: ReluGrad Relu6Grad LeakyReluGrad SoftplusGrad
logits: Softmax LogSoftmax
features labels: SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits
value bias: BiasAdd BiasAddV1
out_backprop: BiasAddGrad
input filter: Conv2D Conv3D DepthwiseConv2dNative
input_sizes filter out_backprop: Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput
input filter_sizes out_backprop: Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter
input: MaxPool MaxPoolV2 MaxPool3D MaxPoolWithArgmax AvgPool3D
value: AvgPool
orig_input orig_output grad: MaxPoolGrad MaxPool3DGrad
orig_input_shape grad: AvgPoolGrad AvgPool3DGrad
x scale offset mean variance: FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3
y_backprop x scale reserve_space_1 reserve_space_2: FusedBatchNormGrad FusedBatchNormGradV2
y_backprop x scale reserve_space_1 reserve_space_2 reserve_space_3: FusedBatchNormGradV3
input axis: Sum Mean Max Min Prod All Any ArgMax ArgMin
x axis: Cumsum Cumprod
t: L2Loss
data segment_ids num_segments: UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd
params indices: Gather GatherNd ResourceGatherNd
resource indices: ResourceGather
params indices axis: GatherV2
ref value: Assign AssignAdd AssignSub
resource value: AssignVariableOp AssignAddVariableOp AssignSubVariableOp
resource: ReadVariableOp VariableShape
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
input: Squeeze Identity StopGradient PreventGradient Shape Size Rank
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
start limit delta: Range
condition t e: Select SelectV2
condition: Where
data: Enter RefEnter Exit RefExit NextIteration RefNextIteration
data pred: Switch RefSwitch
handle elem: StackPushV2
handle: StackPopV2
handle index value flow_in: TensorArrayWriteV3
handle index flow_in: TensorArrayReadV3
handle indices flow_in: TensorArrayGatherV3
handle indices value flow_in: TensorArrayScatterV3
handle flow_in: TensorArrayGradV3 TensorArraySizeV3
logits num_samples: Multinomial
input k: TopKV2 TopK
*inputs: AddN Merge RefMerge Einsum IdentityN
*values: Pack
*values axis: ConcatV2
concat_dim *values: Concat
"""

_NAMES = {
    op: names.split()
    for names, _, ops in (line.partition(": ") for line in _TEXT.strip().splitlines())
    for op in ops.split()
}


def operands(op: str, count: int) -> tuple[tuple[str, Value], ...]:
    """Argument names for ``count`` inputs of ``op``, with holes; a list of inputs is one argument."""
    names = _NAMES.get(op, [])
    lists = [i for i, name in enumerate(names) if name.startswith("*")]
    if lists and count >= len(names) - 1:
        at, length = lists[0], count - len(names) + 1
        return tuple((name.lstrip("*"), (TENSOR,) * length if i == at else TENSOR) for i, name in enumerate(names))
    return tuple((names[i] if i < len(names) else f"input_{i}", TENSOR) for i in range(count))
