"""A step in another order: within a window of its ops, what some of them need comes first, then they, then the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from tensortide.graph.model import Graph


class Together(NamedTuple):
    """The Graph in another order, and for the old index of each op its new one."""

    graph: Graph
    places: tuple[int, ...]


def brought_together(graph: Graph, ops: Collection[int]) -> Together | int:
    """``graph`` with ``ops`` one after the other, in order; others between the first and the last of them come before
    if they need them, and after if not. What is released there is released after its last use.

    Returns the index of an op that stands in the way, as it would have to come both before and after.
    """
    first, last = min(ops), max(ops)
    depends = _dependencies(graph, range(first, last + 1))
    needed = set(ops)
    for index in range(last, first - 1, -1):
        if index in needed:
            needed |= depends[index]
    after = set(ops)
    for index in range(first, last + 1):
        if not depends[index].isdisjoint(after):
            after.add(index)
    crossed = (needed & after) - set(ops)
    if crossed:
        return min(crossed)
    before = sorted(needed - set(ops))
    rest = [index for index in range(first, last + 1) if index not in needed]
    order = [*range(first), *before, *sorted(ops), *rest, *range(last + 1, len(graph.ops))]
    place = {old: new for new, old in enumerate(order)}
    return Together(_reordered(graph, order), tuple(place[index] for index in range(len(order))))


def _dependencies(graph: Graph, window: Iterable[int]) -> dict[int, set[int]]:
    """The ops of a window that each of them has to follow: which wrote what it reads or writes, or read what it
    writes."""
    index = graph.index
    wrote: dict[tuple[bool, int], int] = {}
    read: dict[tuple[bool, int], set[int]] = {}
    found: dict[int, set[int]] = {}
    for i in window:
        op = graph.ops[i]
        reads = {(True, s) for s in index.reads[i]} | {(False, t) for t in op.inputs}
        made = {(False, t) for t in op.outputs if t not in op.inputs}
        writes = {(True, s) for s in (*index.writes[i], *index.allocated[i])} | made
        before = {wrote[key] for key in reads | writes if key in wrote}
        for key in writes:
            before |= read.pop(key, set())
            wrote[key] = i
        for key in reads:
            read.setdefault(key, set()).add(i)
        found[i] = before - {i}
    return found


def _reordered(graph: Graph, order: list[int]) -> Graph:
    """``graph`` with its ops in ``order``, a permutation; storages are released where they were, or after their last
    use where ops have moved."""
    place = {old: new for new, old in enumerate(order)}
    ops = tuple(graph.ops[index] for index in order)
    owner = graph.index.owner
    last = {owner[t]: i for i, op in enumerate(ops) for t in (*op.inputs, *op.outputs)}
    moved = [old for old, new in place.items() if old != new]
    within = range(min(moved), max(moved) + 2) if moved else range(0)
    storages = []
    for number, storage in enumerate(graph.storages):
        birth = None if storage.birth is None else place.get(storage.birth, storage.birth)
        death = storage.death
        if death is not None and (death in within or death <= last.get(number, -1)):
            death = max(last.get(number, death - 1), -1 if birth is None else birth) + 1
        storages.append(replace(storage, birth=birth, death=death))
    return replace(graph, ops=ops, storages=tuple(storages), composites=None)
