"""Cost rules of the operations of ``keras.ops`` beyond those that layers are made of, and of rarer activations.

An operation has its inputs as ``x0``, ``x1``, ... and the numbers, texts and short lists of its description.
"""

from __future__ import annotations

import math

from tensortide.cost.access import writes_only
from tensortide.cost.families import (
    adaptive,
    channelwise,
    contraction,
    convolution,
    decomposition,
    fill,
    fourier,
    free,
    gather,
    histogram,
    integer,
    move,
    normalization,
    numbered,
    part,
    placed,
    pool,
    reduction,
    resample,
    running,
    search,
    segment,
    selected,
    sort,
    substitution,
    topk,
)
from tensortide.cost.families.einsum import einsum
from tensortide.cost.families.products import product
from tensortide.cost.families.reductions import softmax_work
from tensortide.cost.kinds import COMPARISON, Kind, Weights, elements, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary, elementwise
from tensortide.importers.shapes import diagonal

keras = Vocabulary("keras")
_ALIKE = "a bound: as if nothing were left out"

keras.rows({
    "ops_Deg2rad ops_Rad2deg ops_Diff": "arithmetic",
    "ops_Conj ops_Conjugate": "conjugate",
    "ops_Outer ops_Kron ops_Vander": "multiplication",
    "ops_Arccos ops_Arccosh ops_Arcsin ops_Arcsinh ops_Arctan ops_Arctan2 ops_Arctanh ops_Cosh ops_Sinh ops_Tan "
    "ops_Exp2 ops_Log2 ops_Log10 ops_Cbrt ops_Erfc ops_Erfinv ops_I0 ops_Angle": "special",
    "ops_Fabs ops_Fmax ops_Fmin ops_Trunc ops_Signbit ops_Heaviside ops_Isfinite ops_Isinf ops_Isnan ops_Isneginf "
    "ops_Isposinf ops_Isreal ops_NanToNum ops_Nextafter ops_Threshold activation_threshold": "comparison",
    "ops_HardTanh ops_SaturateCast ops_HardShrink activation_hard_shrink": "bounds",
    "ops_DivideNoNan": "division",
    "ops_FloorDivide ops_Mod ops_Fmod": "remainder",
    "ops_Celu": "elu",
    "ops_SoftShrink activation_soft_shrink": Weights(3, 0, 2),
    "ops_SparsePlus activation_sparse_plus": Weights(5, 0, 2),
    "ops_TanhShrink activation_tanh_shrink": Weights(2, 1),
    "ops_Glu activation_glu": Weights(5, 2),
    "ops_LogSigmoid activation_log_sigmoid": Weights(5, 2, 1),
    "ops_SparseSigmoid activation_sparse_sigmoid": Weights(4, 0, 2),
    "ops_Squareplus activation_squareplus": Weights(5, 1),
    "ops_Sinc": Weights(4, 2, 1),
    "ops_Ldexp": Weights(2, 1),
    "ops_Hypot": Weights(4, 1),
    "ops_Logaddexp ops_Logaddexp2": Weights(6, 2, 2),
    "ops_Polar": Weights(4, 2),
    "ops_Cross": Weights(3),
    "ops_Isclose ops_AllClose": Weights(6, 0, 2),
    "ops_RGBToGrayscale": Weights(5),
    "ops_RGBToHSV ops_HSVToRGB": elementwise(Weights(8, 1, 4), bound="convention: 8 per element"),
    "ops_BinaryCrossentropy": elementwise(Weights(10, 2, 2), of="0"),
    "ops_PSNR": elementwise(Weights(3), of="0"),
    "AutoContrast": elementwise(Weights(5, 1, 2), bound="convention: 5 per element"),
    "Equalization ContrastLimitedAdaptiveHistogramEqualization": elementwise(
        Weights(6, 1, 2), bound="convention: 6 per element"
    ),
    "Solarization": Weights(3, 0, 2),
    "ops_BitwiseAnd ops_BitwiseOr ops_BitwiseXor ops_BitwiseNot ops_BitwiseInvert ops_BitwiseLeftShift "
    "ops_BitwiseRightShift ops_LeftShift ops_RightShift ops_Gcd ops_Lcm ops_LogicalAnd ops_LogicalOr ops_LogicalNot "
    "ops_LogicalXor ops_UnravelIndex": integer(),
    "ops_Bincount": integer("0"),
    "ops_Real ops_Imag ops_View ops_ViewAsComplex ops_ViewAsReal ops_Ndim ops_Size ops_ConvertToTensor": free(),
    "ops_Append ops_Array ops_ArraySplit ops_Copy ops_DepthToSpace ops_SpaceToDepth ops_Diag ops_Diagflat ops_Dsplit "
    "ops_Hsplit ops_Vsplit ops_Dstack ops_Hstack ops_Vstack ops_Fliplr ops_Flipud ops_Rot90 ops_Meshgrid ops_Rearrange "
    "ops_Unstack ops_ExtractPatches ops_ExtractSequences ops_Unfold ops_Scatter ops_ScatterUpdate ops_SliceUpdate "
    "ops_Select": move(),
    "ops_Slice ops_Diagonal ops_CropImages": part(),
    "ops_PadImages": placed(),
    "ops_Full ops_FullLike ops_EmptyLike ops_MultiHot": fill(),
    "ops_Arange ops_Linspace": numbered(),
    "ops_Logspace ops_Geomspace": elementwise((3, 1), bytes=writes_only),
    "ops_InTopK": elementwise("comparison", of="1"),
    "ops_TakeAlongAxis": gather("x1"),
    "ops_Nansum": reduction("sum"),
    "ops_Nanprod": reduction("product"),
    "ops_Nanmean": reduction("mean"),
    "ops_Var ops_Nanvar ops_Moments": reduction("variance"),
    "ops_Std ops_Nanstd": reduction("deviation"),
    "ops_Norm": reduction("norm"),
    "ops_Ptp": reduction("range"),
    "ops_Normalize": elementwise((3, 1), of="0", bound="convention: 3 each", family="reduction"),
    "ops_Histogram": histogram(),
    "ops_AdaptiveAveragePool AdaptiveAveragePooling1D AdaptiveAveragePooling2D AdaptiveAveragePooling3D":
        adaptive("mean"),
    "ops_AdaptiveMaxPool AdaptiveMaxPooling1D AdaptiveMaxPooling2D AdaptiveMaxPooling3D": adaptive("max"),
    "ops_BatchNorm": channelwise(),
    "ops_Amax ops_Amin ops_All ops_Any ops_Nanmax ops_Nanmin ops_Nanargmax ops_Nanargmin ops_CountNonzero": reduction(
        "max"
    ),
    "ops_Logsumexp": reduction("log_sum_exp"),
    "ops_Cumsum ops_Nancumsum": running(axis="axis", default=None),
    "ops_Cumprod ops_Nancumprod": running("multiplication", axis="axis", default=None),
    "ops_SegmentSum ops_SegmentProd": segment(),
    "ops_SegmentMax ops_SegmentMin ops_SegmentReduction": segment("comparison"),
    "ops_Unique ops_Nonzero": selected(),
    "ops_Sort ops_Argsort ops_Argpartition": sort(),
    "ops_TopK": topk(k="k"),
    "ops_SearchSorted": search("0"),
    "ops_Digitize": search("1"),
    "tied_logits": contraction("*k,nk", "x kernel"),
    "ops_MaxPool": pool("max", "pool_size"),
    "ops_AveragePool": pool("mean", "pool_size"),
    "ops_Resize ops_AffineTransform ops_PerspectiveTransform ops_MapCoordinates ops_ScaleAndTranslate "
    "ops_ElasticTransform": resample(4),
    "ops_Conv": convolution("*IO", kernel="1", bias=""),
    "ops_DepthwiseConv": convolution("*OO", kernel="1", bias=""),
    "ops_ConvTranspose": convolution("*OI", kernel="1", of="0", bias="", transposed=True),
    "ops_LayerNorm": normalization(affine="rest"),
    "ops_RMSNorm": normalization(affine="rest", centred=False),
    "ops_Cholesky": decomposition("cholesky"),
    "ops_CholeskyInverse": decomposition("inverse_of_factor"),
    "ops_Inv": decomposition("inverse"),
    "ops_Det ops_Slogdet ops_Logdet": decomposition("determinant"),
    "ops_LuFactor": decomposition("lu"),
    "ops_SolveTriangular": substitution("1"),
    "ops_FFT": fourier(1),
    "ops_FFT2 ops_IFFT2": fourier(2),
    "ops_RFFT": fourier(1, real=True),
    "ops_IRFFT": fourier(1, real=True, of="out"),
})  # fmt: skip


