"""Strides of views."""

from __future__ import annotations

from tensortide.graph.handles import contiguous


def reshaped(shape: tuple[int, ...], strides: tuple[int, ...], result: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides under which ``result`` shows the same elements in the same order without a copy; None if there are none.

    Dimensions of the source are taken in runs that lie evenly in memory; the result must divide each run exactly.
    """
    if 0 in shape or 0 in result:
        return contiguous(result)
    runs: list[list[int]] = []  # elements and innermost stride of each, innermost first
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1:
            continue
        if runs and stride == runs[-1][0] * runs[-1][1]:
            runs[-1][0] *= size
        else:
            runs.append([size, stride])
    found: list[int] = []
    left, stride = 1, 1
    for size in reversed(result):
        if size > 1 and left == 1:
            if not runs:
                return None
            left, stride = runs.pop(0)
        if left % size:
            return None
        found.append(stride)
        left //= size
        stride *= size
    return tuple(reversed(found)) if left == 1 and not runs else None
