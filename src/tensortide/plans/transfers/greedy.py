"""Offload at any scale: what idles long and large moves first, where engines are free; ops wait only where they must.

Every idle interval whose transfers an engine can hide is a candidate. The one that takes most bytes times time out of
what exceeds the budget, per time of the engines, is chosen and reserved, until nothing exceeds it. Where no candidate
is left, an op waits: for the transfers that stall the step least per byte. What turns out to be needless is undone. The
axis then gives a list of steps, and the event rules say how long it takes: no longer than the axis.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from heapq import heapify, heappop, heapreplace

import numpy as np

from tensortide.plans.instance import BEFORE, Instance
from tensortide.plans.model import Compute, Copy, Fetch
from tensortide.plans.transfers.ledger import Ledger
from tensortide.plans.transfers.options import Option, Options
from tensortide.plans.transfers.residences import Residences, Token


class Greedy:
    """``chosen``: an option for each idle interval that moves. ``weights`` raise or lower the rank of some."""

    def __init__(
        self,
        instance: Instance,
        found: Residences,
        budget_bytes: int,
        ledger: Ledger,
        weights: Mapping[int, float] | None = None,
    ) -> None:
        self.found, self.ledger, self.idle = found, ledger, found.idle
        self.options = Options(instance, found.idle, ledger)
        self.size = self.options.size
        self.excess = found.level - budget_bytes
        self.weights = weights or {}
        self.chosen: dict[int, Option] = {}
        self.users: Counter[tuple[int, int, str]] = Counter()
        """Options that rely on a copy which another one makes, or on a home, by storage, state and link."""

    def run(self, deadline: float = float("inf")) -> bool:
        """Choose until nothing exceeds the budget; False if something still does whatever moves, or at ``deadline``."""
        if self._over():
            self._hidden()
        limit = 2 * len(self.idle) + 50
        while self._over():
            limit -= 1
            if not limit or time.monotonic() > deadline or not self._forced(int(self.excess.argmax())):
                return False
        self._prune()
        return True

    @property
    def homes(self) -> dict[int, str]:
        """Tiers that are the home of a persistent storage."""
        return self.options.homes

    def tokens(self) -> list[Token]:
        """Ops and transfers in an order that fits the budget: between two ops the copies stand before the fetches."""
        ledger = self.ledger
        listed: list[tuple[float, int, Token]] = []
        listed += [(float(place), 0, Compute(op)) for place, op in enumerate(self.found.sequence)]
        copied: set[tuple[int, int, str]] = set()
        for option in sorted(self.chosen.values(), key=lambda x: x.out.start if x.out else 0):
            idle = self.idle[option.idle]
            key = idle.storage, idle.state, option.link
            if option.out is not None and key not in copied:
                copied.add(key)
                place = ledger.place_at(option.out.start)
                listed.append((max(place, idle.since) + 0.3, option.out.start, Copy(idle.storage, option.link)))
            if option.back is not None:
                place = min(ledger.place_until(option.back.start), idle.after)
                listed.append((place - 0.3, option.back.start, Fetch(idle.storage, option.link)))
        listed.sort(key=lambda x: x[:2])
        return [token for _, _, token in listed]

    def _over(self) -> bool:
        return bool(self.excess.max(initial=0) > 0)

    def _hidden(self) -> None:
        """Choose what stalls nothing. Gains only fall, so one that leads when it is computed anew is the best."""
        queue = [(-score, number) for number in range(len(self.idle)) if (score := self._best(number)[0]) > 0]
        heapify(queue)
        while queue and self._over():
            number = queue[0][1]
            score, option = self._best(number)
            if option is None:
                heappop(queue)
            elif len(queue) > 1 and score < -min(queue[1:3])[0]:
                heapreplace(queue, (-score, number))
            else:
                heappop(queue)
                self._take(option)

    def _best(self, number: int) -> tuple[float, Option | None]:
        best: tuple[float, Option | None] = (0.0, None)
        for option in self.options.of(number):
            score = self._gain(option) * self.weights.get(number, 1.0) / (option.busy_ns + 1)
            if score > best[0]:
                best = score, option
        return best

    def _gain(self, option: Option) -> float:
        """Bytes times time by which the option lowers what exceeds the budget."""
        total, starts = 0.0, self.ledger.starts
        for first, last in option.away:
            over = np.minimum(np.maximum(self.excess[first:last], 0), self.size[option.idle])
            total += float(over @ (starts[first + 1 : last + 1] - starts[first:last] + 1))
        return total

    def _forced(self, at: int) -> bool:
        """Take something away at the place ``at``: what stalls the step least per byte."""
        best: tuple[float, float, Option] | None = None
        over = int(self.excess[at])
        for number, idle in enumerate(self.idle):
            inside = (at < idle.after or at > idle.before) if idle.wraps else idle.before < at < idle.after
            old = self.chosen.get(number)
            if not inside or (old is not None and (old.covers(at) or self._is_used(old))):
                continue
            if old is not None:
                self._undo(old)
            for option in self.options.of(number, at):
                key = (option.stall_ns + 1) / min(self.size[number], over), -self._gain(option)
                if best is None or key < best[:2]:
                    best = (*key, option)
            if old is not None:
                self._take(old)
        if best is None:
            return False
        if best[2].idle in self.chosen:
            self._undo(self.chosen[best[2].idle])
        self._take(best[2])
        return True

    def _prune(self) -> None:
        """Undo what is not needed, the least first."""
        for option in sorted(self.chosen.values(), key=lambda x: self.size[x.idle] * sum(b - a for a, b in x.away)):
            size = self.size[option.idle]
            needed = any(self.excess[first:last].max(initial=-size) + size > 0 for first, last in option.away)
            if not needed and not self._is_used(option):
                self._undo(option)

    def _is_used(self, option: Option) -> bool:
        idle = self.idle[option.idle]
        state = BEFORE if idle.wraps else idle.state
        return self.users[idle.storage, state, option.link] > 0 and (option.out is not None or idle.wraps)

    def _relies(self, option: Option) -> bool:
        return option.out is None and not self.idle[option.idle].wraps

    def _take(self, option: Option) -> None:
        self._stall(option)
        ledger, size, idle = self.ledger, self.size[option.idle], self.idle[option.idle]
        key = idle.storage, idle.state, option.link
        if option.out is not None:
            ledger.out[option.link].reserve(option.out)
            self.options.copies.setdefault(key, []).append(option.out)
        if option.back is not None:
            ledger.back[option.link].reserve(option.back)
        if self._relies(option):
            self.users[key] += 1
        if idle.wraps:
            self.homes[idle.storage] = option.link
        self.options.edges[idle.storage] += self.options.is_edge(idle)
        self.options.moved.setdefault(idle.storage, Counter())[option.link] += 1
        ledger.hold(option.link, size, *option.held)
        for first, last in option.away:
            self.excess[first:last] -= size
        self.chosen[option.idle] = option._replace(stall_ns=0, wait_at=-1)

    def _stall(self, option: Option) -> None:
        """Make the ops wait that the option makes wait; of its own transfers those shift that do not cause it."""
        if not option.stall_ns:
            return
        idle, ledger, out, back = self.idle[option.idle], self.ledger, option.out, option.back
        free = max(0 if out is None else out.end, ledger.end(idle.before))
        waits = [(option.wait_at, back)] if option.wait_at >= 0 else []
        if back is not None:
            waits.append((idle.after, out))
        if idle.wraps:
            waits.append((ledger.count, None))
        for place, other in sorted(waits, key=lambda x: x[0]):
            begin = ledger.begin(place)
            if place == option.wait_at or (place == ledger.count and idle.wraps):
                free = max(0 if out is None else out.end, ledger.end(idle.before))
                by = free - begin
            else:
                by = (back.end if back is not None else 0) - begin
            if by > 0:
                if other is not None and other.start >= begin:
                    other.start += by
                ledger.stall(place, by)

    def _undo(self, option: Option) -> None:
        ledger, size, idle = self.ledger, self.size[option.idle], self.idle[option.idle]
        key = idle.storage, idle.state, option.link
        if option.out is not None:
            ledger.out[option.link].cancel(option.out)
            self.options.copies[key].remove(option.out)
        if option.back is not None:
            ledger.back[option.link].cancel(option.back)
        if self._relies(option):
            self.users[key] -= 1
        if idle.wraps:
            del self.homes[idle.storage]
        self.options.edges[idle.storage] -= self.options.is_edge(idle)
        self.options.moved[idle.storage][option.link] -= 1
        ledger.hold(option.link, -size, *option.held)
        for first, last in option.away:
            self.excess[first:last] += size
        del self.chosen[option.idle]
