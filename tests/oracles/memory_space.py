"""Room in one place of memory, and what the oracle of plans keeps of a storage there, of its copies and of waits."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from tensortide.plans.events.played import NOTHING, Cause
from tensortide.plans.instance import DEVICE


class MemorySpace:
    """The device or a tier. ``level``: bytes held at the time of the last request; ``capacity``: None if unlimited.

    A release is known by its time, and takes effect when a request at that time or later asks for room: at one instant,
    releases happen before allocations. ``changes`` are all of them: time, bytes, storage, number of the step.
    """

    __slots__ = ("_releases", "capacity", "changes", "level", "name", "peak", "released_by")

    def __init__(self, name: str, capacity: int | None, level: int) -> None:
        self.name, self.capacity, self.level, self.peak = name, capacity, level, level
        self.changes: list[tuple[int, int, int, int]] = []
        self.released_by = (NOTHING, NOTHING)
        """Storage whose release made room for the last request that waited, and the step that it waited for."""
        self._releases: list[tuple[int, int, int, int]] = []

    def room(self, nbytes: int, earliest_ns: int) -> int | None:
        """The earliest time from ``earliest_ns`` on at which there is room for ``nbytes``; None if no release that is
        known makes room. Takes nothing."""
        at, releases = earliest_ns, self._releases
        most = None if self.capacity is None else self.capacity - nbytes
        while releases:
            when, freed, released, by = releases[0]
            if when > at:
                if most is None or self.level <= most:
                    break
                at, self.released_by = when, (released, by)
            self.level -= freed
            heappop(releases)
        return at if most is None or self.level <= most else None

    def settle(self, at_ns: int) -> None:
        """Bring ``level`` to what is held at ``at_ns``, of which no later request is earlier."""
        while self._releases and self._releases[0][0] <= at_ns:
            self.level -= heappop(self._releases)[1]

    def hold(self, nbytes: int, at_ns: int, storage: int, step: int) -> None:
        """Take ``nbytes``, for which there is room."""
        if nbytes:
            self.level += nbytes
            self.peak = max(self.peak, self.level)
            self.changes.append((at_ns, nbytes, storage, step))

    def free(self, nbytes: int, when_ns: int, storage: int, step: int, by: int) -> None:
        """Release ``nbytes`` at ``when_ns``, when the step ``by`` ends that touches them last."""
        if nbytes:
            heappush(self._releases, (when_ns, nbytes, storage, by))
            self.changes.append((when_ns, -nbytes, storage, step))


class Residence:
    """A storage on the device, from an op or a fetch until it is evicted.

    ``state`` is the op that last wrote it. ``ready``: when that is complete, and the step that does it. ``until``: when
    the last step ends that touches it; ``copied``: when the last copy out of it does.
    """

    __slots__ = ("copied_by", "copied_ns", "ready_by", "ready_ns", "state", "until_by", "until_ns")

    def __init__(self, ready_ns: int, state: int, by: int) -> None:
        self.ready_ns = self.until_ns = ready_ns
        self.ready_by = self.until_by = by
        self.copied_ns, self.copied_by = 0, NOTHING
        self.state = state

    def touch(self, end_ns: int, by: int) -> None:
        if end_ns > self.until_ns:
            self.until_ns, self.until_by = end_ns, by


class TierCopy:
    """A copy of a storage on a tier: its state, when it is complete, when the last transfer of it ends."""

    __slots__ = ("by", "ready_ns", "state", "until_ns")

    def __init__(self, state: int) -> None:
        self.ready_ns = self.until_ns = 0
        self.by, self.state = NOTHING, state


class Wait(NamedTuple):
    """A reason to wait: its kind, the step that has to end, its storage, and the place where it concerns room."""

    cause: Cause
    by: int
    storage: int
    place: str = DEVICE
