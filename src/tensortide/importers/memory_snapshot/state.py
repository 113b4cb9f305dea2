"""The allocator at one moment of a recording: what it had from the device, what of it was free, and in which pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tensortide.importers.memory_snapshot.graph import play
from tensortide.importers.memory_snapshot.records import ALLOCATES, RELEASES, Event, Snapshot

ROUNDING = 512
"""Sizes of blocks are multiples of it."""


class State(NamedTuple):
    """Bytes of one device's allocator while an op of the recording runs, and the ``event`` that the op is.

    ``reserved`` is what it had from the device; of that, ``allocated`` are the blocks in use, in multiples of 512
    bytes, and ``gaps`` the sizes of the free pieces between them, largest first.
    """

    event: Event
    reserved: int
    allocated: int
    gaps: tuple[int, ...]

    @property
    def free(self) -> int:
        """Bytes that are reserved and not in use."""
        return self.reserved - self.allocated

    @property
    def largest(self) -> int:
        """The largest free piece."""
        return self.gaps[0] if self.gaps else 0

    @property
    def fragmentation(self) -> float:
        """Share of the free bytes that the largest piece does not have."""
        return 1 - self.largest / self.free if self.free > 0 else 0.0


def peak_reserved(snapshot: Snapshot, device: int) -> int:
    """Most bytes that the allocator had from the device during the recording."""
    now = most = sum(segment.size for segment in snapshot.segments if segment.device == device)
    for event in reversed(snapshot.events):
        if event.device == device:
            now += _before(event)
            most = max(most, now)
    return most


def _before(event: Event) -> int:
    """Bytes that the device had less, or more, before the event."""
    return -event.nbytes if event.action in ALLOCATES else event.nbytes if event.action in RELEASES else 0


def state_at(snapshot: Snapshot, op: int) -> State:
    """Return the state of the allocator that op ``op`` of the recording's Graph asked."""
    recorded = play(snapshot)
    event = recorded.ops[op]
    later = snapshot.events[snapshot.events.index(event) + 1 :]
    segments = dict(_segments(snapshot, event.device, later))
    blocks = sorted(
        (life.address, -(-life.nbytes // ROUNDING) * ROUNDING)
        for life in recorded.lives
        if life.device == event.device
        and (life.birth is None or life.birth <= op)
        and (life.death is None or life.death > op)
    )
    gaps = sorted(_gaps(segments, blocks), reverse=True)
    return State(event, sum(segments.values()), sum(size for _, size in blocks), tuple(gaps))


def _segments(snapshot: Snapshot, device: int, later: tuple[Event, ...]) -> Iterator[tuple[int, int]]:
    """Addresses and sizes of the device's segments before the events ``later``, which end the recording."""
    now = {segment.address: segment.size for segment in snapshot.segments if segment.device == device}
    for event in reversed(later):
        if event.device != device:
            continue
        if event.action in RELEASES:
            now[event.address] = event.nbytes
        elif event.action in ALLOCATES:
            holder = next((start for start, size in now.items() if start <= event.address < start + size), None)
            if holder is not None:  # of an expandable segment the mapped end goes
                now[holder] -= event.nbytes
                if now[holder] <= 0:
                    del now[holder]
    yield from now.items()


def _gaps(segments: dict[int, int], blocks: list[tuple[int, int]]) -> Iterator[int]:
    """Yield the sizes of the free pieces; ``blocks`` are in order of their addresses."""
    ends = [(start, start + size) for start, size in sorted(segments.items())]
    at = 0
    for start, end in ends:
        while at < len(blocks) and blocks[at][0] < start:
            at += 1
        free = start
        while at < len(blocks) and blocks[at][0] < end:
            if blocks[at][0] > free:
                yield blocks[at][0] - free
            free = max(free, blocks[at][0] + blocks[at][1])
            at += 1
        if end > free:
            yield end - free
