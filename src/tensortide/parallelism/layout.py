"""Axes of a view from those of the tensor that it views: by where in memory each of its dimensions lies.

Reshapes, transposes, splits, slices, selections and expansions all follow from shapes, strides and offsets alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from tensortide.dtypes import DTYPES, Kind
from tensortide.graph.model import Tensor
from tensortide.parallelism.axes import Axes, Axis

_REAL = {row.name: f"float{row.bits // 2}" for row in DTYPES.values() if row.kind is Kind.COMPLEX}
"""The dtype of the two parts of a complex number."""


@dataclass(slots=True)
class _Span:
    """Part of a dimension in memory: its axes, and the distance in elements from one of its elements to the next."""

    axes: list[Axis]
    size: int
    stride: int


def tie_view(axes: Axes, base: Tensor, base_axes: list[Axis], view: Tensor, view_axes: list[Axis]) -> None:
    """Tie the axes of ``view`` (one for each dimension) to those of ``base``, of the same storage.

    A dimension of the view that takes an uneven part of one of the base cuts both.
    """
    if base.dtype == _REAL.get(view.dtype):
        view, view_axes = _as_real(axes, view, view_axes, base.dtype)
    elif view.dtype == _REAL.get(base.dtype):
        base, base_axes = _as_real(axes, base, base_axes, view.dtype)
    if not view.numel and base.dtype == view.dtype and len(base.shape) == len(view.shape):
        _tie_empty(axes, base, base_axes, view, view_axes)
        return
    if not base.numel or not view.numel or base.dtype != view.dtype or view.offset < base.offset:
        cut_all(axes, [*base_axes, *view_axes], "it is seen as another dtype, is empty, or begins before its base")
        return
    spans = [
        _Span([axis], size, stride)
        for axis, size, stride in zip(base_axes, base.shape, base.strides, strict=True)
        if size > 1 and stride
    ]
    shift = view.offset - base.offset
    for axis, size, stride in zip(view_axes, view.shape, view.strides, strict=True):
        if size > 1 and stride:
            _tie_dimension(axes, spans, axis, size, stride, shift)
    covered = set(axes.leaves(view_axes))
    for axis in axes.leaves([axis for span in spans for axis in span.axes]):
        if axis not in covered:
            axes.cut(axis, "a view selects from it")
    _tie_repeated(axes, base, base_axes, view, view_axes)


def _as_real(axes: Axes, tensor: Tensor, its_axes: list[Axis], dtype: str) -> tuple[Tensor, list[Axis]]:
    """A complex tensor and its axes as ``view_as_real`` shows it: the last dimension has the two parts of a number."""
    parts = axes.new(2)
    axes.cut(parts, "a complex number has it")
    shape, strides = (*tensor.shape, 2), (*(2 * stride for stride in tensor.strides), 1)
    return replace(tensor, dtype=dtype, shape=shape, strides=strides, offset=2 * tensor.offset), [*its_axes, parts]


def _tie_empty(axes: Axes, base: Tensor, base_axes: list[Axis], view: Tensor, view_axes: list[Axis]) -> None:
    """Tie the dimensions of a view without elements, such as an empty slice, that have size and stride of those of its
    base, and cut the others."""
    of_base = zip(base_axes, base.shape, base.strides, strict=True)
    for (axis, *layout), view_axis, size, stride in zip(of_base, view_axes, view.shape, view.strides, strict=True):
        if layout == [size, stride]:
            axes.tie([axis], [view_axis])
        else:
            cut_all(axes, [axis, view_axis], "an empty view selects from it")


def _tie_repeated(axes: Axes, base: Tensor, base_axes: list[Axis], view: Tensor, view_axes: list[Axis]) -> None:
    """Tie dimensions of stride 0, which repeat memory, in the order in which both tensors have them."""
    left = [(a, n) for a, n, s in zip(base_axes, base.shape, base.strides, strict=True) if n > 1 and not s]
    for axis, size, stride in zip(view_axes, view.shape, view.strides, strict=True):
        if size > 1 and not stride:
            same = next((item for item in left if item[1] == size), None)
            if same is not None:
                left.remove(same)
                axes.tie([same[0]], [axis])


def _tie_dimension(axes: Axes, spans: list[_Span], axis: Axis, size: int, stride: int, shift: int) -> None:
    """Tie one dimension of a view: it covers distances from ``stride`` up to ``size`` times that."""
    found: list[Axis] = []
    need, at = size, stride
    while need > 1:
        span = next((s for s in spans if s.stride <= at < s.stride * s.size and at % s.stride == 0), None)
        part = None if span is None else _part(axes, span, at // span.stride, need, shift)
        if span is None or part is None:
            why = "a view takes a part of it that is no equal share"
            axes.cut(axis, why)
            for each in spans if span is None else [span]:
                cut_all(axes, each.axes, why)
            return
        taken, number = part
        found = [*taken, *found]
        need //= number
        at *= number
    axes.tie(found, [axis])


def _part(axes: Axes, span: _Span, inner: int, need: int, shift: int) -> tuple[list[Axis], int] | None:
    """The axes of ``span`` outside its ``inner`` elements, as many as ``need`` asks for, and how many elements they
    have; None if they are no equal share of it."""
    if span.size % inner:
        return None
    available = span.size // inner
    take = min(need, available)
    start = shift // span.stride % span.size // inner
    if available % take or need % take or start % take:
        return None
    outer = axes.split(span.axes, inner)
    middle = None if outer is None else axes.split(outer[0], take)
    return None if middle is None else (middle[1], take)


def cut_all(axes: Axes, these: list[Axis], why: str) -> None:
    """Cut every axis of a list."""
    for axis in these:
        axes.cut(axis, why)
