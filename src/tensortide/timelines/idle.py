"""Idle memory: bytes times time, in use and idle, and the bytes that could be offloaded in the meantime.

*Memory-time* is the integral of bytes over time, in byte-nanoseconds: by the length of the step it is bytes on average.
A storage's memory-time is *active* while an op uses it, *idle* in its idle intervals, and *unused* where the storage is
resident but not used again in this step: after its last use if it outlives the step, or always if no op touches it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from tensortide.graph.model import Graph, Role, Storage
from tensortide.graph.roles import WORKSPACE
from tensortide.timelines.intervals import NEVER_READ, Life, Mode, Period, liveness
from tensortide.timelines.timeline import StorageTimeline, timeline
from tensortide.timing.links import Link

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints

__all__ = ["Hideable", "Idleness", "MemoryTime", "PeakSplit", "Span", "idleness"]


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


class Span(msgspec.Struct, frozen=True):
    """An inactive period of the storage (or tensor) ``index``, in ops and nanoseconds."""

    index: int
    nbytes: int
    period: Period
    ns: int


class Hideable(msgspec.Struct, frozen=True):
    """Idle intervals, of ``periods`` in all, that hide a move out and back over a link: their ``count``, the bytes of
    their storages (a storage counts once for each interval) and their memory-time."""

    link: str
    about: str
    bytes_per_s: float
    latency_ns: int
    periods: int
    period_bytes: int
    period_byte_ns: int
    count: int
    nbytes: int
    byte_ns: int
    transfer_ns: int


class PeakSplit(msgspec.Struct, frozen=True):
    """Bytes resident during op ``op``: ``active_bytes`` it uses itself; of the rest, ``hideable_bytes`` are in idle
    intervals that hide a move over the given link."""

    op: int
    live_bytes: int
    active_bytes: int
    idle_bytes: int
    hideable_bytes: int


class Idleness:
    """Lifetimes and idle intervals on the device of ``line``, a Timeline with durations; see ``idleness``, which makes
    it. ``lives`` are those of ``liveness`` without what is on another device; ``everywhere`` has all."""

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
        """Start of each op, and as a last entry the length of the step."""
        return (*self.line.run_start_ns.tolist(), self.line.makespan_ns)

    @property
    def step_ns(self) -> int:
        return self.line.makespan_ns

    def role(self, life: Life) -> Role:
        """Return the role of the storage of ``life``."""
        return self.storage(life).role

    def storage(self, life: Life) -> Storage:
        """The storage that ``life`` is about, or that its tensor lies in."""
        index = life.index if self.mode == "storage" else self.graph.tensors[life.index].storage
        return self.graph.storages[index]

    def spans(self) -> Iterator[Span]:
        """All inactive periods, in the order of the lives."""
        for life in self.lives:
            for period in life.periods:
                yield Span(life.index, life.nbytes, period, int(period.time or 0))

    def memory_time(self, life: Life) -> MemoryTime:
        """Memory-time of one life."""
        alive = self.clock_ns[life_stop(life, len(self.graph))] - self.clock_ns[life_start(life)]
        active = sum([self.durations_ns[op] for op in used(life)])
        idle = sum([int(period.time or 0) for period in life.periods])
        if life.birth is None and not life.persistent:
            alive = 0
        n = life.nbytes
        return MemoryTime(1, n, n * active, n * idle, n * (alive - active - idle))

    @functools.cached_property
    def by_role(self) -> dict[str, MemoryTime]:
        """Memory-time of each role that occurs, and of ``workspace`` if there is any, which is always active."""
        sums: dict[str, MemoryTime] = {}
        for role in Role:
            own = [self.memory_time(life) for life in self.lives if self.role(life) is role]
            if own:
                sums[role.value] = functools.reduce(MemoryTime.__add__, own)
        taken = self.workspace.tolist()
        if any(taken):
            active = sum(ns * nbytes for ns, nbytes in zip(self.durations_ns, taken, strict=True))
            sums[WORKSPACE] = MemoryTime(sum(map(bool, taken)), sum(taken), active)
        return sums

    @functools.cached_property
    def total(self) -> MemoryTime:
        return functools.reduce(MemoryTime.__add__, self.by_role.values(), MemoryTime())

    @functools.cached_property
    def live(self) -> Ints:
        """Bytes alive during each op, workspace included."""
        return sum(self.live_by_role.values(), start=self.workspace * 0)

    @functools.cached_property
    def live_by_role(self) -> dict[str, Ints]:
        """``live`` split by role."""
        import numpy as np

        changes: dict[str, Ints] = {}
        for life in self.lives:
            if life.persistent or life.birth is not None:
                change = changes.setdefault(self.role(life).value, np.zeros(len(self.graph) + 1, np.int64))
                change[life_start(life)] += life.nbytes
                change[life_stop(life, len(self.graph))] -= life.nbytes
        split = {role.value: np.cumsum(changes[role])[:-1] for role in Role if role in changes}
        return {**split, WORKSPACE: self.workspace} if self.workspace.any() else split

    @functools.cached_property
    def active(self) -> Ints:
        """Bytes that are alive and used by each op, workspace included."""
        return sum(self.active_by_role.values(), start=self.workspace * 0)

    @functools.cached_property
    def active_by_role(self) -> dict[str, Ints]:
        """``active`` split by role."""
        import numpy as np

        split: dict[str, Ints] = {}
        for life in self.lives:
            series = split.setdefault(self.role(life).value, np.zeros(len(self.graph), np.int64))
            series[list(used(life))] += life.nbytes
        ordered = {role.value: split[role] for role in Role if role in split}
        return {**ordered, WORKSPACE: self.workspace} if self.workspace.any() else ordered

    @property
    def peak_op(self) -> int:
        """The first op during which most bytes are alive (-1 for a step without ops)."""
        return int(self.live.argmax()) if len(self.graph) else -1

    def hideable(self, link: Link) -> Hideable:
        """Select the idle intervals that hide a move over ``link``. ``transfer_ns``: their time, one way."""
        spans = tuple(self.spans())
        above = functools.cache(link.hidden_above_ns)
        hidden = [span for span in spans if span.ns > above(span.nbytes)]
        return Hideable(
            link=link.name,
            about=link.about,
            bytes_per_s=float(link.bytes_per_s),
            latency_ns=link.latency_ns,
            periods=len(spans),
            period_bytes=sum(span.nbytes for span in spans),
            period_byte_ns=sum(span.nbytes * span.ns for span in spans),
            count=len(hidden),
            nbytes=sum(span.nbytes for span in hidden),
            byte_ns=sum(span.nbytes * span.ns for span in hidden),
            transfer_ns=sum(link.transfer_ns(span.nbytes) for span in hidden),
        )

    def longer_than(self, limits_ns: Iterable[int]) -> dict[int, int]:
        """Count the idle intervals longer than each of ``limits_ns``."""
        lengths = [span.ns for span in self.spans()]
        return {limit: sum(ns > limit for ns in lengths) for limit in limits_ns}

    def split(self, op: int, link: Link) -> PeakSplit:
        """Split the bytes resident during ``op`` by use and by idle time. Raises IndexError for no such op."""
        live, active = int(self.live[op]), int(self.active[op])
        hidden = [
            span.nbytes
            for span in self.spans()
            if covers(span.period, op) and span.ns > link.hidden_above_ns(span.nbytes)
        ]
        return PeakSplit(op, live, active, live - active, sum(hidden))


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


def used(life: Life) -> tuple[int, ...]:
    """The ops that use what ``life`` is about while it is alive."""
    if life.persistent or life.birth is None:
        return life.uses
    stop = life_stop(life, life.uses[-1] + 1)
    return tuple([op for op in life.uses if op < stop]) if life.uses[-1] >= stop else life.uses


def life_start(life: Life) -> int:
    """The first op during which it is alive."""
    return life.birth or 0


def life_stop(life: Life, count: int) -> int:
    """The op after the last one, of ``count``, during which it is alive."""
    if life.persistent or life.birth is None or life.death is None:
        return count
    return life.birth + 1 if life.death == NEVER_READ else life.death


def covers(period: Period, op: int) -> bool:
    """Return whether ``op`` lies within ``period``."""
    if period.looped:
        return op >= period.start or op < period.end
    return period.start <= op < period.end
