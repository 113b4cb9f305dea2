"""Overhead of measuring, subtracted: the duration of every op, and the framework's work between ops, by phase."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tensortide.graph.model import Graph
from tensortide.profile.stopwatch import Pair, median
from tensortide.timing.measurement import Measurement, Sample, sample

__all__ = ["Run", "Turns", "measurement_of"]


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
    samples = [_op(column, ours) for column in zip(*(run.ops for run in turns.runs), strict=True)]
    chosen = [pair[index] for pair in samples]
    phases = [op.phase.value for op in graph.ops]
    around = [(a[index] + b[index]) / 2 for a, b in zip(turns.steps, turns.steps[1:], strict=False)]
    differences = [_whole(run, index) - step for run, step in zip(turns.runs, around, strict=True)]
    hook = max(0.0, statistics.median(differences))
    seen = [max(1.0, statistics.median(pair[index] for pair in column)) for column in zip(*turns.hooks, strict=True)]
    between = [hook * ns / sum(seen) - ours[index] for ns in seen]
    return Measurement(
        how="step",
        clock=clock,
        min_ns=tuple(s.min_ns for s in chosen),
        p90_ns=tuple(s.p90_ns for s in chosen),
        samples=tuple(s.n for s in chosen),
        wall_ns=tuple(wall.median_ns for wall, _ in samples),
        thread_ns=tuple(thread.median_ns for _, thread in samples),
        step=sample(step[index] for step in turns.steps),
        hooked=sample(_whole(run, index) for run in turns.runs),
        hook_ns=round(hook),
        overhead_ns=_overhead(phases, [[gap[index] for gap in run.gaps] for run in turns.runs], between),
    )


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


def _op(pairs: Sequence[Pair], ours: Pair) -> tuple[Sample, Sample]:
    """One op over the steps, by both clocks; ``ours`` is taken off."""
    wall = sample(max(1.0, pair.wall - ours.wall) for pair in pairs)
    return wall, sample(max(1.0, pair.thread - ours.thread) for pair in pairs)


def _whole(run: Run, index: int) -> float:
    return sum(op[index] for op in run.ops) + sum(gap[index] for gap in run.gaps)