@keras("ops_Median ops_Nanmedian ops_Quantile ops_Nanquantile ops_Percentile ops_Nanpercentile", "as a sort of all",
       family="sort")  # fmt: skip
def median(op: OpCall) -> Cost:
    """Values in the middle, or at a share, of rows: a sort of each at worst."""
    count, rows = op.inputs[0].numel, max(1, op.out.numel)
    n = max(1, count // rows)
    op.let(R=rows, n=n)
    work = elements(op, count * max(0, n - 1).bit_length(), COMPARISON)
    return work + Cost(exact=False, reason="bound: a full sort")


@keras("ops_Trace", "R (n - 1), n of each diagonal", family="reduction")
def trace(op: OpCall) -> Cost:
    """Sums of diagonals."""
    rows, columns = (op.inputs[0].shape[op.arg(name, axis)] for axis, name in enumerate(("axis1", "axis2")))
    n = diagonal(rows, columns, op.arg("offset", 0))
    op.let(R=op.out.numel, n=n)
    return rows_work(op, op.out.numel * max(0, n - 1))


@keras("ops_Average", "2 n R: products with weights; n R without", family="reduction")
def average(op: OpCall) -> Cost:
    """Mean of rows, weighted if weights are given."""
    return rows_work(op, op.inputs[0].numel * len(op.inputs), op.out.numel)


@keras("ops_Inner ops_Vdot ops_Tensordot", "E k MACs", family="contraction")
def contracted(op: OpCall) -> Cost | None:
    """A sum of products over the last axis of both, over all of them, or over so many; unknown over axes by name."""
    shape = op.inputs[0].shape
    axes = {"ops_Inner": 1, "ops_Vdot": len(shape)}.get(op.base, op.arg("axes", 2))
    if not isinstance(axes, int):
        return None
    k = math.prod(shape[len(shape) - axes :])
    op.let(E=op.out.numel, k=k)
    return product(op, op.out.numel * k)


_EINSUM = einsum()


@keras("ops_Einsum", "as an einsum of the same subscripts", family="contraction")
def subscripts(op: OpCall) -> Cost | None:
    """A sum of products in Einstein's notation."""
    op.arguments["equation"] = op.arg("subscripts", "")
    return _EINSUM.work(op)


@keras("ops_CDist", "P R d MACs of pairs, + 3 P R and 2 d of each point", family="contraction")
def distances(op: OpCall) -> Cost:
    """Distances of all pairs of points."""
    a, b = op.inputs
    d = a.shape[-1]
    op.let(pairs=op.out.numel, d=d)
    return product(op, op.out.numel * d, 2 * (a.numel + b.numel) + 3 * op.out.numel)


_QR = decomposition("qr").work


@keras("ops_Qr", "s^2 (l - s/3) MACs for R, as much again for Q", family="decomposition")
def orthogonal(op: OpCall) -> Cost | None:
    """Orthogonal and triangular factor by reflections."""
    one = _QR(op)
    return one * 2 if one is not None and op.arg("mode", "reduced") != "r" else one


@keras("ops_Solve", "n^3 / 3 + n^2 r MACs", family="decomposition")
def solved(op: OpCall) -> Cost:
    """Solution of systems, by LU factors."""
    a, b = op.inputs
    n, systems = a.shape[-1], math.prod(a.shape[:-2])
    right = b.numel // max(1, n * systems)
    op.let(n=n, r=right)
    return product(op, systems * (n**3 // 3 + n * n * right)) + Cost(exact=False, reason="leading term")


@keras("ops_DotProductAttention", "B Hq Sq Sk (Dk + Dv) MACs", family="attention")
def attention(op: OpCall) -> Cost:
    """Attention of heads, dense; inputs are samples, tokens, heads, features."""
    query, key, value = (tensor.shape for tensor in op.inputs[:3])
    rows, keys = query[0] * query[1] * query[2], key[1]
    op.let(Sq=query[1], Sk=keys, H=query[2])
    pairs = rows * keys
    masked = len(op.inputs) > 3
    return product(op, pairs * (query[3] + value[3]), pairs) + softmax_work(op, rows, keys, extra=pairs * masked)


@keras("ops_Sparsemax activation_sparsemax", "R (n L - 2^L + 1) comparisons, + 5 n: sums, a threshold", family="sort")
def sparsemax(op: OpCall) -> Cost:
    """Projection of rows onto the simplex: sorted, running sums, a threshold."""
    n = op.inputs[0].shape[-1]
    compared = op.out.numel * max(0, n - 1).bit_length()
    return Cost(elementwise_flops=compared + 5 * op.out.numel, comparisons=compared, exact=False, reason=_ALIKE)


@keras("ops_CategoricalCrossentropy ops_SparseCategoricalCrossentropy", "R (5n - 1) log-softmax + R", family="loss")
def cross_entropy(op: OpCall) -> Cost:
    """Logarithm of softmax of the scores, and the label's element of it."""
    scores = max(op.inputs, key=lambda tensor: int(tensor.numel))
    n = scores.shape[-1]
    rows = scores.numel // max(1, n)
    op.let(R=rows, n=n)
    return softmax_work(op, rows, n, log=True, extra=rows)


@keras("ops_SobelEdges", "18 per output: 9 taps", family="convolution")
@keras("ops_GaussianBlur", "K per output, K taps", family="convolution")
def filtered(op: OpCall) -> Cost:
    """Images under a filter of each channel."""
    size = op.arg("kernel_size", (3, 3))
    taps = math.prod(size) if isinstance(size, tuple) else int(size) ** 2
    return product(op, op.out.numel * (9 if op.base == "ops_SobelEdges" else taps))


@keras("ops_SeparableConv", "N O K C m MACs of the depthwise kernel, + N O C m Cout", family="convolution")
def separable(op: OpCall) -> Cost:
    """A depthwise convolution and one of single elements."""
    depthwise, pointwise = (tensor.shape for tensor in op.inputs[1:3])
    sites = op.out.numel // max(1, pointwise[-1])
    return product(op, sites * (math.prod(depthwise) + math.prod(pointwise)))


@keras("ConvLSTM", "T B O K 4F (C + F) MACs, + 30 per unit and step (22 without bias)", family="recurrent")
def convolutional(op: OpCall) -> Cost:
    """An LSTM whose products are convolutions: every site of every step meets both kernels."""
    samples, steps = op.shape("x")[:2]
    sites = samples * steps * math.prod(op.arg("sites"))
    macs = sites * (op.tensor("kernel").numel + op.tensor("recurrent_kernel").numel)
    return product(op, macs, (30 if op.has("bias") else 22) * sites * op.shape("recurrent_kernel")[-2])


@keras("ops_IsIn", "(E + M) ceil(log2(M + 1)) comparisons", family="sort")
def is_in(op: OpCall) -> Cost:
    """Membership, by a sort of the test elements and a search for each element."""
    count, tests = op.inputs[0].numel, op.inputs[-1].numel
    return elements(op, (count + tests) * int(tests).bit_length(), COMPARISON, Kind.REAL)


@keras("ops_Correlate", "n m MACs", family="convolution")
@keras("ops_Corrcoef", "n^2 k MACs, + 4 n k", family="contraction")
def correlated(op: OpCall) -> Cost:
    """Products of a sequence and another at all shifts, or of all pairs of rows, normalized."""
    x = op.inputs[0]
    if op.base == "ops_Correlate":
        return product(op, x.numel * op.inputs[-1].numel)
    n, k = (1, *x.shape)[-2:]
    return product(op, n * n * k, 4 * n * k + 2 * n * n)


@keras("ops_Trapezoid", "4 per element", family="reduction")
def trapezoid(op: OpCall) -> Cost:
    """Sum of the areas between neighbours."""
    return rows_work(op, 4 * op.inputs[0].numel)
