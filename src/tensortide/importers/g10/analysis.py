"""The liveness of a step as other liveness tools state it: every tensor owns its bytes, views too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from tensortide.collector import no_collection
from tensortide.errors import TraceError
from tensortide.graph.model import Graph
from tensortide.importers.g10.results import MemoryLog
from tensortide.importers.imported import Imported
from tensortide.timelines.intervals import Interval, Life, active_bytes, lasting_tensors, live_bytes, liveness
from tensortide.timing.durations import Times

Order: TypeAlias = Literal["creation", "time_size"]


class Series(MemoryLog, frozen=True):
    """Bytes per op, as G10 writes them, and ``live``: ``total`` without counting tensor 0 twice."""

    live: tuple[int, ...]


class TimedLives(msgspec.Struct, frozen=True):
    """A step with times; ``lives`` in mode ``compat``; ``lasting`` says which tensors live across steps."""

    trace: Imported
    times: Times
    lives: tuple[Life, ...]
    lasting: tuple[bool, ...]
    series: Series

    def periods(self, order: Order = "creation") -> list[tuple[Life, int, Interval]]:
        """List the idle intervals with their numbers, by tensor and then by start, or by time x size, largest first."""
        rows = [(life, number, interval) for life in self.lives for number, interval in enumerate(life.intervals)]
        return rows if order == "creation" else sorted(rows, key=lambda row: -row[0].nbytes * row[2].time)


@no_collection()
def timed_lives(trace: Imported, times: Times | None = None) -> TimedLives:
    """Analyse the tensors of ``trace`` with its own times, or ``times``.

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
        first, count = trace.tensors[trace.unknown[0]], len(trace.unknown)
        raise TraceError(
            f"{name}: the sizes of {count} tensors are unknown ({first}, ...): give values for their symbols"
        )
    lives = liveness(trace.graph, "compat", times.ticks)
    return TimedLives(trace, times, lives, tuple(lasting_tensors(trace.graph)), series_of(trace.graph, lives))


def series_of(graph: Graph, lives: Sequence[Life]) -> Series:
    """The series of ``graph``, whose ``lives`` are those of its tensors in mode ``compat``."""
    count, sizes = len(graph), [tensor.nbytes for tensor in graph.tensors]
    weights = sum(size for size, lasts in zip(sizes, lasting_tensors(graph), strict=True) if lasts)
    persistent = [life for life in lives if life.persistent]
    unused = weights - sum(life.nbytes for life in persistent)  # weights that no op uses are resident too
    live = (live_bytes(lives, count) + unused).tolist()
    active, of_weights = active_bytes(lives, count).tolist(), active_bytes(persistent, count).tolist()
    first = sizes[0] if sizes else 0
    made = {tensor for op in graph.ops[:1] for tensor in op.outputs if not lives[tensor].persistent}
    of_input = [sum(sizes[tensor] for tensor in made), *[0] * count]
    return Series(
        active=tuple(active),
        active_breakdown=tuple(
            (given, weight, every - given - weight)
            for given, weight, every in zip(of_input, of_weights, active, strict=False)
        ),
        total=tuple(nbytes + first for nbytes in live),
        global_weight=weights,
        input_size=first,
        live=tuple(live),
    )
