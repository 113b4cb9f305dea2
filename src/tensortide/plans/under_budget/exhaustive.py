"""The optimum of small steps: every sequence within the budget, searched in order of the time that it adds at least.

A state is what has run for the first time and which contents are resident. Contents are evicted only where an op lacks
room for them, or makes their storage anew; and as few as will do: whatever is resident cannot hurt until then. What is
absent and still needed has to be restored, so its makers count from the moment at which it is evicted.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tensortide.plans.instance import BEFORE, Instance
from tensortide.search_limit import Look, no_look

MOST_OPS = 60
"""Longest step that is searched."""
WORK = 2_000_000
"""States that are looked at, at most."""
_CHOICES = 20_000
"""Sets of contents to evict that are tried before one op, at most; more leave the search without a proof."""
_LOOK = 1_000
"""States between two looks at the limit."""

State: TypeAlias = tuple[int, int]
"""Ops that have run (a bit each), contents that are resident (a bit each)."""


class Optimum(NamedTuple):
    """``sequence``: the fastest one; None if none was found. Every plan takes at least ``bound_ns``; None: there is
    none at all. ``states``: how many were looked at."""

    sequence: list[int] | None
    bound_ns: int | None
    states: int


def optimum(
    instance: Instance,
    budget_bytes: int,
    *,
    free: bool,
    below_ns: int | None = None,
    work: int = WORK,
    look: Look = no_look,
) -> Optimum:
    """Search ``instance``, whose storages all stay on the device, for a plan that takes less than ``below_ns``.

    ``free``: ops may run first in any order. ``work``: states that are looked at, at most. ``look`` is called now and
    then; it may raise.
    """
    return _Search(instance, budget_bytes, free).run(below_ns, work, look)


class _Op(NamedTuple):
    needs: int
    """Contents that it must find, when it runs again."""
    first_needs: int
    gone: int
    """Contents that it overwrites, and those that it writes instead."""
    written: int
    blind_gone: int
    """The same of what only its first run updates."""
    blind_written: int
    makes: tuple[tuple[int, int], ...]
    """Storages that it allocates, with the contents that it makes."""
    room: int
    touched: int
    """Contents of any storage that it touches."""


@dataclass
class _Search:
    instance: Instance
    budget: int
    free: bool
    is_complete: bool = True
    values: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ops, storages = self.instance.ops, self.instance.storages
        self.nbytes: list[int] = []
        self.of: list[int] = [0] * len(storages)
        self.by: list[int] = []
        self.pinned = 0
        for storage, record in enumerate(storages):
            if record.given:
                self._value(storage, BEFORE)
        for number, op in enumerate(ops):
            for storage in (*op.makes, *op.writes):
                self._value(storage, number)
        *states, final = self.instance.states
        self.ops = [self._op(number, states[number]) for number in range(len(ops))]
        self.final = sum(1 << self.values[s, final[s]] for s, record in enumerate(storages) if record.stays)
        self._useful: dict[int, int] = {}
        self._ahead: dict[int, int] = {}

    def _value(self, storage: int, state: int) -> None:
        number = self.values[storage, state] = len(self.nbytes)
        self.nbytes.append(self.instance.storages[storage].nbytes)
        self.by.append(state)
        self.of[storage] |= 1 << number
        if self.instance.storages[storage].pinned:
            self.pinned |= 1 << number

    def _op(self, number: int, states: dict[int, int]) -> _Op:
        op, values = self.instance.ops[number], self.values
        again = sum(1 << values[s, state] for s, state in states.items() if s not in op.blind)
        written, blind = [s for s in op.writes if s not in op.blind], {*op.blind} & {*op.writes}
        return _Op(
            again,
            sum(1 << values[s, state] for s, state in states.items()),
            sum(1 << values[s, states[s]] for s in written),
            sum(1 << values[s, number] for s in written),
            sum(1 << values[s, states[s]] for s in blind),
            sum(1 << values[s, number] for s in blind),
            tuple((s, 1 << values[s, number]) for s in op.makes),
            sum(self.instance.storages[s].nbytes for s in op.makes) + op.workspace,
            sum(self.of[s] for s in op.touches),
        )

    def run(self, below_ns: int | None, work: int, look: Look) -> Optimum:
        base = self.instance.base_ns
        limit = 1 << 62 if below_ns is None else below_ns - base
        start = (0, sum(1 << self.values[s, BEFORE] for s, record in enumerate(self.instance.storages) if record.given))
        everything = (1 << len(self.ops)) - 1
        came: dict[State, tuple[State | None, int]] = {start: (None, -1)}
        cost = {start: 0}
        settled: dict[int, list[tuple[int, int]]] = {}
        queue: list[tuple[int, int, int, int, int]] = [(0, 0, 0, *start)]
        numbers, states = itertools.count(1), 0
        while queue:
            least, _, extra, done, resident = heapq.heappop(queue)
            state = (done, resident)
            others = settled.setdefault(done, [])
            if cost[state] < extra or any(resident & ~other == 0 and spent <= extra for other, spent in others):
                continue
            if done == everything and resident & self.final == self.final:
                return Optimum(self._path(came, state), base + extra if self.is_complete else base, states)
            if states > work:
                return Optimum(None, base + least if self.is_complete else base, states)
            others.append((resident, extra))
            for op, after, time in self._moves(done, resident):
                states += 1
                if states % _LOOK == 0:
                    look()
                spent = extra + time
                if cost.get(after, limit) <= spent or (to_come := self._to_come(*after)) is None:
                    continue
                if spent + to_come < limit:
                    cost[after], came[after] = spent, (state, op)
                    left = len(self.ops) - after[0].bit_count()
                    heapq.heappush(queue, (spent + to_come, left << 32 | next(numbers), spent, *after))
        return Optimum(None, below_ns if self.is_complete else base, states)

    def _to_come(self, done: int, resident: int) -> int | None:
        """The least time of the ops that have to run again: those that restore what is absent and still needed, and
        what these need in turn; None if nothing can restore that."""
        missing, again, total = self._needed(done) & ~resident, 0, 0
        while missing:
            value = (missing & -missing).bit_length() - 1
            missing &= missing - 1
            op = self.by[value]
            if op >= 0 and not done >> op & 1:
                continue  # its first run is yet to come
            if op < 0 or self.instance.ops[op].once:
                return None
            if not again >> op & 1:
                again |= 1 << op
                total += self.instance.ops[op].ns
                missing |= self.ops[op].needs & ~resident
        return total

    def _needed(self, done: int) -> int:
        """The contents that the first runs yet to come touch, and those that stay."""
        if done not in self._ahead:
            left = (op.first_needs for number, op in enumerate(self.ops) if not done >> number & 1)
            self._ahead[done] = functools.reduce(operator.or_, left, self.final)
        return self._ahead[done]

    def _path(self, came: dict[State, tuple[State | None, int]], state: State) -> list[int]:
        found = []
        before, op = came[state]
        while before is not None:
            found.append(op)
            before, op = came[before]
        return found[::-1]

    def _moves(self, done: int, resident: int) -> Iterator[tuple[int, State, int]]:
        """The ops that can run, each with the state behind it and the time that it adds."""
        for number, op in enumerate(self.ops):
            record = self.instance.ops[number]
            again = done >> number & 1
            if again:
                if record.once or op.needs & ~resident:
                    continue
            elif op.first_needs & ~resident or not self._may_begin(number, done):
                continue
            after = done | 1 << number
            useful = self.useful(after)
            for left in self._left(op, resident):
                behind = left & ~op.gone | op.written
                if not again:
                    behind = behind & ~op.blind_gone | op.blind_written
                for storage, value in op.makes:
                    if not left & self.of[storage]:
                        behind |= value
                behind &= useful
                if (after, behind) != (done, resident & useful):
                    yield number, (after, behind), record.ns if again else 0

    def _may_begin(self, number: int, done: int) -> bool:
        if not self.free:
            return done == (1 << number) - 1
        return all(done >> other & 1 for other in self.instance.ops[number].after)

    def _left(self, op: _Op, resident: int) -> Iterator[int]:
        """Return what can be left resident when ``op`` begins: as much as there is room for; or less, where it makes a
        storage of which other contents are resident."""
        stale = [resident & self.of[s] for s, value in op.makes if resident & self.of[s] & ~value]
        kept = op.needs | self.pinned
        for count in range(len(stale) + 1):
            for chosen in itertools.combinations(stale, count):
                less = resident & ~sum(chosen)
                if sum(chosen) & kept == 0:
                    yield from self._fitting(less, kept, op.room)

    def _fitting(self, resident: int, kept: int, room: int) -> Iterator[int]:
        over = self._bytes(resident) + room - self.budget
        if over <= 0:
            yield resident
            return
        free = [v for v in range(len(self.nbytes)) if resident >> v & 1 and not kept >> v & 1 and self.nbytes[v]]
        free.sort(key=lambda v: -self.nbytes[v])
        for tried, gone in enumerate(self._covers(free, over, 0)):
            if tried == _CHOICES:
                self.is_complete = False
                return
            yield resident & ~gone

    def _covers(self, free: list[int], over: int, begin: int) -> Iterator[int]:
        """The sets of contents of more than ``over`` bytes of which none can be spared."""
        if over <= 0:
            yield 0
            return
        if sum(self.nbytes[v] for v in free[begin:]) < over:
            return
        for at in range(begin, len(free)):
            # larger ones first, so the one chosen last is the smallest: the set is minimal if it is needed
            size = self.nbytes[free[at]]
            for rest in self._covers(free, over - size, at + 1):
                smallest = min((self.nbytes[v] for v in free if rest >> v & 1), default=size)
                if rest == 0 or self._bytes(rest) + size - smallest < over:
                    yield rest | 1 << free[at]

    def _bytes(self, values: int) -> int:
        total = 0
        while values:
            low = values & -values
            total += self.nbytes[low.bit_length() - 1]
            values ^= low
        return total

    def useful(self, done: int) -> int:
        """The contents that a later op may need, when those in ``done`` have run."""
        if done not in self._useful:
            found = self.final
            for number, op in enumerate(self.ops):
                if not done >> number & 1:
                    found |= op.first_needs
            grown = True
            while grown:
                grown = False
                for number, op in enumerate(self.ops):
                    if self.instance.ops[number].once or not done >> number & 1 or op.needs & ~found == 0:
                        continue
                    if (op.written | sum(value for _, value in op.makes)) & found:
                        found |= op.needs
                        grown = True
            self._useful[done] = found | self.pinned
        return self._useful[done]
