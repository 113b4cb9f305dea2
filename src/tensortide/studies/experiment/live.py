"""Live trials: each repetition builds the workload anew, and is measured."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from tensortide.plans.model import Plan
from tensortide.plans.remat.choice import decision
from tensortide.replays.remat import Simulator
from tensortide.studies.experiment.captures import requested, step_for
from tensortide.studies.experiment.results import Repetition
from tensortide.studies.experiment.ways import Asked, Ended, Told, batch_of, in_recorded_order, plan_of
from tensortide.targets.opening import settings_of, step_of

if TYPE_CHECKING:
    from tensortide.run.budget import Budget
    from tensortide.run.program import Program


def live(asked: Asked, say: Told, dropped: Callable[[], None]) -> Ended:
    """Run the repetitions, and tell each: those that do not count to ``dropped``.

    Raises BudgetInfeasible where a step does not fit.
    """
    from tensortide.profile.host import chosen_threads
    from tensortide.run.program import Program
    from tensortide.run.repetitions import logged, seed_all

    trial = asked.trial
    workload = step_of(trial.workload, "a live trial")
    settings = settings_of(workload, requested(trial, measure=False).capture)
    program = Program(trial.workload, workload.function, settings)
    with chosen_threads(trial.threads):
        repeat = (_limited if trial.has_limit else _unlimited)(asked, program)
        for number in range(trial.dropped + trial.repeats):
            if trial.seed is not None:
                seed_all(trial.seed)
            found = repeat()
            if number < trial.dropped:
                dropped()
            else:
                say(found)
        if trial.save_log:
            logged(program, _budgets(asked)(), asked.log)
    usual = {one.name: one.default for one in inspect.signature(workload.function).parameters.values()}
    return Ended(batch_of({**usual, **settings}))


def _unlimited(asked: Asked, program: Program) -> Callable[[], Repetition]:
    """A repetition of steps without a memory budget: ordinary ones, or in a way of PyTorch."""
    from tensortide.run.repetitions import by_block, by_partitioner, ordinary, repetition

    trial = asked.trial
    setting = None if trial.policy != "aot" or trial.budget is None else trial.budget.ratio
    way = by_block if trial.policy == "checkpoint" else ordinary if setting is None else by_partitioner(setting)

    def repeat() -> Repetition:
        found = repetition(program, trial.device, trial.steps, way, compiled=setting is not None)
        return Repetition(times_ns=tuple(found.times_ns), peak_bytes=found.peak_bytes)

    return repeat


def _limited(asked: Asked, program: Program) -> Callable[[], Repetition]:
    """A repetition of steps under the budget, by a policy or a plan."""
    from tensortide.run.measure import measured

    trial, make = asked.trial, _budgets(asked)

    def repeat() -> Repetition:
        found = measured(program, make(), trial.steps, plain=False)
        return Repetition(
            times_ns=found.times_ns,
            peak_bytes=found.step.peak_bytes,
            evictions=found.step.evictions,
            recomputations=found.step.recomputations,
            base_ns=found.step.base_ns,
            recomputation_ns=found.step.recomputation_ns,
            search_ns=found.step.search_ns,
        )

    return repeat


def _budgets(asked: Asked) -> Callable[[], Budget]:
    """Make the budget of each repetition. Its plan is made once, with durations that are measured here, for what
    the budget leaves the captured step of the whole program's memory."""
    from tensortide.run.budget import Budget
    from tensortide.run.repetitions import core_ready

    core_ready()
    trial, limit = asked.trial, asked.limit_bytes
    if trial.rival is None and not isinstance(decision(trial.policy), Plan):
        return lambda: Budget(limit, trial.policy, device=trial.device)
    recording = step_for(trial, asked.capture, measure=True)
    simulator = Simulator(recording, device=trial.device or "")
    elsewhere = max(0, (asked.baseline_bytes or 0) - simulator.baseline_bytes)
    plan = plan_of(asked, simulator, max(1, limit - elsewhere))
    assert plan is not None
    if trial.policy == "checkmate":
        plan = in_recorded_order(plan, simulator)
    return lambda: Budget(limit, plan, graph=recording.graph, device=trial.device)
