"""``tensortide.compare``: several steps, one of them the reference, in metrics and where they differ."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from tensortide.errors import ExitStatus, MetricError, Unavailable, check_argument
from tensortide.graph import Graph, unrolled
from tensortide.importers.door import as_text, is_module, open
from tensortide.importers.imported import Imported
from tensortide.measures.comparison import Comparison, compare_statuses
from tensortide.measures.differences.limits import Limit, Threshold, parse_limit, tried
from tensortide.measures.differences.side import Side
from tensortide.measures.differences.step import StepDifference
from tensortide.measures.profiler import Profiler
from tensortide.measures.registry import default_registry
from tensortide.measures.status import SUFFIX, Status, load_status
from tensortide.shown import Shown
from tensortide.targets.counted import count
from tensortide.targets.keywords import request_of
from tensortide.timelines import StorageTimeline
from tensortide.timing import Durations

Comparable: TypeAlias = (
    "Graph | Imported | StorageTimeline | Side | Profiler | Status | str | os.PathLike[str] | Callable[..., Any]"
)
"""A step: recorded, opened, played or to be opened; or metrics alone, computed before."""
_STATUSES = {"held": ExitStatus.HOLDS, "exceeded": ExitStatus.FAILS, "undecided": ExitStatus.UNDECIDED}


@dataclass(frozen=True)
class Entrant:
    """One step of a comparison: its letter, its metrics, and the step itself unless only metrics are known."""

    letter: str
    status: Status
    side: Side | None

    @property
    def name(self) -> str:
        """Its name, for people."""
        return self.status.name


@dataclass(frozen=True, repr=False)
class Compared(Shown):
    """Steps beside each other. ``top`` and ``depth`` are the rows and levels of modules that text shows."""

    SECTION = "comparison"

    entrants: tuple[Entrant, ...]
    reference: int = 0
    limits: tuple[Limit, ...] = ()
    top: int = 15
    depth: int = 3

    @property
    def base(self) -> Entrant:
        """The reference."""
        return self.entrants[self.reference]

    @property
    def others(self) -> tuple[Entrant, ...]:
        """All but the reference."""
        return tuple(one for place, one in enumerate(self.entrants) if place != self.reference)

    @cached_property
    def metrics(self) -> Comparison:
        """Every metric of all."""
        return compare_statuses([one.status for one in self.entrants], reference=self.reference)

    @cached_property
    def steps(self) -> tuple[StepDifference | None, ...]:
        """For each other the difference of its step from that of the reference; None where only metrics are known."""
        a, pairs = self.base, ((self.base.side, other.side, other.letter) for other in self.others)
        return tuple(
            StepDifference(one, two, (a.letter, letter)) if one and two else None for one, two, letter in pairs
        )

    @cached_property
    def thresholds(self) -> tuple[Threshold, ...]:
        """The limits, tried on each other."""
        return tuple(tried(self.limits, self.metrics, [one.letter for one in self.others]))

    @property
    def exceeded(self) -> tuple[Threshold, ...]:
        """The thresholds that are exceeded, or may be."""
        return tuple(one for one in self.thresholds if one.outcome != "held")

    @property
    def status(self) -> ExitStatus:
        """The answer to whether all limits are kept."""
        return ExitStatus.of_all(_STATUSES[one.outcome] for one in self.thresholds)


def compare(
    *steps: Comparable,
    names: Sequence[str] = (),
    reference: int = 0,
    thresholds: Sequence[str] = (),
    machines: Sequence[str | None] = (),
    strict: bool = False,
    top: int = 15,
    depth: int = 3,
    **options: Any,
) -> Compared:
    """Compare steps: what changed, where, and what it costs; the result shows itself.

    >>> found = tensortide.compare("before.tide", "after.tide", thresholds=["peak=+2%"])  # doctest: +SKIP
    >>> found.exceeded, found.steps[0].root.difference.flops  # doctest: +SKIP

    Args:
        steps: two or more of: any target; the Timeline of a step; a Profiler (of a step, or of a model with data: its
            inference forward) with what it has computed; a saved status, which has metrics alone.
        names: of the steps (default: those of their workloads).
        reference: the place, from 0, of the one that the others are compared with.
        thresholds: limits such as ``peak=+2%`` or ``time=+5ms``; ``exceeded`` lists those that do not hold.
        machines: of the catalogue, for which the times of each step are predicted: its step time is that of host and
            device there, as ``tensortide time`` says it (None, and default: the sum of its ops).
        strict: an op without a cost rule is an error (UnknownCost).
        top: rows that text shows of each list.
        depth: levels of modules that text shows.
        options: of the captures of targets, as the command line has them (``set``, ``machine``, ``device``, ...).

    Raises MetricError for fewer than two steps, for what is none, for metrics of a model at several batch sizes, and
    for a threshold that cannot be read.
    """
    _check(steps, names, thresholds)
    if options:
        if machines:
            raise MetricError(f"machines goes with opened steps, {' and '.join(options)} with targets")
        options |= {"threshold": tuple(thresholds), "strict": strict, "top": top, "depth": depth}
        return _of_targets(steps, names, reference, options)
    entrants = []
    for place, step in enumerate(steps):
        name = names[place] if place < len(names) else ""
        machine = machines[place] if place < len(machines) else None
        entrants.append(_entrant(chr(ord("A") + place), step, name, machine))
        if strict and (side := entrants[-1].side) is not None:
            count(side.graph, strict=True)
    compare_statuses([one.status for one in entrants], reference=reference)  # an error for no such reference
    units = default_registry().units
    units |= {name: entry.metric.unit for one in entrants for name, entry in one.status.entries.items()}
    limits = tuple(parse_limit(text, units) for text in thresholds)
    return Compared(tuple(entrants), reference, limits, top, depth)


def _check(steps: Sequence[Comparable], names: Sequence[str], thresholds: Sequence[str]) -> None:
    """Raise an error for what is no comparison, before any work."""
    for text in thresholds:
        parse_limit(text, None)
    if len(steps) < 2:
        raise MetricError("a comparison takes at least two steps")
    check_argument("names", names, (Sequence,), "a tuple of texts")
    for name in names:
        check_argument("a name of a step", name, (str,), "a text")


def _of_targets(
    targets: Sequence[Comparable], names: Sequence[str], reference: int, options: dict[str, Any]
) -> Compared:
    """Compare targets that are opened with ``options``, as the command line does."""
    from tensortide.measures.differences.request import CompareRequest, answer

    given = {"targets": targets, "reference": chr(ord("A") + reference), **options}
    return answer(request_of("compare", CompareRequest, given), names=names)


def _entrant(letter: str, step: Comparable, name: str, machine: str | None) -> Entrant:
    if isinstance(step, str | os.PathLike) or (callable(step) and not is_module(step)):
        name, step = name or str(as_text(step)), _opened(step)
    if isinstance(step, Profiler):
        return Entrant(letter, step.status, _profiled(step))
    if isinstance(step, Status):
        return Entrant(letter, step, None)
    side = step if isinstance(step, Side) else _side(step, name)
    profiler = Profiler(side.subject, name=name or side.name)
    options: dict[str, Any] = {} if machine is None else {"machine": machine}
    profiler.compute_all(**options)
    return Entrant(letter, profiler.status, side)


def _opened(target: str | os.PathLike[str] | Callable[..., Any]) -> Imported | Status:
    if (text := as_text(target)).endswith(SUFFIX):
        return load_status(text)
    return open(target)


def _profiled(profiler: Profiler) -> Side:
    """Make a side of what a Profiler measured: the step, or the inference forward of its model at the batch size of its
    metrics. Raises MetricError where they have several."""
    subject, durations = profiler.subject, None
    with suppress(Unavailable):
        durations = subject.durations
    options = [one.options for one in profiler.status.entries.values()]
    sizes = dict.fromkeys(one["batch_size"] or 1 for one in options if "batch_size" in one)
    if subject.kind != "step" and len(sizes) > 1:
        raise MetricError(
            f"{profiler.name} has metrics at batch sizes {' and '.join(map(str, sizes))}: compute them at one, as "
            "compute_all(batch_size=4) does"
        )
    captured = subject.captured(None if subject.kind == "step" else next(iter(sizes), None))
    return Side(profiler.name, unrolled(captured.graph), durations)


def _side(step: Any, name: str) -> Side:
    """Make a side of a recorded step, with its times where it has them. Raises MetricError for what is none."""
    if not isinstance(step, Graph | Imported | StorageTimeline):
        raise MetricError(
            "compare takes Graphs, opened steps, timelines, targets, saved statuses and Profilers, not "
            f"{'None' if step is None else f'a {type(step).__name__}'} "
            "(of a live model: tensortide.Profiler(model, data))"
        )
    durations, graph = None, step if isinstance(step, Graph) else step.graph
    if isinstance(step, Imported):
        durations = step.durations
    elif isinstance(step, StorageTimeline) and step.durations_ns is not None:
        durations = Durations(step.durations_ns, "the Timeline", "recorded")
    return Side(name or graph.meta.workload, unrolled(graph), durations)
