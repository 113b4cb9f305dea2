"""Reductions, softmax, normalization, losses, pooling, resampling, selections of ONNX graphs."""

from __future__ import annotations

import math

from tensortide.cost.access import Bytes, size, written
from tensortide.cost.families import (
    channelwise,
    decomposition,
    elementwise,
    folded,
    local_response,
    normalization,
    pool,
    reduction,
    running,
    softmax,
    topk,
)
from tensortide.cost.families.products import CONVENTION, transform
from tensortide.cost.families.reductions import along
from tensortide.cost.kinds import COMPARISON, Weights, elements
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.importers.onnx.rules.moves import onnx

onnx.rows({
    "ReduceSum": reduction("sum"),
    "ReduceProd": reduction("product"),
    "ReduceMean GlobalAveragePool": reduction("mean"),
    "ReduceMax ReduceMin GlobalMaxPool ArgMax ArgMin": reduction("max"),
    "ReduceL1": reduction("absolute"),
    "ReduceL2 GlobalLpPool": reduction("norm"),
    "ReduceSumSquare": reduction("squares"),
    "ReduceLogSum": reduction("log_sum"),
    "ReduceLogSumExp": reduction("log_sum_exp"),
    "Softmax +QLinearSoftmax": softmax(axis="axis"),
    "+BiasSoftmax": softmax(axis="axis", biased=True),
    "LogSoftmax": softmax(axis="axis", log=True),
    "*LayerNormalization +SkipLayerNormalization": normalization("axis", "axis", affine="rest"),
    "InstanceNormalization": normalization("space", affine="rest"),
    "MeanVarianceNormalization": normalization("channel", affine="rest"),
    "GroupNormalization +GroupNorm": normalization("groups", "num_groups groups", affine="rest"),
    "RMSNormalization *SimplifiedLayerNormalization +SkipSimplifiedLayerNormalization":
        normalization("axis", "axis", affine="rest", centred=False),
    "BatchNormalization": channelwise("training_mode", running=True),
    "MaxPool": pool("max", "kernel_shape"),
    "AveragePool": pool("mean", "kernel_shape"),
    "LpPool": pool("norm", "kernel_shape"),
    "Col2Im": folded("convolution"),
    "LRN": local_response(size="size", fixed=5),
    "CumSum": running(axis="axis_"),
    "CumProd": running("multiplication", axis="axis_"),
    "TopK": topk("axis"),
    "MelWeightMatrix": elementwise((8, 1, 2), bound="convention: 8 per element"),
    "Det": decomposition("determinant"),
    "+Inverse": decomposition("inverse"),
})  # fmt: skip


@onnx("Hardmax", "R (n - 1) comparisons", "One at the place of the maximum.", family="reduction")
def hardmax(op: OpCall) -> Cost:
    """The largest of each row."""
    rows, n = along(op, "axis")
    return elements(op, rows * (n - 1), COMPARISON)


@onnx("LpNormalization", "3n per row", family="normalization")
def lp_norm(op: OpCall) -> Cost:
    """Divided by the norm."""
    count, n = along(op, "axis")
    return Cost(elementwise_flops=count * 3 * n, transcendentals=count * (n + 1))


def _picked(op: OpCall) -> Bytes:
    """One of the scores of each label is read."""
    return Bytes(op.inputs[1].numel * op.inputs[0].itemsize + size(op.inputs[1:]), written(op))


@onnx("SoftmaxCrossEntropyLoss", "R (5n - 1) of log-softmax + N of the loss", family="loss")
@onnx(
    "NegativeLogLikelihoodLoss", "N", "The negative logarithms of the labels' probabilities.", family="loss",
    bytes=_picked,
)  # fmt: skip
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


@onnx("MaxRoiPool", "1 comparison per element of a region (bound)", family="window")
def pooled(op: OpCall) -> Cost:
    """Largest of the parts of regions."""
    bound = op.inputs[1].shape[0] * op.inputs[0].numel // max(1, op.inputs[0].shape[0])
    return Cost(elementwise_flops=bound, comparisons=bound, exact=False, reason="bound: regions of all the image")


@onnx("+QLinearGlobalAveragePool", "R n adds of integers, and a scaling", family="reduction")
def integer_pool(op: OpCall) -> Cost:
    """Average of quantized numbers."""
    return Cost(int_ops=op.inputs[0].numel, elementwise_flops=2 * op.out.numel)


@onnx(
    "Resize Upsample", "nearest 0; linear 2t - 1 per output, t = 2 per resized dimension; cubic t = 4", family="window"
)
def resized(op: OpCall) -> Cost:
    """Interpolated."""
    mode = op.arg("mode", "nearest")
    if mode == "nearest":
        return Cost()
    changed = sum(int(a) != int(b) for a, b in zip(op.inputs[0].shape, op.out.shape, strict=True))
    taps = (4 if mode == "cubic" else 2) ** changed
    op.let(t=taps, E=op.out.numel)
    return elements(op, op.out.numel, Weights(2 * taps - 1))


@onnx("*GridSample", "t = taps: 2t weights, t products, t - 1 adds per output", family="window")
@onnx("RoiAlign", "4 taps per sample, and their average", family="window")
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


@onnx("DFT", "ceil(5 n log2 n) per complex transform; half for a real one", family="fourier")
@onnx("STFT", "the window's products, and a transform per frame", "Fourier transforms of frames.", family="fourier")
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
    return Cost(elementwise_flops=frames * transform(int(n), real) + extra, exact=False, reason=CONVENTION)


@onnx(
    "AffineGrid", "d (d + 1) MACs per place, d coordinates", "Places of a grid under affine maps.", family="contraction"
)
def affine_grid(op: OpCall) -> Cost:
    """A product of every place with the map."""
    d = op.out.shape[-1]
    return Cost(macs=op.out.numel * (d + 1))


@onnx("NonMaxSuppression", "14 per pair of boxes and class, every box against those kept (bound)", family="sort")
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
