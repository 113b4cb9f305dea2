"""The allocator at one moment of a recording: what it had from the device, what of it was free, and in which pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, NamedTuple

from tensortide.importers.memory_snapshot.graph import play
from tensortide.importers.memory_snapshot.records import ALLOCATES, RELEASES, Event, Snapshot
from tensortide.shown import Show

ROUNDING = 512
"""Sizes of blocks are multiples of it."""


class State(NamedTuple):
    """Bytes of one device's allocator while an op of the recording runs, and the ``event`` that the op is.

    ``reserved_bytes`` is what it had from the device (at most ``peak_reserved_bytes`` in the recording); of that,
    ``allocated_bytes`` are the blocks in use, in multiples of 512 bytes, and ``gaps`` the sizes of the free pieces
    between them, largest first.
    """

    event: Event
    peak_reserved_bytes: int
    reserved_bytes: Annotated[int, Show("Reserved")]
    allocated_bytes: Annotated[int, Show("in use", level=1)]
    gaps: tuple[int, ...]

    @property
    def free_bytes(self) -> Annotated[int, Show("free", level=1)]:
        """Bytes that are reserved and not in use."""
        return self.reserved_bytes - self.allocated_bytes

    @property
    def largest_free_bytes(self) -> int:
        """The largest free piece."""
        return self.gaps[0] if self.gaps else 0

    @property
    def fragmentation_share(self) -> Annotated[float, Show("fragmented", level=1)]:
        """Share of the free bytes that the largest piece does not have."""
        return 1 - self.largest_free_bytes / self.free_bytes if self.free_bytes > 0 else 0.0


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
    return -event.asked_bytes if event.action in ALLOCATES else event.asked_bytes if event.action in RELEASES else 0


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
    most = peak_reserved(snapshot, event.device)
    return State(event, most, sum(segments.values()), sum(size for _, size in blocks), tuple(gaps))


def _segments(snapshot: Snapshot, device: int, later: tuple[Event, ...]) -> Iterator[tuple[int, int]]:
    """Addresses and sizes of the device's segments before the events ``later``, which end the recording."""
    now = {segment.address: segment.size for segment in snapshot.segments if segment.device == device}
    for event in reversed(later):
        if event.device != device:
            continue
        if event.action in RELEASES:
            now[event.address] = event.asked_bytes
        elif event.action in ALLOCATES:
            holder = next((start for start, size in now.items() if start <= event.address < start + size), None)
            if holder is not None:  # of an expandable segment the mapped end goes
                now[holder] -= event.asked_bytes
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
