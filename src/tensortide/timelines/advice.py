"""Storages that are most worth moving elsewhere or recomputing while they are idle.

Both are bounds for one storage at a time: links and arithmetic are shared, and a recomputation may need another storage
that was evicted too. Planners weigh that; these lists say where to look first.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from fractions import Fraction

import msgspec

from tensortide.graph.effects import blind_slots, draws_random, only_allocates
from tensortide.timelines.idle import Idleness
from tensortide.timing.links import Link

CHAIN = 16
"""Most ops that are recomputed for one storage."""


class Offload(msgspec.Struct, frozen=True):
    """A storage (or tensor) ``index`` that a link can take away in ``intervals`` of its idle intervals.

    ``idle_ns`` is the time of all its intervals, ``hideable_ns`` of those; ``transfer_ns`` one way once. ``at_peak``:
    one of those covers the op with most bytes alive.
    """

    index: int
    nbytes: int
    idle_ns: int
    hideable_ns: int
    intervals: int
    transfer_ns: int
    at_peak: bool

    @property
    def byte_ns(self) -> int:
        return self.nbytes * self.hideable_ns


class Recompute(msgspec.Struct, frozen=True):
    """A storage (or tensor) ``index`` that could be evicted when op ``start`` begins and recomputed before op ``end``
    by running ``ops`` once more, in ``cost_ns``: its longest idle interval, of ``idle_ns``.

    ``random`` are those of the ops that draw random numbers: they give the same values only from the generator state
    that they started from, which has to be saved when they run first.
    """

    index: int
    nbytes: int
    start: int
    end: int
    idle_ns: int
    ops: tuple[int, ...]
    random: tuple[int, ...]
    cost_ns: int
    at_peak: bool

    @property
    def byte_ns(self) -> int:
        return self.nbytes * self.idle_ns


def offloads(idle: Idleness, link: Link) -> list[Offload]:
    """All that ``link`` can take away for a while, by bytes times hideable time, most first."""
    found = []
    for _, group in itertools.groupby(idle.hidden(link), key=lambda one: one[0].index):
        pairs = list(group)
        life, hidden = pairs[0][0], [interval for _, interval in pairs]
        if life.nbytes:
            found.append(
                Offload(
                    index=life.index,
                    nbytes=life.nbytes,
                    idle_ns=sum(int(interval.time) for interval in life.intervals),
                    hideable_ns=sum(int(interval.time) for interval in hidden),
                    intervals=len(hidden),
                    transfer_ns=link.transfer_ns(life.nbytes),
                    at_peak=any(interval.covers(idle.peak_op) for interval in hidden),
                )
            )
    return sorted(found, key=lambda item: (-item.byte_ns, item.index))


def recomputations(idle: Idleness) -> list[Recompute]:
    """List what resident storages suffice to recompute, by bytes times idle time per nanosecond of recomputation.

    It takes the ops that wrote a storage before its longest interval, and in turn those that wrote what they read,
    where that is dead or overwritten by then. Storages for which these are more than ``CHAIN``, or take as long as the
    interval, are left out.
    """
    history, graph = _History(idle), idle.graph
    draws = [draws_random(call) for call in graph.calls]
    found = []
    for life in idle.lives:
        straight = [interval for interval in life.intervals if not interval.looped]
        if life.persistent or not straight or not life.nbytes:
            continue
        longest = max(straight, key=lambda interval: interval.time)
        ops = tuple(sorted(history.recomputation(life.index, longest.end)))
        cost, time = sum(idle.durations_ns[op] for op in ops), int(longest.time)
        if ops and cost < time:
            random = tuple(op for op in ops if draws[graph.ops[op].call])
            at_peak = longest.covers(idle.peak_op)
            found.append(
                Recompute(life.index, life.nbytes, longest.start, longest.end, time, ops, random, cost, at_peak)
            )
    return sorted(found, key=lambda item: (-Fraction(item.byte_ns, max(1, item.cost_ns)), item.index))


class _History:
    """Writes of the step by storage (or tensor): the writer and the time of each."""

    def __init__(self, idle: Idleness) -> None:
        self._idle = idle
        self._reads: list[set[int]] = []  # by op, what it must find as it was
        self._writers: defaultdict[int, list[int]] = defaultdict(list)
        graph = idle.graph
        keys = graph.index.owner if idle.mode == "storage" else range(len(graph.tensors))
        blind = [blind_slots(call) for call in graph.calls]
        shapes_only = [only_allocates(call) for call in graph.calls]
        for index, op in enumerate(graph.ops):
            seen = {slot: keys[tensor] for slot, tensor in enumerate(op.inputs) if slot not in blind[op.call]}
            self._reads.append(set() if shapes_only[op.call] else {*seen.values()})
            mutated = {seen[slot] for slot in graph.calls[op.call].mutated if slot in seen}
            made = {keys[tensor] for tensor in op.outputs} - {keys[tensor] for tensor in op.inputs}
            for key in mutated | made:  # changed or new: a view is neither
                self._writers[key].append(index)

    def recomputation(self, key: int, end: int) -> set[int]:
        """The ops to run once more just before op ``end`` to have what ``key`` holds then; empty if that cannot be, or
        takes more than ``CHAIN`` of them."""
        ops: set[int] = set()
        wanted = [(key, end)]
        while wanted:
            item, time = wanted.pop()
            writers = [op for op in self._writers[item] if op < time]
            if not writers or self._idle.role(self._idle.everywhere[item]).row.given:
                return set()
            for op in writers:
                if op not in ops:
                    ops.add(op)
                    wanted += [(read, op) for read in self._reads[op] if not self._is_intact(read, op, end)]
            if len(ops) > CHAIN:
                return set()
        return ops

    def _is_intact(self, key: int, time: int, end: int) -> bool:
        """Return whether the value of ``key`` before op ``time`` is resident, unchanged, just before op ``end``. (An
        evicted value is not: the op that recomputes it last writes it after its other readers.)"""
        life = self._idle.everywhere[key]
        return life.start < end < life.stop and not any(time <= op < end for op in self._writers[key])
