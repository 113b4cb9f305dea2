"""Every op of a step on two clocks, and the overhead of measuring subtracted: durations, and the work between ops."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import torch

from tensortide.graph.model import Graph
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.schema import Schema
from tensortide.timing.durations import Measurement, Sample, sample

Clock: TypeAlias = Callable[[], int]


class Pair(NamedTuple):
    """A time by both clocks, in nanoseconds."""

    wall: float
    thread: float

    def __sub__(self, other: Pair) -> Pair:
        return Pair(self.wall - other.wall, self.thread - other.thread)


class Clocks(NamedTuple):
    """Clocks that count nanoseconds: of the wall, and of the time in which this thread has a core."""

    wall: Clock = time.perf_counter_ns
    thread: Clock = time.thread_time_ns


class Stopwatch(Recorder):
    """Takes the same calls for ops as a Recorder, and times them instead of recording them.

    ``marks`` has four readings per op, in the order in which they were taken: wall and thread before, thread and wall
    after. ``funcs`` are the ops. Nothing else is kept, so that little is added to the step.
    """

    def __init__(self, clocks: Clocks) -> None:
        super().__init__()
        self.marks: list[tuple[int, int, int, int]] = []
        self.funcs: list[Any] = []
        self._wall, self._thread = clocks

    def record(self, func: Any, schema: Schema, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run ``func`` on the clocks. Returns its result."""
        del schema
        wall, thread = self._wall, self._thread
        wall_start = wall()
        thread_start = thread()
        result = func(*args, **kwargs)
        thread_end = thread()
        self.marks.append((wall_start, thread_start, thread_end, wall()))
        self.funcs.append(func)
        return result

    def times(self) -> list[Pair]:
        """Duration of each op, the cost of the clocks included."""
        return [Pair(after - before, end - start) for before, start, end, after in self.marks]

    def gaps(self, begin: Pair, end: Pair) -> list[Pair]:
        """Between the ops: from the ``begin`` of the step to the first op, from each op to the next, to the ``end``."""
        before = [*(Pair(mark[0], mark[1]) for mark in self.marks), end]
        after = [begin, *(Pair(mark[3], mark[2]) for mark in self.marks)]
        return [start - done for start, done in zip(before, after, strict=True)]


def reading(clocks: Clocks, count: int = 5001) -> Pair:
    """Cost of the clocks for an op that they measure: the median of ``count`` no-ops."""
    wall, thread = clocks
    marks = [(wall(), thread(), thread(), wall()) for _ in range(count)]
    return median([Pair(after - before, end - start) for before, start, end, after in marks])


def median(pairs: Sequence[Pair]) -> Pair:
    """The median by each clock; zero of nothing."""
    if not pairs:
        return Pair(0.0, 0.0)
    return Pair(statistics.median(p.wall for p in pairs), statistics.median(p.thread for p in pairs))


