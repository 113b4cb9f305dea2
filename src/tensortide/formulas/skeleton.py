"""Skeleton of a capture: everything but sizes, which two captures must share to be compared op by op."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tensortide.graph.model import TENSOR, Call, Const, Graph, Value

__all__ = ["Difference", "difference", "integers", "replaced", "skeleton"]

Skeleton: TypeAlias = tuple[tuple[object, ...], ...]


def skeleton(graph: Graph) -> Skeleton:
    """The ops of ``graph`` without sizes: equal for captures that differ in sizes only."""
    calls = [(call.op, call.positional, call.mutated, _shape_of(call), call.returns) for call in graph.calls]
    modules = [module.path for module in graph.modules]
    modules.append("")
    tensors = graph.tensors
    kinds = [(tensor.storage, tensor.dtype, len(tensor.shape)) for tensor in tensors]
    ops = tuple(
        (
            calls[op.call],
            op.phase,
            modules[op.module],
            op.recompute,
            op.branch,
            tuple([kinds[t] for t in op.inputs]),
            tuple([kinds[t] for t in op.outputs]),
        )
        for op in graph.ops
    )
    storages = tuple((s.device, s.role, s.birth, s.death, s.name) for s in graph.storages)
    named = tuple((n.name, n.role, *kinds[n.tensor], n.trainable) for n in graph.named)
    return (*ops, storages, named)


def _shape_of(call: Call) -> object:
    return tuple((name, _without_numbers(value)) for name, value in call.arguments)


def _without_numbers(value: Value) -> object:
    if isinstance(value, tuple):
        return tuple(map(_without_numbers, value))
    if isinstance(value, bool) or value is None or value is TENSOR or isinstance(value, Const):
        return value
    return str if isinstance(value, str) else float


def integers(value: Value) -> Iterator[int]:
    """The integers in a call's argument, in order."""
    if isinstance(value, tuple):
        for item in value:
            yield from integers(item)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


def replaced(value: Value, numbers: Iterator[int]) -> Value:
    """``value`` with its integers replaced, in order."""
    if isinstance(value, tuple):
        return tuple(replaced(item, numbers) for item in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return next(numbers)
    return value


class Difference(str):
    """First difference of two skeletons, for people."""


def difference(a: Graph, b: Graph) -> Difference | None:
    """Return the first difference in structure of two captures, None if only their sizes differ."""
    left, right = skeleton(a), skeleton(b)
    if left == right:
        return None
    count = f"{len(a)} ops against {len(b)}"
    named = [[(graph.calls[op.call].op, graph.module_path(op.module)) for op in graph.ops] for graph in (a, b)]
    for index, (one, other) in enumerate(zip(*named, strict=False)):
        if one != other:
            return Difference(f"{count}; op {index} is {one[0]} in {one[1]} against {other[0]} in {other[1]}")
    if len(a) != len(b):
        return Difference(count)
    for index, one in enumerate(named[0]):
        if left[index] != right[index]:
            return Difference(f"{count}; op {index}, {one[0]} in {one[1]}, differs in its arguments")
    return Difference(f"{count}, the same; but memory is allocated or released elsewhere")
