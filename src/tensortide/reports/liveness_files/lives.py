"""What the files tell: the lives of the tensors of a step as other tools count them, with exact times."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tensortide.collector import no_collection
from tensortide.errors import TraceError
from tensortide.importers.imported import Imported
from tensortide.timelines.compat import CompatSeries, compat_series
from tensortide.timelines.liveness import Life, lasting_tensors, liveness
from tensortide.timing.exact import Times

__all__ = ["Order", "Row", "TimedLives", "timed_lives"]

Order: TypeAlias = Literal["creation", "time_size"]


class Row(msgspec.Struct, frozen=True):
    """An inactive period of a tensor, with its time in ticks of ``TimedLives.times``."""

    tensor: int
    number: int
    start: int
    end: int
    looped: bool
    nbytes: int
    ticks: int


class TimedLives(msgspec.Struct, frozen=True):
    """A step with times; ``lives`` in mode ``compat``; ``lasting`` says which tensors live across steps."""

    trace: Imported
    times: Times
    lives: tuple[Life, ...]
    lasting: tuple[bool, ...]
    series: CompatSeries

    def periods(self, order: Order = "creation") -> list[Row]:
        """All periods, by tensor and then as they come up in the step, or by time x size, largest first."""
        rows = [
            Row(life.index, number, period.start, period.end, period.looped, life.nbytes, int(period.time or 0))
            for life in self.lives
            for number, period in enumerate(life.periods)
        ]
        return rows if order == "creation" else sorted(rows, key=lambda row: -row.nbytes * row.ticks)


@no_collection()
def timed_lives(trace: Imported, times: Times | None = None) -> TimedLives:
    """The lives of the tensors of ``trace`` with its own times, or ``times``.

    Raises:
        TraceError: there are no times, or sizes of tensors are unknown: files have numbers only.
    """
    times = times or trace.times
    name = trace.graph.meta.workload
    if times is None:
        raise TraceError(f"{name}: its kernels have no times, and the files of a liveness analysis need them")
    if len(times) != len(trace.graph):
        raise TraceError(f"{name}: {len(times)} times for {len(trace.graph)} kernels")
    if trace.unknown:
        first = trace.tensors[trace.unknown[0]]
        raise TraceError(
            f"{name}: the sizes of {len(trace.unknown)} tensors are unknown ({first}, ...): give values for "
            "their symbols"
        )
    lives = liveness(trace.graph, "compat", times.ticks)
    lasting = tuple(lasting_tensors(trace.graph))
    return TimedLives(trace, times, lives, lasting, compat_series(trace.graph, lives))
