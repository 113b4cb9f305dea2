"""Predictions for steps under a budget, beside the measured steps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tensortide.errors import RunError
from tensortide.plans.remat.schedule import recorded
from tensortide.replays import replay
from tensortide.replays.remat import Simulator
from tensortide.timelines import Difference, Figures, diff, mean_figures, timeline

if TYPE_CHECKING:
    from tensortide.graph.model import Graph
    from tensortide.plans import Plan
    from tensortide.plans.remat.policies import Policy
    from tensortide.replays.remat.outcome import Status
    from tensortide.run.budget import Budget
    from tensortide.run.traced import LiveStep
    from tensortide.timelines import Timeline


@dataclass(frozen=True, slots=True)
class Compared:
    """``measured``: means over ``steps`` steps, and their highest peak. ``predicted``: the same steps played by the
    simulator with the measured durations; ``status`` says whether it ended there. ``difference`` is that of the last
    step op by op, predicted against measured (None if the simulator did not reach its end). ``elsewhere_bytes``: what
    the program has in memory that the captured step does not; it is part of both peaks."""

    predicted: Figures
    measured: Figures
    status: Status
    steps: int
    elsewhere_bytes: int
    difference: Difference | None


def compared(budget: Budget, steps: Sequence[LiveStep]) -> Compared:
    """Compare ``steps``, which ran under ``budget``, with what the simulator predicts for such steps.

    The simulator plays each step with the ops' own times in that very step. The evictions of a plan are those that it
    spells out, with what the program drops. Raises RunError without a step.
    """
    if not steps:
        raise RunError("no step ran the ops of the captured one from its first to its last: nothing can be compared")
    last = steps[-1]
    elsewhere = last.before_bytes - timeline(last.recorded, device=last.device, workspace=False).at_start
    status: Status = "ok"
    line: Timeline | None
    measured = [step.figures for step in steps]
    if budget.plan is not None and budget.graph is not None:
        line = _priced(steps, budget.graph, budget.plan)
        predicted = line.figures
        measured = [replace(step.figures, evictions=step.replayed().figures.evictions) for step in steps]
    else:
        predicted, status, line = _played(steps, max(0, budget.budget_bytes - elsewhere), budget.policy)
    predicted = replace(predicted, peak_bytes=predicted.peak_bytes + elsewhere)
    difference = None if line is None else diff(line, last)
    return Compared(predicted, mean_figures(measured), status, len(steps), elsewhere, difference)


def _played(steps: Sequence[LiveStep], budget_bytes: int, policy: Policy) -> tuple[Figures, Status, Timeline | None]:
    """Play each of ``steps`` with its own durations, which are those that the policy went by."""
    runs = [
        Simulator(recorded(step.recorded, step.durations_ns), workspace=step.workspace, device=step.device).run(
            policy, budget_bytes, overrun_bytes=step.overrun_bytes
        )
        for step in steps
    ]
    failed: Status = next((run.status for run in runs if run.status != "ok"), "ok")
    line = runs[-1].timeline() if runs[-1].status == "ok" else None
    return mean_figures([run.figures for run in runs]), failed, line


def _priced(steps: Sequence[LiveStep], graph: Graph, plan: Plan) -> Timeline:
    """Replay ``plan`` with the mean durations of ``steps``."""
    durations = [round(statistics.fmean(times)) for times in zip(*(s.durations_ns for s in steps), strict=True)]
    return replay(graph, plan, durations_ns=durations, workspace=steps[0].workspace)
