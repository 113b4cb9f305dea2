"""Idle memory: bytes times time, in use and idle, and the bytes that could be offloaded in the meantime.

*Memory-time* is the integral of bytes over time, in byte-nanoseconds: by the length of the step it is bytes on average.
A storage's memory-time is *active* while an op uses it, *idle* in its idle intervals, and *unused* where the storage is
resident but not used again in this step: after its last use if it outlives the step, or always if no op touches it.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from tensortide.graph.model import Graph, Role, Storage
from tensortide.graph.roles import WORKSPACE
from tensortide.shown import Show, Shown
from tensortide.timelines.intervals import Interval, Life, Mode, live_bytes, liveness
from tensortide.timelines.timeline import StorageTimeline, timeline
from tensortide.timing.links import Link

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints


IdleInterval: TypeAlias = tuple[Life, Interval]
"""An interval of nanoseconds, and what is idle in it."""


class MemoryTime(msgspec.Struct, frozen=True):
    """``count`` storages of ``nbytes`` together, and their memory-time."""

    count: int = 0
    nbytes: int = 0
    active_byte_ns: int = 0
    idle_byte_ns: int = 0
    unused_byte_ns: int = 0

    @property
    def total_byte_ns(self) -> int:
        return self.active_byte_ns + self.inactive_byte_ns

    @property
    def inactive_byte_ns(self) -> int:
        return self.idle_byte_ns + self.unused_byte_ns

    def __add__(self, other: MemoryTime) -> MemoryTime:
        return MemoryTime(*(a + b for a, b in zip(*map(msgspec.structs.astuple, (self, other)), strict=True)))


class Average(msgspec.Struct, frozen=True):
    """Memory-time spread over the step: bytes on average. ``count``: storages that ``time`` is of, None for workspace;
    ``inactive_share`` is of memory-time."""

    role: Annotated[str, Show("Role", "role")]
    time: MemoryTime
    count: Annotated[int | None, Show("storages", at_width=96)]
    inactive_share: Annotated[float | None, Show("inactive", level=1)]
    live_bytes: Annotated[int, Show("live", zero="-", bar=96)]
    in_use_bytes: Annotated[int, Show("in use", zero="-", level=1)]
    idle_bytes: Annotated[int, Show("idle", zero="-", level=1)]
    unused_bytes: Annotated[int, Show("unused", zero="-", level=1)]


class Totals(msgspec.Struct, frozen=True):
    """Figures of a step: storages (or tensors) and bytes of all, whether or not live together; bytes that single ops
    use, most of them in ``most_in_use_op``, with mean and median as parts of the peak; the peak as the program releases
    storages, and the share of that memory-time after the last use, None if unknown."""

    ops: Annotated[int, Show("Ops", data=True)]
    storages: Annotated[int, Show(level=1, data=True)]
    persistent: Annotated[int, Show("persistent", level=1, data=True)]
    allocated_bytes: Annotated[int, Show("Allocated")]
    most_in_use_op: int
    most_in_use_bytes: Annotated[int, Show("In use")]
    in_use_mean_share: Annotated[float, Show("of the peak on average", level=1, data=True)]
    in_use_median_share: Annotated[float, Show("of the peak, median", level=1, data=True)]
    resident_peak_bytes: Annotated[int, Show("as it ran", level=1)]
    late_share: float | None


class Hideable(msgspec.Struct, frozen=True):
    """Idle intervals, of ``intervals`` in all, that hide a move out and back over ``link``: how many are ``hidden``,
    the bytes of their storages (a storage counts once for each interval) and their memory-time. ``transfer_ns``: the
    time of the moves, one way."""

    link: Link
    bytes_per_s: float
    intervals: Annotated[int, Show("Idle intervals")]
    interval_bytes: int
    interval_byte_ns: int
    hidden: Annotated[int, Show("intervals", level=1)]
    hidden_bytes: int
    hidden_byte_ns: int
    transfer_ns: Annotated[int, Show("one way", level=2)]
    hidden_share: Annotated[float | None, Show("share", level=2)]
    hidden_bytes_share: Annotated[float | None, Show("of bytes", level=2)]
    hidden_time_share: Annotated[float | None, Show("of memory-time", level=2)]


class PeakSplit(msgspec.Struct, frozen=True):
    """Bytes live during an op: ``active_bytes`` it uses itself; of the rest, ``hideable_bytes`` are in idle intervals
    that hide a move over the given link."""

    active_bytes: Annotated[int, Show("in use", level=1)]
    idle_bytes: Annotated[int, Show("not in use", level=1)]
    hideable_bytes: Annotated[int, Show("hideable", level=1)]


class Idleness(Shown):
    """Lifetimes and idle intervals on the device of ``line``, a Timeline with durations; see ``idleness``, which makes
    it. ``lives`` are those of ``liveness`` without what is on another device; ``everywhere`` has all."""

    SECTION = "idle"
    mode: Mode
    device: str

    def __init__(self, line: StorageTimeline, mode: Mode) -> None:
        self.line = line
        self.graph = line.graph
        self.mode = mode
        self.device = line.device
        self.durations_ns = line.durations_ns or ()
        self.workspace = line.workspace
        self.everywhere = liveness(self.graph, mode, self.durations_ns)
        self.lives = tuple(life for life in self.everywhere if self.storage(life).device == self.device)

    @functools.cached_property
    def clock_ns(self) -> tuple[int, ...]:
        """Start of each op, and as a last entry the op sum."""
        return (*self.line.run_start_ns.tolist(), self.line.makespan_ns)

    @property
    def op_sum_ns(self) -> Annotated[int, Show("Sum of op times")]:
        """The ops one after the other: the length of the step as far as memory is concerned."""
        return self.line.makespan_ns

    def role(self, life: Life) -> Role:
        """Return the role of the storage of ``life``."""
        return self.storage(life).role

    def storage(self, life: Life) -> Storage:
        """The storage that ``life`` is about, or that its tensor lies in."""
        index = life.index if self.mode == "storage" else self.graph.tensors[life.index].storage
        return self.graph.storages[index]

    @functools.cached_property
    def intervals(self) -> tuple[IdleInterval, ...]:
        """All idle intervals, in the order of the lives."""
        return tuple([(life, interval) for life in self.lives for interval in life.intervals])

    def hidden(self, link: Link) -> list[IdleInterval]:
        """The idle intervals that hide a move over ``link``."""
        above = functools.cache(link.hidden_above_ns)
        return [(life, interval) for life, interval in self.intervals if interval.time > above(life.nbytes)]

    def memory_time(self, life: Life) -> MemoryTime:
        """Memory-time of one life."""
        live = self.clock_ns[life.stop] - self.clock_ns[life.start]
        active = sum([self.durations_ns[op] for op in life.live_uses])
        idle = sum([int(interval.time) for interval in life.intervals])
        return MemoryTime(
            1, life.nbytes, life.nbytes * active, life.nbytes * idle, life.nbytes * (live - active - idle)
        )

    @functools.cached_property
    def _by_role(self) -> dict[Role, list[Life]]:
        found = {role: [life for life in self.lives if self.role(life) is role] for role in Role}
        return {role: lives for role, lives in found.items() if lives}

    @functools.cached_property
    def by_role(self) -> dict[str, MemoryTime]:
        """Memory-time of each role that occurs, and of ``workspace`` if there is any, which is always active."""
        sums = {
            role.value: functools.reduce(MemoryTime.__add__, map(self.memory_time, lives))
            for role, lives in self._by_role.items()
        }
        taken = self.workspace.tolist()
        if any(taken):
            active = sum(ns * nbytes for ns, nbytes in zip(self.durations_ns, taken, strict=True))
            sums[WORKSPACE] = MemoryTime(sum(map(bool, taken)), sum(taken), active)
        return sums

    @functools.cached_property
    def total(self) -> MemoryTime:
        return functools.reduce(MemoryTime.__add__, self.by_role.values(), MemoryTime())

    def average(self, role: str, time: MemoryTime) -> Average:
        """Spread memory-time, such as that of a role, over the step."""
        whole, inactive, count = time.total_byte_ns, time.inactive_byte_ns, None if role == WORKSPACE else time.count
        parts = (whole, time.active_byte_ns, time.idle_byte_ns, time.unused_byte_ns)
        spread = (part // max(1, self.op_sum_ns) for part in parts)
        return Average(role, time, count, _ratio(inactive, whole), *spread)

    @functools.cached_property
    def live(self) -> Ints:
        """Bytes alive during each op, workspace included."""
        return sum(self.live_by_role.values(), start=self.workspace * 0)

    @functools.cached_property
    def live_by_role(self) -> dict[str, Ints]:
        """``live`` split by role."""
        live = {
            role.value: live_bytes(lives, len(self.graph))
            for role, lives in self._by_role.items()
            if any(life.stop for life in lives)
        }
        return {**live, WORKSPACE: self.workspace} if self.workspace.any() else live

    @functools.cached_property
    def active(self) -> Ints:
        """Bytes that are live and used by each op, workspace included."""
        active = self.workspace.copy()
        for life in self.lives:
            active[list(life.live_uses)] += life.nbytes
        return active

    @property
    def peak_op(self) -> int:
        """The first op during which most bytes are alive (-1 for a step without ops)."""
        return int(self.live.argmax()) if len(self.graph) else -1

    @property
    def peak_bytes(self) -> Annotated[int, Show("Peak")]:
        """Bytes alive during ``peak_op``, 0 without ops."""
        return int(self.live[self.peak_op]) if len(self.graph) else 0

    @functools.cached_property
    def totals(self) -> Totals:
        """Figures of the step beside its memory-time."""
        used = (self.active / max(1, self.peak_bytes)).tolist() or [0.0]
        resident = sum(n * ns for n, ns in zip(self.line.resident.tolist(), self.durations_ns, strict=True))
        on_time = _ratio(self.total.total_byte_ns, resident) if self.mode == "storage" else None
        return Totals(
            len(self.graph),
            len(self.lives),
            sum(life.persistent for life in self.lives),
            sum(life.nbytes for life in self.lives),
            int(self.active.argmax()) if len(self.active) else -1,
            int(self.active.max(initial=0)),
            statistics.fmean(used),
            statistics.median(used),
            self.line.peak_bytes,
            None if on_time is None else 1 - on_time,
        )

    def hideable(self, link: Link) -> Hideable:
        """Sum up the idle intervals that hide a move over ``link``."""
        all_of, hidden = (
            (len(some), _bytes(some), sum(map(byte_ns, some))) for some in (self.intervals, self.hidden(link))
        )
        times = sum([link.transfer_ns(life.nbytes) for life, _ in self.hidden(link)])
        return Hideable(link, float(link.bytes_per_s), *all_of, *hidden, times, *map(_ratio, hidden, all_of))

    def longer_than(self, limits_ns: Iterable[int]) -> dict[int, int]:
        """Count the idle intervals longer than each of ``limits_ns``."""
        return {limit: sum(interval.time > limit for _, interval in self.intervals) for limit in limits_ns}

    def split(self, op: int, link: Link) -> PeakSplit:
        """Split the bytes live during ``op`` by use and by idle time. Raises IndexError for no such op."""
        live, active = int(self.live[op]), int(self.active[op])
        hidden = sum(life.nbytes for life, interval in self.hidden(link) if interval.covers(op))
        return PeakSplit(active, live - active, hidden)


def _bytes(some: Iterable[IdleInterval]) -> int:
    return sum([life.nbytes for life, _ in some])


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def byte_ns(idle: IdleInterval) -> int:
    """Memory-time of one interval."""
    life, interval = idle
    return life.nbytes * int(interval.time)


def idleness(
    graph: Graph,
    durations_ns: Sequence[int],
    *,
    mode: Mode = "storage",
    device: str | None = None,
    workspace: bool = True,
) -> Idleness:
    """Compute how long the storages of ``graph`` (tensors in mode ``compat``) are used and idle, in whole nanoseconds.

    ``device``: default the one with the largest footprint. ``workspace``: add what kernels are known to take inside an
    op; never in mode ``compat``, where everything has a name.
    Raises GraphError as ``liveness`` and ``timeline`` do, and for durations below 0.
    """
    counted = workspace and mode == "storage"
    return Idleness(timeline(graph, device=device, workspace=counted, durations_ns=durations_ns), mode)
