"""A workload run live under a budget, against ordinary steps of it and the predictions of the simulator."""

from __future__ import annotations

import functools
import gc
import itertools
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import torch

from tensortide.differences import Node
from tensortide.errors import PlanError, PlanLeft, RunError
from tensortide.plans import Compute, Plan
from tensortide.plans.instance import DEVICE
from tensortide.plans.legal import linked, moves
from tensortide.plans.remat.schedule import recorded
from tensortide.replays import TransferTimeline, replay
from tensortide.replays.remat import Simulator
from tensortide.run.budget import Budget
from tensortide.run.link_speed import measured_links
from tensortide.run.program import Program, current_device
from tensortide.run.results import NONE, Agreement, Generators, Results, detached, results_of
from tensortide.run.tables import NOTHING
from tensortide.run.traffic import Traffic, measured_traffic, predicted_traffic
from tensortide.run.usage import COUNTED, Usage
from tensortide.shown import Show
from tensortide.timelines import Difference, KindTime, TimelineFigures, diff, mean_figures, mean_times, timeline
from tensortide.timelines.events import Kind
from tensortide.timing.links import Link

if TYPE_CHECKING:
    from tensortide.graph.model import Graph
    from tensortide.plans.remat.policies import Policy
    from tensortide.replays.remat.simulation import Status
    from tensortide.run.traced import LiveStep
    from tensortide.timelines import Timeline


WARM = 2
"""Steps before those that are measured."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians over the steps of both kinds, in nanoseconds, and what happened in a step under the budget."""

    target: str
    budget_bytes: Annotated[int, Show("Budget")]
    policy: str
    device: str
    steps: int
    before_bytes: Annotated[int, Show("Resident before")]
    """Resident when the budget was opened."""
    plain_ns: Annotated[int | None, Show("Ordinary step", if_any=True)]
    """None: there were no ordinary steps."""
    times_ns: tuple[int, ...]
    """Of each step under the budget."""
    step: Usage
    """Means of a step under the budget, open for the median of its duration; the peak of all steps, and how many of
    them followed a plan, the warm-up step included."""

    planned_recomputations: int | None = None
    """Recomputed ops of a step that the plan has; None: there is no plan."""
    asked: str = ""
    """The budget as it was asked for."""
    check: int = 0
    """The contents of every ``check``-th storage were compared (``Budget``); 0: of none."""
    plain_times_ns: tuple[int, ...] = ()
    """Of each ordinary step."""
    agreement: Agreement | None = None
    """Results of both kinds of steps; None: there were no ordinary ones."""
    command: str = ""
    """The command whose steps follow the plan, where these had too little room for it."""

    @property
    def slowdown_factor(self) -> float | None:
        """Slowdown of a step against an ordinary one, if there was any."""
        return self.step.open_ns / self.plain_ns if self.plain_ns is not None else None


def measured(
    program: Program,
    budget: Budget,
    steps: int,
    *,
    plain: bool = True,
    progress: Callable[[str], None] = lambda message: None,
) -> Measured:
    """``steps`` steps under ``budget``, and if ``plain`` as many ordinary ones, each after two to warm up. The very
    first step runs under a budget too: what does not fit ends there, and what fits only so is never run otherwise.

    For ordinary steps the workload is built again, with the random generators as they were, and results are compared.
    """
    if steps < 1:
        raise RunError(f"cannot measure over {steps} steps: it takes at least 1")
    with current_device(budget.device):
        generators = Generators.now()
        progress(f"steps under the budget, {WARM + steps} in all")
        found, start, results = _budgeted(program, budget, steps, plain)
        if not plain:
            return found
        progress(f"ordinary steps, {WARM + steps} in all")

        def ordinary() -> tuple[list[int], Results, Results]:
            gc.collect()
            generators.rewind()
            return _ordinary(program, budget.device, WARM + steps)

        times, own_start, own = ordinary()
        reason, first = "", results.difference(own)
        if other := start.difference(own_start):
            reason = f"built a second time, it starts with another value of {other}"
        elif first and (other := own.difference(ordinary()[2])):
            reason = f"ordinary steps do not repeat either; the first difference is {other}"
        agreement = Agreement(None if reason else not first, WARM + steps, results, first, reason)
        own_times = tuple(times[WARM:])
        return replace(found, plain_ns=int(statistics.median(own_times)), plain_times_ns=own_times, agreement=agreement)


