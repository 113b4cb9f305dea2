"""Reservations of copy engines and of room on tiers, over the time of a step that gives way where it must.

The axis has a slot for each place of the sequence; a stall shifts all slots from one place on, and all transfers that
start in or after them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from tensortide.plans.instance import Instance
from tensortide.plans.transfers.residences import Ints

_START = attrgetter("start")


class Transfer:
    """A transfer on an engine, which shifts with the axis."""

    __slots__ = ("start", "time_ns")

    def __init__(self, start: int, time_ns: int) -> None:
        self.start, self.time_ns = start, time_ns

    @property
    def end(self) -> int:
        return self.start + self.time_ns


class Engine:
    """Transfers of a copy engine, sorted by start, none at the same time as another."""

    def __init__(self) -> None:
        self.busy: list[Transfer] = []

    def earliest(self, since: int, time_ns: int, before: int | None = None) -> int:
        """The earliest start from ``since`` on of a transfer of that length; those that start at ``before`` or later
        give way."""
        at = since
        for other in self.busy[max(0, bisect_left(self.busy, since, key=_START) - 1) :]:
            if (before is not None and other.start >= before) or at + time_ns <= other.start:
                break
            at = max(at, other.end)
        return at

    def latest(self, since: int, until: int, time_ns: int) -> int | None:
        """The latest start of a transfer of that length that lies between ``since`` and ``until``; None if none."""
        at = until - time_ns
        for k in range(bisect_right(self.busy, until, key=_START) - 1, -1, -1):
            other = self.busy[k]
            if at < since or other.end <= at:
                break
            if other.start < at + time_ns:
                at = other.start - time_ns
        return at if at >= since else None

    def reserve(self, transfer: Transfer) -> None:
        insort(self.busy, transfer, key=_START)

    def cancel(self, transfer: Transfer) -> None:
        self.busy.remove(transfer)

    def shift(self, since: int, by: int) -> None:
        for transfer in self.busy[bisect_left(self.busy, since, key=_START) :]:
            transfer.start += by


class Ledger:
    """The axis, ``starts`` and ``ends`` of every place, the engines of each link, and the bytes on each tier."""

    def __init__(self, instance: Instance, sequence: Sequence[int], starts: Sequence[int] | None = None) -> None:
        durations = np.array([instance.ops[op].ns for op in sequence], np.int64)
        sums = np.concatenate(([0], np.cumsum(durations)))
        self.starts: Ints = np.array(sums if starts is None else starts, np.int64)
        self.ends: Ints = self.starts[:-1] + durations
        self.count = len(sequence)
        self.out = {link.name: Engine() for link in instance.links}
        self.back = {link.name: Engine() for link in instance.links}
        self.capacity = {link.name: link.capacity_bytes for link in instance.links}
        self.tier = {link.name: np.zeros(self.count + 1, np.int64) for link in instance.links}

    def begin(self, place: int) -> int:
        """When the op at ``place`` starts; the end of the step for the place behind the last one."""
        return int(self.starts[place])

    def end(self, place: int) -> int:
        """When the op at ``place`` ends; 0 before the first."""
        return int(self.ends[place]) if place >= 0 else 0

    def place_from(self, time_ns: int) -> int:
        """The first place that starts at ``time_ns`` or later."""
        return int(np.searchsorted(self.starts[:-1], time_ns, "left"))

    def place_until(self, time_ns: int) -> int:
        """The place behind the last one that ends by ``time_ns``."""
        return int(np.searchsorted(self.ends, time_ns, "right"))

    def place_at(self, time_ns: int) -> int:
        """The last place that has begun by ``time_ns``; -1 before the first."""
        return int(np.searchsorted(self.starts[:-1], time_ns, "right")) - 1

    def has_room(self, link: str, nbytes: int, first: int, last: int) -> bool:
        """Whether the tier has room for ``nbytes`` from the place ``first`` to the place ``last``."""
        capacity = self.capacity[link]
        return capacity is None or int(self.tier[link][first : last + 1].max(initial=0)) + nbytes <= capacity

    def hold(self, link: str, nbytes: int, first: int, last: int) -> None:
        """Take ``nbytes`` of the tier, or give them back where negative."""
        self.tier[link][first : last + 1] += nbytes

    def stall(self, place: int, by: int) -> None:
        """Let the op at ``place`` and all that follows start later."""
        at = self.begin(place)
        self.starts[place:] += by
        self.ends[place:] += by
        for engine in (*self.out.values(), *self.back.values()):
            engine.shift(at, by)
