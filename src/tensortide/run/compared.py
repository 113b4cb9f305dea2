"""Predicted beside measured: steps under a budget."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tensortide.errors import RunError
from tensortide.memory import timeline
from tensortide.plans import Compute, Evict, Plan
from tensortide.plans.remat.schedule import recorded
from tensortide.replays import replay
from tensortide.replays.remat import Simulator

if TYPE_CHECKING:
    from tensortide.graph.model import Graph
    from tensortide.plans.remat.policies import Policy
    from tensortide.replays.remat.outcome import Status
    from tensortide.run.budget import Budget
    from tensortide.run.traced import LiveStep


@dataclass(frozen=True, slots=True)
class Figures:
    """One step: most bytes resident, storages evicted, ops recomputed; the time of its ops, and of recomputation."""

    peak_bytes: int
    evictions: int
    recomputations: int
    base_ns: int
    recompute_ns: int

    @property
    def slowdown(self) -> float:
        """Time of all ops divided by that of the step's own."""
        return (self.base_ns + self.recompute_ns) / self.base_ns if self.base_ns else 1.0


@dataclass(frozen=True, slots=True)
class Compared:
    """``measured``: means over ``steps`` steps, and their highest peak. ``predicted``: the same step played by the
    simulator, with the measured durations; ``status`` says whether it ended there. ``elsewhere_bytes``: what the
    program has in memory that the captured step does not; it is part of both peaks."""

    predicted: Figures
    measured: Figures
    status: Status
    steps: int
    elsewhere_bytes: int


def compared(budget: Budget, steps: Sequence[LiveStep]) -> Compared:
    """``steps``, which ran under ``budget``, and what the simulator says of such a step.

    The simulator plays each step with the ops' own times in that very step. The evictions of a plan are those that it
    spells out, with what the program drops. Raises RunError without a step.
    """
    if not steps:
        raise RunError("no step ran the ops of the captured one from its first to its last: nothing can be compared")
    last = steps[-1]
    elsewhere = last.before_bytes - timeline(last.graph, device=last.device, workspace=False).at_start
    status: Status = "ok"
    if budget.plan is not None and budget.graph is not None:
        predicted, evicted = _priced(steps, budget.graph, budget.plan), _spelt_out
    else:
        predicted, status = _played(steps, max(0, budget.budget_bytes - elsewhere), budget.policy)
        evicted = _evictions
    measured = Figures(
        peak_bytes=max(step.peak_bytes for step in steps),
        evictions=_mean(steps, evicted),
        recomputations=_mean(steps, lambda step: step.recomputations),
        base_ns=_mean(steps, lambda step: step.base_ns),
        recompute_ns=_mean(steps, lambda step: step.recompute_ns),
    )
    predicted = replace(predicted, peak_bytes=predicted.peak_bytes + elsewhere)
    return Compared(predicted, measured, status, len(steps), elsewhere)


def _played(steps: Sequence[LiveStep], budget_bytes: int, policy: Policy) -> tuple[Figures, Status]:
    """Each of ``steps`` with its own durations, which is what the policy went by: means, and the highest peak."""
    runs = [
        Simulator(recorded(step.graph, step.durations_ns), workspace=step.workspace, device=step.device).run(
            policy, budget_bytes, overrun_bytes=step.overrun_bytes
        )
        for step in steps
    ]
    return Figures(
        peak_bytes=max(run.peak_bytes for run in runs),
        evictions=round(statistics.fmean(run.evictions for run in runs)),
        recomputations=round(statistics.fmean(run.recomputations for run in runs)),
        base_ns=round(statistics.fmean(run.model_ns for run in runs)),
        recompute_ns=round(statistics.fmean(run.remat_ns for run in runs)),
    ), next((run.status for run in runs if run.status != "ok"), "ok")


def _priced(steps: Sequence[LiveStep], graph: Graph, plan: Plan) -> Figures:
    """``plan`` with the mean durations of ``steps``."""
    durations = [statistics.fmean(times) for times in zip(*(s.durations_ns for s in steps), strict=True)]
    computed = [s.op for s in plan.lanes[0].steps if isinstance(s, Compute)]
    base_ns = sum(durations)
    return Figures(
        peak_bytes=replay(graph, plan, workspace=steps[0].workspace).peak_bytes,
        evictions=sum(isinstance(s, Evict) for s in plan.lanes[0].steps),
        recomputations=len(computed) - len(durations),
        base_ns=round(base_ns),
        recompute_ns=round(sum(durations[op] for op in computed) - base_ns),
    )


def _evictions(step: LiveStep) -> int:
    return step.evictions


def _spelt_out(step: LiveStep) -> int:
    return sum(isinstance(s, Evict) for s in step.plan().lanes[0].steps)


def _mean(steps: Sequence[LiveStep], figure: Callable[[LiveStep], int]) -> int:
    return round(statistics.fmean(map(figure, steps)))
