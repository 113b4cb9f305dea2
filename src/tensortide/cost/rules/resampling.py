"""Resampling: upsampling, grid sampling, affine grids. Counting convention: docs/cost.md, pooling and resampling."""

from __future__ import annotations

import math

from tensortide.cost.access import reads
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule

TAPS = {"linear1d": 2, "bilinear2d": 4, "trilinear3d": 8, "bicubic2d": 16}
NEAREST = tuple(
    f"aten::{exact}nearest{e}{n}d" for exact, e in (("upsample_", ""), ("_upsample_", "_exact")) for n in (1, 2, 3)
)
INTERPOLATED = tuple(f"aten::upsample_{name}" for name in TAPS)
SMOOTHED = {"bilinear2d_aa": 1, "bicubic2d_aa": 2, "lanczos2d_aa": 3}
"""Reach of the antialiasing kernels, in units of the scale."""


@rule(*NEAREST, formula="0 FLOP: a copy")
def nearest(op: OpCall) -> Cost:
    """Nearest neighbour."""
    del op
    return Cost()


@rule(*(f"{name}_backward" for name in NEAREST), formula="adds = output elements - input elements")
def nearest_backward(op: OpCall) -> Cost:
    """Gradients of the copies of each element summed."""
    return Cost(elementwise_flops=max(0, op.tensor("grad_output").numel - op.out.numel))


@rule(*INTERPOLATED, formula="t multiplies and t - 1 adds per output, t = 2, 4, 8, 16 taps")
def interpolate(op: OpCall) -> Cost:
    """Linear, bilinear, trilinear or bicubic interpolation."""
    taps = TAPS[op.base.removeprefix("upsample_")]
    op.let(t=taps, E=op.out.numel)
    return Cost(elementwise_flops=(2 * taps - 1) * op.out.numel)


@rule(*(f"{name}_backward" for name in INTERPOLATED), formula="2t per output of the forward, t taps")
def interpolate_backward(op: OpCall) -> Cost:
    """Each gradient, weighted, is added to every tap."""
    taps = TAPS[op.base.removeprefix("upsample_").removesuffix("_backward")]
    count = op.tensor("grad_output").numel
    op.let(t=taps, E=count)
    return Cost(elementwise_flops=2 * taps * count)


def _smoothing_taps(reach: int, large: tuple[int, ...], small: tuple[int, ...]) -> int:
    """Taps of a kernel that widens with the scale."""
    scales = (max(1.0, n / m) for n, m in zip(large[-2:], small[-2:], strict=True))
    return math.prod(2 * math.ceil(reach * scale) for scale in scales)


@rule(
    *(f"aten::_upsample_{name}" for name in SMOOTHED), formula="t multiplies and t - 1 adds per output (t: kernel area)"
)
def smooth(op: OpCall) -> Cost:
    """Interpolation with antialiasing."""
    taps = _smoothing_taps(SMOOTHED[op.base.removeprefix("_upsample_")], op.shape("self"), op.out.shape)
    op.let(t=taps, E=op.out.numel)
    flops = (2 * taps - 1) * op.out.numel
    return Cost(elementwise_flops=flops, exact=False, reason="bound: antialiasing taps at the edge counted")


@rule(
    *(f"aten::_upsample_{name}_backward" for name in SMOOTHED), formula="2t per output of the forward (t: kernel area)"
)
def smooth_backward(op: OpCall) -> Cost:
    """Gradient of interpolation with antialiasing."""
    reach = SMOOTHED[op.base.removeprefix("_upsample_").removesuffix("_backward")]
    gradient = op.tensor("grad_output")
    taps = _smoothing_taps(reach, op.out.shape, gradient.shape)
    flops = 2 * taps * gradient.numel
    return Cost(elementwise_flops=flops, exact=False, reason="bound: antialiasing taps at the edge counted")


def _grid_taps(op: OpCall) -> int:
    """Taps by interpolation mode: linear in every dimension, nearest, cubic."""
    rank = 3 if "3d" in op.base else 2
    mode: int = op.arg("interpolation_mode", 0)
    return (2**rank, 1, 4**rank)[mode]


@rule(
    "aten::grid_sampler_2d", "aten::grid_sampler_3d", "aten::cudnn_grid_sampler", "aten::_grid_sampler_2d_cpu_fallback",
    formula="t multiplies, t - 1 adds and 2t for the weights per output; nearest 0",
)  # fmt: skip
def grid_sample(op: OpCall) -> Cost:
    """Values at arbitrary positions."""
    taps = _grid_taps(op)
    op.let(t=taps, E=op.out.numel)
    return Cost(elementwise_flops=(4 * taps - 1) * op.out.numel if taps > 1 else 0)


@rule(
    "aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward", "aten::cudnn_grid_sampler_backward",
    "aten::_grid_sampler_2d_cpu_fallback_backward",
    formula="2t + 2t (weights) per output and wanted gradient",
    bytes=reads("grad_output", "input", "self", "grid"),
)  # fmt: skip
def grid_sample_backward(op: OpCall) -> Cost:
    """Gradients of values and positions, as wanted."""
    taps, count = _grid_taps(op), op.tensor("grad_output").numel
    wanted = sum(op.arg("output_mask", (True, True)))
    op.let(t=taps, E=count, wanted=wanted)
    return Cost(elementwise_flops=4 * taps * count * wanted if taps > 1 else count)


@rule("aten::affine_grid_generator", "aten::cudnn_affine_grid_generator", formula="N points d (d + 1) MACs")
def affine_grid(op: OpCall) -> Cost:
    """Grid points (homogeneous) times a matrix."""
    rank = op.out.shape[-1]
    return Cost(macs=op.out.numel * (rank + 1))


@rule("aten::cudnn_affine_grid_generator_backward", formula="N points d (d + 1) MACs")
def affine_grid_backward(op: OpCall) -> Cost:
    """Gradient of the matrix."""
    gradient = op.tensor("grad")
    return Cost(macs=gradient.numel * (gradient.shape[-1] + 1))
