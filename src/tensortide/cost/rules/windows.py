"""Pooling, resampling, grid sampling and regions. Counting convention: docs/cost.md, pooling and resampling."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

from tensortide.cost.access import reads
from tensortide.cost.families import adaptive, folded, move, pool
from tensortide.cost.kinds import Kind, Weights
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary, rule

aten = Vocabulary("aten", "window")
each_real = functools.partial(aten.each, of="grad_output out", kind=Kind.REAL)
NEAREST = [f"{form}{n}d" for form in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)]

# -- pooling ----------------------------------------------------------------------------------------


def _rank(op: OpCall) -> int:
    return next((rank for rank in (1, 2, 3) if f"{rank}d" in op.base), 2)


def _window(op: OpCall) -> int:
    """Elements of a window: the kernel has one size per dimension, or one for all."""
    size = op.arg("kernel_size", ())
    size = size if isinstance(size, tuple) else (size,)
    window = math.prod(size if len(size) == _rank(op) else size * _rank(op))
    op.let(K=window)
    return window


@each_real(
    "max_pool2d_with_indices max_pool3d_with_indices mkldnn_max_pool2d mkldnn_max_pool3d max_pool1d max_pool2d "
    "max_pool3d max_pool1d_with_indices quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d "
    "fractional_max_pool2d fractional_max_pool3d",
    "K - 1 comparisons per output",
)
def max_pool(op: OpCall) -> Weights:
    """Largest of each window."""
    window = _window(op)
    return Weights(window - 1, 0, window - 1)


aten.rows({
    "max_pool2d_with_indices_backward max_pool3d_with_indices_backward adaptive_max_pool2d_backward "
    "adaptive_max_pool3d_backward fractional_max_pool2d_backward fractional_max_pool3d_backward "
    "mkldnn_max_pool2d_backward mkldnn_max_pool3d_backward max_pool2d_backward":
        pool("max_gradient", "", of="grad_output", bytes=reads("grad_output", "indices")),
    "max_unpool2d max_unpool3d": move("The inverse of maximum pooling: each value put back in its place."),
    " ".join(NEAREST): move("Nearest neighbour."),
    " ".join(f"{name}_backward" for name in NEAREST): folded(),
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d": adaptive("max"),
    "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
    "mkldnn_adaptive_avg_pool2d": adaptive("mean"),
    "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward adaptive_avg_pool3d_backward "
    "mkldnn_adaptive_avg_pool2d_backward": adaptive("mean", gradient="grad_output", bytes=reads("grad_output")),
})  # fmt: skip
SPREAD = "Each gradient, divided, is added to every element of its window."
SPREADING: dict[str, Any] = {"meaning": SPREAD, "bytes": reads("grad_output")}


@each_real("avg_pool1d avg_pool2d avg_pool3d", "K per output: K - 1 adds, 1 division")
@each_real("avg_pool2d_backward avg_pool3d_backward", "K + 1 per output of the forward", **SPREADING)
def average_pool(op: OpCall) -> Weights:
    """Mean of each window."""
    return Weights(_window(op) + ("backward" in op.base), 1)


# -- resampling -------------------------------------------------------------------------------------

TAPS = {"linear1d": 2, "bilinear2d": 4, "trilinear3d": 8, "bicubic2d": 16}
SMOOTHED = {"bilinear2d_aa": 1, "bicubic2d_aa": 2, "lanczos2d_aa": 3}
"""Reach of the antialiasing kernels, in units of the scale."""
BOUND = "bound: antialiasing taps at the edge counted"


def _upsampling(names: Iterable[str], prefix: str = "upsample_", suffix: str = "") -> str:
    return " ".join(f"{prefix}{name}{suffix}" for name in names)


def _taps(op: OpCall) -> int:
    """Taps of an interpolation; those of a kernel that widens with the scale if it is smoothed."""
    name, backward = op.base.removesuffix("_backward").lstrip("_").removeprefix("upsample_"), "backward" in op.base
    if name in TAPS:
        taps = TAPS[name]
    else:
        sizes = (op.out.shape, op.shape("grad_output")) if backward else (op.shape("self"), op.out.shape)
        scales = (max(1.0, n / m) for n, m in zip(*(shape[-2:] for shape in sizes), strict=True))
        taps = math.prod(2 * math.ceil(SMOOTHED[name] * scale) for scale in scales)
    op.let(t=taps)
    return taps


@each_real(
    _upsampling(TAPS),
    "t multiplies and t - 1 adds per output, t = 2, 4, 8, 16 taps",
    meaning="Linear, bilinear, trilinear or bicubic interpolation.",
)
@each_real(
    _upsampling(TAPS, suffix="_backward"),
    "2t per output of the forward, t taps",
    meaning="Each gradient, weighted, is added to every tap.",
)
@each_real(_upsampling(SMOOTHED, "_upsample_"), "t multiplies and t - 1 adds per output (t: kernel area)", bound=BOUND)
@each_real(
    _upsampling(SMOOTHED, "_upsample_", "_backward"),
    "2t per output of the forward (t: kernel area)",
    meaning="Gradient of interpolation with antialiasing.",
    bound=BOUND,
)
def interpolate(op: OpCall) -> Weights:
    """Interpolation with antialiasing."""
    return Weights(2 * _taps(op) - ("backward" not in op.base))


def _grid_taps(op: OpCall) -> int:
    """Taps by interpolation mode: linear in every dimension, nearest, cubic."""
    rank = 3 if "3d" in op.base else 2
    taps: int = (2**rank, 1, 4**rank)[op.arg("interpolation_mode", 0)]
    op.let(t=taps)
    return taps


@each_real(
    "grid_sampler_2d grid_sampler_3d cudnn_grid_sampler _grid_sampler_2d_cpu_fallback",
    "t multiplies, t - 1 adds and 2t for the weights per output; nearest 0",
    family="grid",
)
def grid_sample(op: OpCall) -> Weights:
    """Values at arbitrary positions."""
    taps = _grid_taps(op)
    return Weights(4 * taps - 1 if taps > 1 else 0)


@each_real(
    "grid_sampler_2d_backward grid_sampler_3d_backward cudnn_grid_sampler_backward "
    "_grid_sampler_2d_cpu_fallback_backward",
    "2t + 2t (weights) per output and wanted gradient",
    family="grid",
    bytes=reads("grad_output", "input", "self", "grid"),
)
def grid_sample_backward(op: OpCall) -> Weights:
    """Gradients of values and positions, as wanted."""
    taps, wanted = _grid_taps(op), sum(op.arg("output_mask", (True, True)))
    op.let(wanted=wanted)
    return Weights(4 * taps * wanted if taps > 1 else 1)


@aten(
    "affine_grid_generator cudnn_affine_grid_generator cudnn_affine_grid_generator_backward",
    "N points d (d + 1) MACs",
    family="grid",
)
def affine_grid(op: OpCall) -> Cost:
    """Grid points (homogeneous) times a matrix, or the gradient of the matrix."""
    points = op.tensor("grad") if "backward" in op.base else op.out
    return Cost(macs=points.numel * (points.shape[-1] + 1))


# -- regions ----------------------------------------------------------------------------------------


@rule("torchvision::nms", formula="13 per pair of boxes + 3 per box (bound)")
def suppress(op: OpCall) -> Cost:
    """Overlap of every pair of boxes, at most: 4 corners, 2 sides of at least 0, area, union 2, ratio, threshold."""
    n = op.shape("dets")[0]
    pairs = n * (n - 1) // 2
    return Cost(
        elementwise_flops=13 * pairs + 3 * n,
        transcendentals=pairs,
        comparisons=7 * pairs,
        exact=False,
        reason="bound: every pair compared",
    )


@rule("torchvision::roi_align", formula="samples per output x 15: bilinear reads and their weights, + 1 division")
def roi_align(op: OpCall) -> Cost:
    """Averages of bilinear samples in regions of interest."""
    ratio, count = int(op.arg("sampling_ratio", 2)), op.out.numel
    reason = "" if ratio > 0 else "adaptive sampling counted as 1"
    flops = 16 * max(1, ratio) ** 2 * count
    return Cost(elementwise_flops=flops, transcendentals=count, exact=ratio > 0, reason=reason)