class NullCalls(Recorder):
    """Before every op it calls one that does nothing, on the first tensor of its arguments; ``seen`` are these calls.

    They measure what a call of an op takes by itself, among the ops of the step and with caches as these leave them.
    """

    def __init__(self, clocks: Clocks) -> None:
        super().__init__()
        self.seen: list[Pair] = []
        self._clocks = clocks
        self._nothing = torch.ops.aten.alias.default

    def record(self, func: Any, schema: Schema, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run ``func`` after a call of nothing on the clocks. Returns its result."""
        del schema
        operand = args[0] if args else None
        if type(operand) is torch.Tensor and operand.layout is torch.strided:
            wall, thread = self._clocks
            wall_start = wall()
            thread_start = thread()
            self._nothing(operand)
            thread_end = thread()
            self.seen.append(Pair(wall() - wall_start, thread_end - thread_start))
        return func(*args, **kwargs)


class Run(NamedTuple):
    """One step under the stopwatch: its ops in order, and the gaps around them, one more."""

    ops: list[Pair]
    gaps: list[Pair]


class Turns(NamedTuple):
    """Measurements taken by turns: ``runs`` under the stopwatch, each between two of the ordinary ``steps``.

    ``hooks`` are steps under two stopwatches: for each op the difference between the outer and the inner one. ``calls``
    are calls of a no-op among those of a step.
    """

    runs: list[Run]
    steps: list[Pair]
    hooks: list[list[Pair]]
    calls: list[Pair]


def measurement_of(graph: Graph, turns: Turns, reading: Pair, clock: Literal["wall", "thread"]) -> Measurement:
    """Durations of ``graph``'s ops and what else the step takes, from ``turns``.

    An op takes the time between its two readings of a clock, less what ``reading`` costs there, and less what the hook
    takes to call it: that of a call of nothing. The hook's whole cost is how much longer steps are with it than the
    ordinary ones around them; it is spread over the ops as two stopwatches see it. A gap between ops, less the hook's
    share, is overhead of the phase of the op that it leads to, the last one of that of the last op; a phase whose gaps
    are shorter than the hook's share has none.
    """
    index = 0 if clock == "wall" else 1
    called = Pair(*(max(0.0, call - read) for call, read in zip(median(turns.calls), reading, strict=True)))
    ours = Pair(reading.wall + called.wall, reading.thread + called.thread)
    both = [samples(column, ours) for column in zip(*(run.ops for run in turns.runs), strict=True)]
    phases = [op.phase.value for op in graph.ops]
    around = [(a[index] + b[index]) / 2 for a, b in zip(turns.steps, turns.steps[1:], strict=False)]
    differences = [_whole(run, index) - step for run, step in zip(turns.runs, around, strict=True)]
    hook = max(0.0, statistics.median(differences))
    seen = [max(1.0, statistics.median(pair[index] for pair in column)) for column in zip(*turns.hooks, strict=True)]
    between = [hook * ns / sum(seen) - ours[index] for ns in seen]
    return Measurement(
        how="step",
        **columns(both, clock),
        step=sample(step[index] for step in turns.steps),
        hooked=sample(_whole(run, index) for run in turns.runs),
        hook_ns=round(hook),
        overhead_ns=_overhead(phases, [[gap[index] for gap in run.gaps] for run in turns.runs], between),
    )


def columns(ops: Sequence[tuple[Sample, Sample]], clock: Literal["wall", "thread"]) -> dict[str, Any]:
    """The clock of a Measurement, and what it has of each op, from the samples of ``ops`` by both clocks."""
    chosen = [pair[clock == "thread"] for pair in ops]
    return {
        "clock": clock,
        "min_ns": tuple(s.min_ns for s in chosen),
        "p90_ns": tuple(s.p90_ns for s in chosen),
        "samples": tuple(s.n for s in chosen),
        "wall_ns": tuple(wall.median_ns for wall, _ in ops),
        "thread_ns": tuple(thread.median_ns for _, thread in ops),
    }


def _overhead(phases: Sequence[str], gaps: Sequence[Sequence[float]], between: Sequence[float]) -> dict[str, int]:
    """The ``gaps`` by phase, medians over the runs, less what the hook takes ``between`` ops."""
    totals: dict[str, list[float]] = {phase: [] for phase in phases}
    for run in gaps:
        sums = dict.fromkeys(totals, 0.0)
        for phase, gap in zip([*phases, phases[-1]], run, strict=True):
            sums[phase] += gap
        for phase, total in sums.items():
            totals[phase].append(total)
    ours = dict.fromkeys(totals, 0.0)
    for phase, ns in zip(phases, between, strict=True):
        ours[phase] += ns
    return {phase: max(0, round(statistics.median(sums) - ours[phase])) for phase, sums in totals.items()}


def samples(pairs: Sequence[Pair], ours: Pair) -> tuple[Sample, Sample]:
    """One op over several runs, by both clocks, less ``ours``: the cost of measuring it."""
    wall = sample(max(1.0, pair.wall - ours.wall) for pair in pairs)
    return wall, sample(max(1.0, pair.thread - ours.thread) for pair in pairs)


def _whole(run: Run, index: int) -> float:
    return sum(op[index] for op in run.ops) + sum(gap[index] for gap in run.gaps)
