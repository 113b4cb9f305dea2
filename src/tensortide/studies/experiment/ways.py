"""Simulated trials, and the plans that trials follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tensortide.errors import BudgetInfeasible, PlanError, RunError
from tensortide.plans.model import Compute, Lane, Plan
from tensortide.plans.remat.choice import decision
from tensortide.plans.under_budget.known import Known
from tensortide.plans.under_budget.sequence import evaluate, sequence_of, steps_of
from tensortide.replays.remat import Simulator
from tensortide.replays.remat.simulation import UNLIMITED
from tensortide.replays.remat.simulator import least_bytes
from tensortide.studies.experiment.captures import digest_of, simulator_for
from tensortide.studies.experiment.results import Repetition
from tensortide.studies.experiment.trials import NONE, Trial
from tensortide.studies.planning.known import per_block
from tensortide.studies.planning.partitioner import sequences
from tensortide.studies.planning.planning import plan as fastest_plan
from tensortide.studies.planning.problem import Problem
from tensortide.studies.remat.budgeted import of_plan
from tensortide.studies.remat.comparison import optimum_plan
from tensortide.studies.remat.subject import Subject
from tensortide.units import format_bytes

Told: TypeAlias = Callable[[Repetition], None]
"""Is told each repetition as soon as it ends."""
_BATCH = ("batch", "batch_size", "bs")
"""Names of the hyperparameter that is the number of samples of a step."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A trial to run: its budget in bytes, the peak of its baseline and the digest of that one's step if they are
    known, and its files: of the captured step, of its log, and of what it prints."""

    trial: Trial
    budget_bytes: int | None = None
    baseline_bytes: int | None = None
    step: str = ""
    capture: str = ""
    log: str = ""
    printed: str = ""

    @property
    def limit_bytes(self) -> int:
        """The budget; without one no limit."""
        return UNLIMITED if self.budget_bytes is None else self.budget_bytes


class Ended(NamedTuple):
    """A trial that ran: the number of samples of a step, if it is known, and of a simulated baseline the digest of the
    step."""

    batch: int | None
    step: str = ""


def batch_of(settings: Mapping[str, Any]) -> int | None:
    """The number of samples of a step with these hyperparameters; None if none of them says so."""
    return next((settings[name] for name in _BATCH if isinstance(settings.get(name), int)), None)


# -- simulated --------------------------------------------------------------------------------------


def simulated(asked: Asked, say: Told) -> Ended:
    """Play the step, and tell the only repetition.

    Raises BudgetInfeasible where the step does not fit.
    """
    trial = asked.trial
    simulator = simulator_for(trial, asked.capture, asked.step)
    schedule, step = simulator.schedule, ""
    repetition: Callable[..., Repetition] = partial(Repetition, durations=simulator.recording.source)
    if trial.policy == NONE:
        say(repetition(times_ns=(schedule.model_ns,), peak_bytes=simulator.baseline_bytes))
        step = digest_of(simulator.recording.graph, simulator.recording.durations_ns)
    elif (plan := plan_of(asked, simulator, asked.limit_bytes)) is not None:
        run = of_plan(simulator, plan, trial.policy, budget_bytes=asked.budget_bytes)
        if run.outcome != "ok" and trial.has_limit:
            peak, budget = format_bytes(run.peak_bytes), format_bytes(asked.limit_bytes)
            raise BudgetInfeasible(f"the plan needs {peak}, more than the budget of {budget}")
        counts = {"evictions": sum(count for count, _ in run.evicted.values()), "recomputations": len(run.recomputed)}
        times = {"base_ns": schedule.model_ns, "recomputation_ns": run.clock_ns - schedule.model_ns}
        say(repetition(times_ns=(run.clock_ns,), peak_bytes=run.peak_bytes, **counts, **times))
    else:
        found = simulator.run(trial.policy, asked.limit_bytes, overhead_limit=trial.limit)
        if found.status != "ok":
            over = f"given up at {trial.limit:g} times the time of the step"
            least = f"every policy needs {format_bytes(least_bytes(schedule).size_bytes)}, most need more"
            short = f"nothing was left to evict under {format_bytes(asked.limit_bytes)}; {least}"
            raise BudgetInfeasible({"oom": f"out of memory: {short}", "thrash": over}[found.status])
        counts = {name: getattr(found, name) for name in ("evictions", "recomputations", "evaluations")}
        times = {"base_ns": schedule.model_ns, "recomputation_ns": found.remat_ns}
        say(repetition(times_ns=(found.clock_ns,), peak_bytes=found.peak_bytes, **counts, **times))
    return Ended(batch_of(simulator.recording.graph.meta.hyperparameters), step)


# -- plans ------------------------------------------------------------------------------------------


def plan_of(asked: Asked, simulator: Simulator, budget_bytes: int) -> Plan | None:
    """The plan that the trial follows within ``budget_bytes``; None for an eviction policy.

    Raises BudgetInfeasible if there is none, RunError if none was found in time.
    """
    trial, recording, device = asked.trial, simulator.recording, simulator.schedule.device
    if trial.policy == "checkpoint":
        return _known(simulator, per_block)
    if trial.policy == "aot":
        assert trial.budget is not None
        return _known(simulator, partial(_partitioned, setting=trial.budget.ratio or 0.0))
    if trial.policy == "checkmate":
        return optimum_plan(Subject(trial.workload, recording, device=device), budget_bytes, trial.search)
    if trial.policy == "plan":
        found = fastest_plan(recording, budget_bytes, device=device, time_limit_s=trial.search)
        if found.status == "infeasible":
            raise BudgetInfeasible(f"no plan fits {format_bytes(budget_bytes)}: that is proved")
        if found.plan is None:
            raise RunError(f"no plan within {format_bytes(budget_bytes)} was found in {trial.search:g} s")
        return found.plan
    given = decision(trial.policy)
    return given if isinstance(given, Plan) else None


def _known(simulator: Simulator, maker: Callable[[Problem], Iterator[Known]]) -> Plan:
    """The first plan that ``maker`` has for the step. Raises PlanError with the reason if there is none."""
    problem = _problem(simulator)
    found = next(maker(problem), None)
    if found is None or found.sequence is None:
        raise PlanError(found.reason if found is not None else "no module of the step is repeated: nothing to choose")
    return _written(problem, found.sequence)


def in_recorded_order(plan: Plan, simulator: Simulator) -> Plan:
    """The plan with first runs in recorded order, which a live program keeps: planners over values compute views with
    their sources. Recomputations stay before the first run that they are for. Raises PlanError if that is no plan."""
    problem, again = _problem(simulator), dict[int, list[int]]()
    pending: list[int] = []
    for op in sequence_of(plan.lanes[0].steps):
        if op in again:
            pending.append(op)
        else:
            again[op], pending = pending, []
    sequence = [each for op in sorted(again) for each in (*again[op], op)]
    evaluate(problem.instance, problem.tables, sequence, free=False)
    return _written(problem, sequence)


def _problem(simulator: Simulator) -> Problem:
    return Problem(recording=simulator.recording, device=simulator.schedule.device, budget_bytes=UNLIMITED)


def _written(problem: Problem, sequence: Sequence[int]) -> Plan:
    lane = Lane(problem.device, steps_of(problem.tables, map(Compute, sequence)))
    return Plan(problem.recording.graph.index.digest, (lane,))


def _partitioned(problem: Problem, setting: float) -> Iterator[Known]:
    return sequences(problem.recording.graph, problem.instance, problem.tables, (setting,))
