"""Works of ops in the sequence of their step: what lies between an op and the last one like it, and new memory.

On a CPU both cost time. What ops move displaces the program's own code and data from the caches, which the next op of
the same kind has to read again: a view after a copy of 100 MB takes ten microseconds and more, one of a recurrent
layer's many a fraction of one. And results of ``LARGE`` bytes and more are new pages, which the operating system clears
as they are first written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tensortide.graph.model import Graph
from tensortide.timing.work import Work

LARGE = 32 << 20
"""Bytes from which on C libraries (glibc: the most that its threshold grows to) take each allocation from the operating
system, and give it back when it is freed."""


def in_sequence(graph: Graph, works: Sequence[Work], index: Sequence[int]) -> tuple[list[Work], list[int]]:
    """The distinct Works of ``graph`` with ``after_bytes`` and ``fresh_bytes``, and the place of each op's among them.

    ``works`` and ``index`` are those of the ops alone (``families.works``). The step is one of many: what ran before
    its first op is its last.
    """
    fresh = Counter[int]()
    for storage in graph.storages:
        if storage.birth is not None and storage.nbytes >= LARGE:
            fresh[storage.birth] += int(storage.nbytes)
    names = [graph.calls[op.call].op for op in graph.ops]
    places: dict[tuple[int, int, int], int] = {}
    found: list[Work] = []
    order: list[int] = []
    for op, (row, after) in enumerate(zip(index, reuse(names, [works[row].nbytes for row in index]), strict=True)):
        key = (row, after, fresh[op])
        place = places.get(key)
        if place is None:
            place = places[key] = len(found)
            found.append(works[row]._replace(after_bytes=after, fresh_bytes=fresh[op]))
        order.append(place)
    return found, order


def reuse(names: Sequence[str], nbytes: Sequence[int]) -> list[int]:
    """Bytes that ops moved since the last op of the same name ended, as powers of two, so that like ops stay few."""
    moved, last = 0, dict[str, int]()
    for name, size in zip(names, nbytes, strict=True):  # the step before
        moved += size
        last[name] = moved
    found = []
    for name, size in zip(names, nbytes, strict=True):
        between = moved - last[name]
        found.append(1 << (between.bit_length() - 1) if between else 0)
        moved += size
        last[name] = moved
    return found
