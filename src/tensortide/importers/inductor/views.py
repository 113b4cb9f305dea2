"""Views in a dump: ops that only rename memory, known by their names, and the layout of their results."""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.graph.model import Value
from tensortide.importers.inductor.types import row_major

_RESHAPING = frozenset(
    ["view", "reshape", "_unsafe_view", "view_as", "squeeze", "unsqueeze", "alias", "detach", "flatten", "unflatten"]
)
_PARTS = frozenset(["slice", "narrow", "split", "split_with_sizes", "chunk"])
_OTHERS = frozenset(
    ["select", "unbind", "diagonal", "unfold", "as_strided", "view_as_real", "view_as_complex", "real", "imag", "_conj"]
)


def writes_in_place(op: str) -> bool:
    """Return whether ``op`` (``aten.copy_.default``) writes its first tensor and returns it."""
    name = _base(op)
    return name.endswith("_") and not name.endswith("__")


def strides_of_view(
    op: str, arguments: Sequence[Value], shape: tuple[int, ...], strides: tuple[int, ...], result: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of the ``result`` of ``op``, if it is a view of its first tensor, of ``shape`` and ``strides``; else
    None. A reshape is a view where strides for it exist. Where strides do not follow, dense ones stand in."""
    name = _base(op)
    dims = arguments[1] if len(arguments) > 1 else ()
    match name:
        case "permute" if isinstance(dims, tuple) and len(dims) == len(shape):
            return _permuted(strides, dims)
        case "t" | "transpose":
            first, second = (arguments[1], arguments[2]) if name == "transpose" and len(arguments) > 2 else (0, -1)
            return _swapped(strides, first, second)
        case "expand" if len(result) >= len(shape):
            new = len(result) - len(shape)
            kept = [
                stride if size == now else 0 for stride, size, now in zip(strides, shape, result[new:], strict=True)
            ]
            return (*((0,) * new), *kept)
        case "reshape":
            return reshaped(shape, strides, result)
        case _ if name in _RESHAPING:
            return reshaped(shape, strides, result) or row_major(result)
        case _ if name in _PARTS and len(result) == len(shape):
            return strides
        case _ if name in _OTHERS:
            return row_major(result)
    return None


def _base(op: str) -> str:
    parts = op.split(".")
    return parts[1] if len(parts) > 1 and parts[0] in ("aten", "prims") else ""


def _permuted(strides: tuple[int, ...], dims: tuple[Value, ...]) -> tuple[int, ...] | None:
    order = [dim for dim in dims if isinstance(dim, int) and -len(strides) <= dim < len(strides)]
    return tuple(strides[dim] for dim in order) if len(order) == len(strides) else None


def _swapped(strides: tuple[int, ...], first: Value, second: Value) -> tuple[int, ...] | None:
    if len(strides) < 2:
        return strides
    swapped, dims = list(strides), range(-len(strides), len(strides))
    if not (isinstance(first, int) and isinstance(second, int) and first in dims and second in dims):
        return None
    swapped[first], swapped[second] = swapped[second], swapped[first]
    return tuple(swapped)


def reshaped(shape: tuple[int, ...], strides: tuple[int, ...], result: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides under which ``result`` shows the same elements in the same order without a copy; None if there are none.

    Dimensions of the source are taken in runs that lie evenly in memory; the result must divide each run exactly.
    """
    if 0 in shape or 0 in result:
        return row_major(result)
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
