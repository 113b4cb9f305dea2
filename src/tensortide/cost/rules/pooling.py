"""Pooling. Counting convention: docs/cost.md, pooling and resampling."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensortide.cost.access import reads
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule


def _kernel(op: OpCall, spatial: int) -> int:
    size = op.arg("kernel_size", ())
    size = size if isinstance(size, tuple) else (size,)
    return math.prod(size if len(size) == spatial else size * spatial)


def _rank(op: OpCall) -> int:
    return next((rank for rank in (1, 2, 3) if f"{rank}d" in op.base), 2)


@rule(
    "aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices", "aten::mkldnn_max_pool2d",
    "aten::mkldnn_max_pool3d", "aten::max_pool1d", "aten::max_pool2d", "aten::max_pool3d",
    "aten::max_pool1d_with_indices", "aten::quantized_max_pool1d", "aten::quantized_max_pool2d",
    "aten::quantized_max_pool3d", "aten::fractional_max_pool2d", "aten::fractional_max_pool3d",
    formula="K - 1 comparisons per output",
)  # fmt: skip
def max_pool(op: OpCall) -> Cost:
    """Largest of each window."""
    window, count = _kernel(op, _rank(op)), op.out.numel
    op.let(K=window, E=count)
    compared = (window - 1) * count
    return Cost(elementwise_flops=compared, comparisons=compared)


@rule(
    "aten::max_pool2d_with_indices_backward", "aten::max_pool3d_with_indices_backward",
    "aten::adaptive_max_pool2d_backward", "aten::adaptive_max_pool3d_backward",
    "aten::fractional_max_pool2d_backward", "aten::fractional_max_pool3d_backward",
    "aten::mkldnn_max_pool2d_backward", "aten::mkldnn_max_pool3d_backward", "aten::max_pool2d_backward",
    formula="1 per output of the forward", bytes=reads("grad_output", "indices"),
)  # fmt: skip
def max_pool_backward(op: OpCall) -> Cost:
    """Each gradient goes to the element that was the largest."""
    return Cost(elementwise_flops=op.tensor("grad_output").numel)


@rule("aten::avg_pool1d", "aten::avg_pool2d", "aten::avg_pool3d", formula="K per output: K - 1 adds, 1 division")
def average_pool(op: OpCall) -> Cost:
    """Mean of each window."""
    window, count = _kernel(op, _rank(op)), op.out.numel
    op.let(K=window, E=count)
    return Cost(elementwise_flops=window * count, transcendentals=count)


@rule(
    "aten::avg_pool2d_backward", "aten::avg_pool3d_backward",
    formula="K + 1 per output of the forward", bytes=reads("grad_output"),
)  # fmt: skip
def average_pool_backward(op: OpCall) -> Cost:
    """Each gradient, divided, is added to every element of its window."""
    window, count = _kernel(op, _rank(op)), op.tensor("grad_output").numel
    op.let(K=window, E=count)
    return Cost(elementwise_flops=(window + 1) * count, transcendentals=count)


def adaptive_windows(sizes: Sequence[int], outputs: Sequence[int]) -> int:
    """Elements in all windows that reach from floor(i n / o) to ceil((i + 1) n / o), dimension by dimension.

    >>> adaptive_windows([4], [2]), adaptive_windows([5], [2]), adaptive_windows([4, 4], [1, 1])
    (4, 6, 16)
    """
    return math.prod(
        sum(-(-(i + 1) * n // o) - i * n // o for i in range(o)) for n, o in zip(sizes, outputs, strict=True)
    )


def _adaptive(op: OpCall, inner: tuple[int, ...], outer: tuple[int, ...]) -> tuple[int, int]:
    rank = _rank(op)
    planes = math.prod(outer[: len(outer) - rank])
    covered = planes * adaptive_windows(inner[len(inner) - rank :], outer[len(outer) - rank :])
    op.let(covered=covered, E=math.prod(outer))
    return covered, math.prod(outer)


@rule(
    "aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool3d", "aten::adaptive_avg_pool1d",
    "aten::adaptive_avg_pool2d", "aten::adaptive_avg_pool3d", "aten::mkldnn_adaptive_avg_pool2d",
    formula="window size of each output",
)  # fmt: skip
def adaptive_average(op: OpCall) -> Cost:
    """Mean of windows that divide the input evenly."""
    covered, count = _adaptive(op, op.shape("self"), op.out.shape)
    return Cost(elementwise_flops=covered, transcendentals=count)


@rule(
    "aten::_adaptive_avg_pool2d_backward", "aten::_adaptive_avg_pool3d_backward",
    "aten::adaptive_avg_pool3d_backward", "aten::mkldnn_adaptive_avg_pool2d_backward",
    formula="window size + 1 per output of the forward", bytes=reads("grad_output"),
)  # fmt: skip
def adaptive_average_backward(op: OpCall) -> Cost:
    """Each gradient, divided, is added to every element of its window."""
    covered, count = _adaptive(op, op.shape("self"), op.shape("grad_output"))
    return Cost(elementwise_flops=covered + count, transcendentals=count)


@rule(
    "aten::adaptive_max_pool1d", "aten::adaptive_max_pool2d", "aten::adaptive_max_pool3d",
    formula="window size - 1 comparisons per output",
)  # fmt: skip
def adaptive_max(op: OpCall) -> Cost:
    """Largest of windows that divide the input evenly."""
    covered, count = _adaptive(op, op.shape("self"), op.out.shape)
    return Cost(elementwise_flops=covered - count, comparisons=covered - count)


@rule("aten::max_unpool2d", "aten::max_unpool3d", formula="0 FLOP: each value put back in its place")
def unpool(op: OpCall) -> Cost:
    """The inverse of maximum pooling."""
    del op
    return Cost()