def run_steps(program: Program, budget: Budget, count: int) -> list[int]:
    """Run ``count`` steps of ``program``, built anew, under ``budget``. Returns how many ops each has run."""
    with current_device(budget.device):
        step = program.build()
        reached = [0]
        with budget:
            for _ in range(count):
                program.timed(step, budget.device, 1)
                reached.append(budget.usage.ops)
        return [after - before for before, after in itertools.pairwise(reached)]


def _budgeted(program: Program, budget: Budget, steps: int, plain: bool) -> tuple[Measured, Results, Results]:
    """``steps`` steps under ``budget`` after those to warm up; the results before and after all of them, if there are
    ``plain`` ones to compare with."""
    step = program.build()
    start = results_of(step) if plain else NONE
    first_step(program, step, budget)
    gc.collect()
    with budget:
        before_bytes = budget.resident_bytes
        program.timed(step, budget.device, WARM - 1)
        first = budget.usage
        returned: list[Any] = []
        times = program.timed(step, budget.device, steps, returned)
        last = budget.usage
        returned = detached(returned)
    gc.collect()
    means = {name: round((getattr(last, name) - getattr(first, name)) / steps) for name in ("ops", *COUNTED)}
    found = Measured(
        target=program.target,
        budget_bytes=budget.budget_bytes,
        policy=budget.name,
        device=str(budget.device),
        steps=steps,
        before_bytes=before_bytes,
        plain_ns=None,
        times_ns=tuple(times),
        step=replace(last, open_ns=int(statistics.median(times)), **means),
        planned_recomputations=None if budget.plan is None else _again(budget.plan),
        asked=str(budget.limit),
        check=budget.check,
    )
    return found, start, results_of(step, *returned) if plain else start


def _again(plan: Plan) -> int:
    """Count the ops that ``plan`` runs again."""
    ops = [step.op for lane in plan.lanes for step in lane.steps if isinstance(step, Compute)]
    return len(ops) - len({*ops})


def first_step(program: Program, step: Callable[[], Any], budget: Budget) -> None:
    """The very first step, which creates optimizer state: it departs from a plan of the others, and that is no news.
    One that moves storages is followed as far as that, since otherwise more would be resident than may be."""
    moving = budget.plan is not None and moves(budget.plan)
    options: dict[str, Any] = {"workspace": budget.workspace, "check": budget.check}
    if moving:
        options |= {"graph": budget.graph, "offload_dir": budget.offload_dir, "transfers": budget.transfers}
    policy = budget.plan if budget.plan is not None and moving else budget.policy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlanLeft)
        with Budget(budget.limit, policy, device=budget.device, **options):
            program.timed(step, budget.device, 1)


def _ordinary(program: Program, device: torch.device, count: int) -> tuple[list[int], Results, Results]:
    """The times of ``count`` ordinary steps, and the results before and after them."""
    step, returned = program.build(), list[Any]()
    start = results_of(step)
    times = program.timed(step, device, count, returned)
    return times, start, results_of(step, *returned)


@dataclass(frozen=True, slots=True)
class Compared:
    """``measured``: means over ``steps`` steps, and their highest peak. ``predicted``: the same steps played by the
    simulator with the measured durations; ``status`` says whether it ended there. ``difference`` is that of the last
    step op by op, predicted against measured, ``times`` the mean time of each kind of op in both (None if the simulator
    did not reach the end of all steps). ``elsewhere_bytes``: what the program has in memory that the captured step does
    not; it is part of both peaks. ``traffic``: of each copy engine, predicted and measured, where the plan moves
    storages, over ``links`` as fast as they are here while nothing else runs."""

    predicted: TimelineFigures
    measured: TimelineFigures
    status: Status
    steps: int
    elsewhere_bytes: int
    difference: Difference | None
    times: tuple[Node[KindTime], Node[KindTime]] | None
    traffic: tuple[Mapping[str, Traffic], Mapping[str, Traffic]] | None = None
    links: tuple[Link, ...] = ()


def compared(budget: Budget, steps: Sequence[LiveStep]) -> Compared:
    """Compare ``steps``, which ran under ``budget``, with what the simulator predicts for such steps.

    The simulator plays each step with the ops' own times in that very step. The evictions of a plan are those that it
    spells out, with what the program drops. Raises RunError without a step.
    """
    if not steps:
        raise RunError("no step ran the ops of the captured one from its first to its last: nothing can be compared")
    if budget.plan is not None and budget.graph is not None and moves(budget.plan):
        return _moved(budget, budget.graph, budget.plan, steps)
    last = steps[-1]
    elsewhere = elsewhere_bytes(last)
    status: Status = "ok"
    measured = [step.figures for step in steps]
    if budget.plan is not None and budget.graph is not None:
        lines: Sequence[Timeline] = [_priced(steps, budget.graph, budget.plan)]
        predicted = lines[0].figures
        measured = [replace(step.figures, evictions=step.replayed().figures.evictions) for step in steps]
    else:
        predicted, status, lines = _played(steps, max(0, budget.budget_bytes - elsewhere), budget.policy)
    predicted = replace(predicted, peak_bytes=predicted.peak_bytes + elsewhere)
    difference = diff(lines[-1], last) if lines else None
    times = (mean_times(lines), mean_times(steps)) if lines else None
    return Compared(predicted, mean_figures(measured), status, len(steps), elsewhere, difference, times)


