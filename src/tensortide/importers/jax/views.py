"""Primitives that only rename memory, and the layout of their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tensortide.graph.strides import reshaped


class Layout(NamedTuple):
    """Strides and offset of a view, in elements, and its shape: of a random key it has one dimension more than JAX
    says."""

    strides: tuple[int, ...]
    offset: int


SAME = frozenset(
    [
        *("copy_p", "stop_gradient", "optimization_barrier", "pvary", "pbroadcast", "sharding_constraint", "name"),
        *("layout_constraint", "reduced_vary_cast_p", "vary_unreduced_cast_p", "preduced", "random_wrap"),
        *("random_unwrap", "to_edtype", "from_edtype", "reshard", "device_put", "pin", "unpin", "tie", "freeze"),
        *("inspect_sharding", "custom_lin"),
    ]
)
"""Primitives whose result is their input; ``device_put`` is one where it stays in the same memory."""


def layout_of(
    name: str, shape: Sequence[int], strides: Sequence[int], offset: int, results: Sequence[Sequence[int]],
    arguments: Mapping[str, Any],
) -> list[Layout] | None:  # fmt: skip
    """Return the layout of each result of the primitive ``name`` if it is a view of its first input, else None."""
    if name in SAME and len(results) == 1:
        return [Layout(tuple(strides), offset)] if tuple(results[0]) == tuple(shape) else None
    if name in ("reshape", "squeeze", "expand_dims"):
        if arguments.get("dimensions") is not None and name == "reshape":
            return None  # a transposition comes first
        found = reshaped(tuple(shape), tuple(strides), tuple(results[0]))
        return None if found is None else [Layout(found, offset)]
    if name == "transpose":
        order = (*arguments["permutation"], *range(len(arguments["permutation"]), len(shape)))
        return [Layout(tuple(strides[i] for i in order), offset)]
    if name == "broadcast_in_dim":
        words = len(shape) - len(arguments["broadcast_dimensions"])  # of random keys, which JAX counts no dimension
        dims = (*arguments["broadcast_dimensions"], *range(len(results[0]) - words, len(results[0])))
        spread = [0] * len(results[0])
        for dim, size, stride in zip(dims, shape, strides, strict=True):
            spread[dim] = stride if size == results[0][dim] else 0
        return [Layout(tuple(spread), offset)]
    if name == "slice":
        begins = arguments["start_indices"]
        steps = (*(arguments.get("strides") or (1,) * len(begins)), *((1,) * (len(shape) - len(begins))))
        start = sum(begin * stride for begin, stride in zip(begins, strides, strict=False))
        start = 0 if 0 in results[0] else start
        return [Layout(tuple(a * b for a, b in zip(strides, steps, strict=True)), offset + start)]
    if name in ("split", "unstack"):
        return _parts(strides, offset, results, arguments["axis"], stacked=name == "unstack")
    return None


def _parts(
    strides: Sequence[int], offset: int, results: Sequence[Sequence[int]], axis: int, *, stacked: bool
) -> list[Layout]:
    found = []
    for shape in results:
        rest = tuple(stride for i, stride in enumerate(strides) if i != axis) if stacked else tuple(strides)
        found.append(Layout(rest, offset))
        offset += strides[axis] * (1 if stacked else shape[axis])
    return found
