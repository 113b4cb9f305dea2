"""Reductions, softmax, normalization, losses, pooling, resampling, selections of ONNX graphs."""

from __future__ import annotations

import math

from tensortide.cost.forms import softmax_of
from tensortide.cost.kinds import Weights, elements, kind_of, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.rules.normalization import layer
from tensortide.cost.rules.pointwise import ARITHMETIC, COMPARISON
from tensortide.importers.onnx.rules.moves import onnx


def _sizes(op: OpCall) -> tuple[int, int]:
    """Elements of the input and of the result."""
    total, results = op.inputs[0].numel, op.out.numel
    op.let(E=total, R=results)
    return total, results


@onnx("ReduceSum ReduceProd", "R (n - 1)")
@onnx("ReduceMean GlobalAveragePool", "R n: n - 1 adds and a division per row", "Average.")
@onnx("ReduceMax ReduceMin GlobalMaxPool ArgMax ArgMin", "R (n - 1) comparisons", "Largest or smallest, or its place.")
@onnx("ReduceL1", "R (2n - 1)", "Sum of absolute values.")
@onnx("ReduceL2 GlobalLpPool", "2 R n", "Root of the sum of squares.")
@onnx("ReduceSumSquare", "R (2n - 1)", "Sum of squares.")
@onnx("ReduceLogSum", "R n", "Logarithm of a sum.")
@onnx("ReduceLogSumExp", "4 R n", "Logarithm of a sum of exponentials, the maximum taken out.")
def reduction(op: OpCall) -> Cost:
    """n - 1 additions or products per row of n."""
    total, results = _sizes(op)
    if op.base in ("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "GlobalMaxPool"):
        return elements(op, total - results, COMPARISON, kind_of(op.inputs))
    flops, special = {
        "ReduceSum": (total - results, 0), "ReduceProd": (total - results, 0), "ReduceMean": (total, results),
        "GlobalAveragePool": (total, results), "ReduceL1": (2 * total - results, 0), "ReduceL2": (2 * total, results),
        "GlobalLpPool": (2 * total, results), "ReduceSumSquare": (2 * total - results, 0),
        "ReduceLogSum": (total, results), "ReduceLogSumExp": (4 * total, total + results),
    }[op.base]  # fmt: skip
    return rows_work(op, flops, special)


def rows(op: OpCall, default: int) -> tuple[int, int]:
    """Rows, and their length, along the attribute ``axis``."""
    shape = op.inputs[0].shape
    n = shape[op.arg("axis", default)] if shape else 1
    count = op.inputs[0].numel // max(1, n)
    op.let(R=count, n=n)
    return count, n


@onnx("Softmax +BiasSoftmax +QLinearSoftmax", "R (5n - 2) (+ R n of a bias)")
@onnx("LogSoftmax", "R (5n - 1)", "Logarithm of softmax.")
@onnx("Hardmax", "R (n - 1) comparisons", "One at the place of the maximum.")
def softmax(op: OpCall) -> Cost:
    """Exponentials divided by their sum, the maximum taken out."""
    count, n = rows(op, -1)
    if op.base == "Hardmax":
        return elements(op, count * (n - 1), COMPARISON)
    biased = count * n if op.base.endswith("BiasSoftmax") else 0
    return softmax_of(op, count, n, log=op.base == "LogSoftmax", extra=biased)


@onnx("*LayerNormalization", "R (5n + 2 + n (scale) + n (bias))")
@onnx(
    "InstanceNormalization GroupNormalization +GroupNorm MeanVarianceNormalization",
    "R (5n + 2 + n (scale) + n (bias))", "Normalization over groups of channels.",
)  # fmt: skip
@onnx("+SkipLayerNormalization", "R (5n + 2 + n (gamma) + n (beta) + n (skip) + n (bias))",
      "A sum, normalized over its last dimension.")  # fmt: skip
def layer_norm(op: OpCall) -> Cost:
    """Normalization over the last dimensions."""
    x = op.inputs[0]
    kind = op.base.removeprefix("microsoft::")
    if kind == "LayerNormalization":
        n = math.prod(x.shape[op.arg("axis", -1) :])
    elif kind == "SkipLayerNormalization":
        n = x.shape[-1]
    elif kind == "InstanceNormalization":
        n = math.prod(x.shape[2:])
    elif kind == "MeanVarianceNormalization":
        n = x.numel // max(1, x.shape[1])
    else:
        n = math.prod(x.shape[1:]) // max(1, op.arg("num_groups", op.arg("groups", 1)))
    count = x.numel // max(1, n)
    op.let(R=count, n=n)
    affine = max(0, len(op.inputs) - 1) * x.numel
    return layer(count, n, affine, 0)


@onnx("RMSNormalization *SimplifiedLayerNormalization", "R (3n + 2 + n (scale))")
@onnx("+SkipSimplifiedLayerNormalization", "R (4n + 2 + n (gamma) + n (bias))", "A sum, divided by its mean square.")
def rms_norm(op: OpCall) -> Cost:
    """Divided by the root of the mean square."""
    x = op.inputs[0]
    n = math.prod(x.shape[op.arg("axis", -1) :])
    count = x.numel // max(1, n)
    op.let(R=count, n=n)
    return Cost(elementwise_flops=count * (3 * n + 2) + (len(op.inputs) - 1) * x.numel, transcendentals=3 * count)


@onnx("BatchNormalization", "C (2m + 5) with the stored statistics; training C (5m + 2 + 2m + 7)")
def batch_norm(op: OpCall) -> Cost:
    """Normalization by channel."""
    x = op.inputs[0]
    channels = x.shape[1] if len(x.shape) > 1 else 1
    m = x.numel // max(1, channels)
    op.let(C=channels, m=m)
    if op.arg("training_mode", 0):
        return Cost(elementwise_flops=channels * (7 * m + 9), transcendentals=3 * channels)
    return Cost(elementwise_flops=channels * (2 * m + 5), transcendentals=2 * channels)


@onnx("LpNormalization", "3n per row")
def lp_norm(op: OpCall) -> Cost:
    """Divided by the norm."""
    count, n = rows(op, -1)
    return Cost(elementwise_flops=count * 3 * n, transcendentals=count * (n + 1))


@onnx("LRN", "per element: a square, size adds, 2, a power, a division")
def local_response(op: OpCall) -> Cost:
    """Divided by a power of the sum of squares of neighbouring channels."""
    each = int(op.arg("size", 1)) + 5
    return elements(op, op.out.numel, Weights(each, 2))


@onnx("SoftmaxCrossEntropyLoss", "R (5n - 1) of log-softmax + N of the loss")
@onnx("NegativeLogLikelihoodLoss", "N", "The negative logarithms of the labels' probabilities.")
def loss(op: OpCall) -> Cost:
    """Cross entropy of scores and labels."""
    x, picked = op.inputs[0], op.inputs[1].numel
    n = x.shape[1]
    count = x.numel // max(1, n)
    op.let(R=count, n=n)
    if op.base.startswith("Negative"):
        return Cost(elementwise_flops=picked)
    return Cost(elementwise_flops=count * (5 * n - 1) + picked, transcendentals=count * (n + 1),
                comparisons=count * (n - 1))  # fmt: skip


@onnx("MaxPool", "K - 1 comparisons per output")
@onnx("AveragePool", "K per output", "Average of a window.")
@onnx("LpPool", "2 K per output", "Norm of a window.")
@onnx("MaxRoiPool", "1 comparison per element of a region (bound)", "Largest of the parts of regions.")
def pooled(op: OpCall) -> Cost:
    """Largest of a window."""
    window, count = math.prod(op.arg("kernel_shape", ())), op.out.numel
    op.let(K=window, E=count)
    if op.base == "MaxRoiPool":
        bound = op.inputs[1].shape[0] * op.inputs[0].numel // max(1, op.inputs[0].shape[0])
        return Cost(elementwise_flops=bound, comparisons=bound, exact=False, reason="bound: regions of all the image")
    if op.base == "MaxPool":
        return elements(op, count * (window - 1), COMPARISON)
    each = window * (1 + (op.base == "LpPool"))
    return rows_work(op, count * each, count)


@onnx("+QLinearGlobalAveragePool", "R n adds of integers, and a scaling")
def integer_pool(op: OpCall) -> Cost:
    """Average of quantized numbers."""
    return Cost(int_ops=op.inputs[0].numel, elementwise_flops=2 * op.out.numel)


@onnx("Resize Upsample", "nearest 0; linear 2t - 1 per output, t = 2 per resized dimension; cubic t = 4")
def resized(op: OpCall) -> Cost:
    """Interpolated."""
    mode = op.arg("mode", "nearest")
    if mode == "nearest":
        return Cost()
    changed = sum(int(a) != int(b) for a, b in zip(op.inputs[0].shape, op.out.shape, strict=True))
    taps = (4 if mode == "cubic" else 2) ** changed
    op.let(t=taps, E=op.out.numel)
    return elements(op, op.out.numel, Weights(2 * taps - 1))


@onnx("*GridSample", "t = taps: 2t weights, t products, t - 1 adds per output")
@onnx("RoiAlign", "4 taps per sample, and their average")
def sampled(op: OpCall) -> Cost:
    """Interpolated at given places."""
    if op.base == "RoiAlign":
        samples = max(1, op.arg("sampling_ratio", 0)) ** 2
        return elements(op, op.out.numel * samples, Weights(16)) + Cost(
            exact=op.arg("sampling_ratio", 0) != 0,
            reason="bound: one sample per place" * (not op.arg("sampling_ratio", 0)),
        )
    per = {"nearest": 1, "cubic": 4, "bicubic": 4}.get(op.arg("mode", "linear"), 2)
    taps = per ** (len(op.inputs[0].shape) - 2)
    return elements(op, op.out.numel, Weights(4 * taps - 1))


@onnx("Col2Im", "input elements - output elements adds (not below 0)")
def columns(op: OpCall) -> Cost:
    """Blocks added into an image."""
    return rows_work(op, max(0, op.inputs[0].numel - op.out.numel))


@onnx("CumSum CumProd", "R (n - 1)")
def running(op: OpCall) -> Cost:
    """Running sums or products; along the last axis where the graph does not hold it."""
    x = op.inputs[0]
    n = x.shape[op.arg("axis_", -1)] if x.shape else 1
    return elements(op, x.numel - x.numel // max(1, n), ARITHMETIC)


@onnx("TopK", "R n ceil(log2(k + 1)) comparisons")
def top_k(op: OpCall) -> Cost:
    """The largest of every row."""
    count, n = rows(op, -1)
    k = op.out.shape[op.arg("axis", -1)]
    op.let(k=k)
    return elements(op, count * n * int(k).bit_length(), COMPARISON, kind_of(op.inputs))


@onnx("DFT", "ceil(5 n log2 n) per complex transform; half for a real one")
@onnx("STFT", "the window's products, and a transform per frame", "Fourier transforms of frames.")
def fourier(op: OpCall) -> Cost:
    """Fast Fourier transform."""
    x, real = op.inputs[0], op.inputs[0].shape[-1] == 1 or op.base == "STFT"
    if op.base == "STFT":
        frames, bins = math.prod(op.out.shape[:2]), op.out.shape[2]
        n = 2 * (bins - 1) if op.arg("onesided", 1) else bins
        extra = frames * n
    else:
        axis = op.arg("axis_", op.arg("axis", -2 if len(x.shape) > 2 else 0))
        n, extra = x.shape[axis], 0
        frames = x.numel // max(1, n * x.shape[-1])
    op.let(n=n, transforms=frames)
    flops = math.ceil((2.5 if real else 5) * int(n) * math.log2(max(2, int(n))))
    return Cost(elementwise_flops=frames * flops + extra, exact=False, reason="convention: 5 n log2 n")


@onnx("Det", "n^3 / 3 MACs per matrix")
@onnx("+Inverse", "n^3 MACs per matrix", "Inverse.")
def determinant(op: OpCall) -> Cost:
    """Product of the diagonal of an LU decomposition."""
    n = op.inputs[0].shape[-1]
    count = op.inputs[0].numel // max(1, n * n)
    macs = count * (n**3 if op.base.endswith("Inverse") else n**3 // 3)
    return Cost(macs=macs, exact=False, reason="leading term")


@onnx("AffineGrid", "d (d + 1) MACs per place, d coordinates", "Places of a grid under affine maps.")
def affine_grid(op: OpCall) -> Cost:
    """A product of every place with the map."""
    d = op.out.shape[-1]
    return Cost(macs=op.out.numel * (d + 1))


@onnx("MelWeightMatrix", "8 per element", "A matrix from frequencies to bins of the mel scale.")
def mel(op: OpCall) -> Cost:
    """Two lines and the smaller of them."""
    return elements(op, op.out.numel, Weights(8, 1, 2)) + Cost(exact=False, reason="convention: 8 per element")


@onnx("NonMaxSuppression", "14 per pair of boxes and class, every box against those kept (bound)")
def suppressed(op: OpCall) -> Cost:
    """The overlap of each box with every one that is kept."""
    scores = op.inputs[1]
    boxes = scores.shape[-1]
    kept = op.out.shape[0]
    overlaps = boxes * kept
    return Cost(
        elementwise_flops=14 * overlaps + scores.numel, comparisons=5 * overlaps + scores.numel, exact=False,
        reason="bound: as many boxes as may be kept",
    )  # fmt: skip