def _moved(budget: Budget, graph: Graph, plan: Plan, steps: Sequence[LiveStep]) -> Compared:
    """Compare steps that followed a plan which moves storages with its replay."""
    last, device = steps[-1], steps[-1].device
    nbytes = max([t.nbytes for step in steps for t in step.transfers if t is not None], default=0)
    links = measured_links(linked(plan), nbytes, budget.offload_dir, str(budget.device))
    away = sum(int(graph.storages[s].nbytes) for s, place in plan.home.items() if place != DEVICE)
    elsewhere = last.before_bytes + away - timeline(graph, device=device, workspace=False).start_bytes
    serial, room = budget.transfers == "serial", budget.budget_bytes - elsewhere
    line = _transfers(steps, graph, plan, links, room, serial=serial)
    predicted = replace(line.figures, peak_bytes=line.peak_bytes + elsewhere, evictions=_evictions(line))
    measured = [replace(step.figures, evictions=_evictions(step)) for step in steps]
    return Compared(
        predicted,
        mean_figures(measured),
        "ok",
        len(steps),
        elsewhere,
        diff(line, last),
        (mean_times([line]), mean_times(steps)),
        (predicted_traffic(line), measured_traffic(steps)),
        links,
    )


def _evictions(line: Timeline) -> int:
    """Count the evictions, other than offloads, of what is there again later."""
    touches, later, count = line.recorded.index.touches, set[int](), 0
    events = list(zip(line.events.kind.tolist(), line.events.index.tolist(), strict=True))
    for before, (kind, index) in zip([*events[-2::-1], (NOTHING, NOTHING)], events[::-1], strict=True):
        if kind == Kind.EVICT:
            count += index in later and before != (Kind.COPY, index)
        elif index != NOTHING and kind in (Kind.RUN, Kind.RECOMPUTE):
            later.update(touches[index])
        elif kind == Kind.FETCH:
            later.add(index)
    return count


def _transfers(
    steps: Sequence[LiveStep], graph: Graph, plan: Plan, links: Sequence[Link], room_bytes: int, *, serial: bool
) -> TransferTimeline:
    """Replay ``plan`` with the mean durations of ``steps``, in the room that the budget leaves it if that is enough."""
    durations = _mean_durations(steps)
    play = functools.partial(
        replay, graph, plan, durations_ns=durations, links=links, workspace=steps[-1].workspace, serial=serial
    )
    try:
        line = play(budget_bytes=room_bytes)
    except PlanError:
        line = play()
    assert isinstance(line, TransferTimeline)
    return line


def elsewhere_bytes(step: LiveStep) -> int:
    """Bytes of the program that were resident when ``step`` began, and that the captured step does not have."""
    return step.before_bytes - timeline(step.recorded, device=step.device, workspace=False).start_bytes


def _played(
    steps: Sequence[LiveStep], budget_bytes: int, policy: Policy
) -> tuple[TimelineFigures, Status, Sequence[Timeline]]:
    """Play each of ``steps`` with its own durations, which are those that the policy went by."""
    runs = [
        Simulator(recorded(step.recorded, step.durations_ns), workspace=step.workspace, device=step.device).run(
            policy, budget_bytes, overrun_bytes=step.overrun_bytes
        )
        for step in steps
    ]
    failed: Status = next((run.status for run in runs if run.status != "ok"), "ok")
    lines = [run.timeline() for run in runs] if failed == "ok" else []
    return mean_figures([run.figures for run in runs]), failed, lines


def _priced(steps: Sequence[LiveStep], graph: Graph, plan: Plan) -> Timeline:
    """Replay ``plan`` of ``graph`` with the mean durations of ``steps``."""
    return replay(graph, plan, durations_ns=_mean_durations(steps), workspace=steps[-1].workspace)


def _mean_durations(steps: Sequence[LiveStep]) -> list[int]:
    return [round(statistics.fmean(times)) for times in zip(*(s.durations_ns for s in steps), strict=True)]
