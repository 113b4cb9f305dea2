"""Places that hold storages: how full each is at a time, given the releases that were issued already."""

from __future__ import annotations

from heapq import heappop, heappush

NOTHING = -1
"""Stands for a storage where bytes are workspace, and for a step where there was none."""


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
