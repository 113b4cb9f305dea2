"""From a run to what is shown of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tensortide.plans import Plan
from tensortide.replays.remat.smallest import least_bytes
from tensortide.replays.remat.telemetry import Telemetry
from tensortide.reports.simulation import words
from tensortide.reports.simulation.records import Attempt, SimulationView
from tensortide.reports.simulation.run import Run, run_of, run_of_plan
from tensortide.reports.simulation.tables import by_kind, by_module, evicted, place, stopped

if TYPE_CHECKING:
    from tensortide.replays.remat import Simulation, Simulator


def view(
    simulator: Simulator,
    simulation: Simulation,
    told: Telemetry,
    *,
    smallest: Simulation | None = None,
    instead: Sequence[Simulation] = (),
    policy: str = "",
) -> SimulationView:
    """What is shown of ``simulation``, a run of ``simulator`` with the telemetry ``told``.

    ``smallest``: of a run that was given up, the one of this policy with the smallest budget that works. ``instead``:
    what others make of this budget; those that are not by the rules of the first one are by banishing. ``policy``:
    what it is called, if that is not the name of the run's own policy.
    """
    shown = _view(
        simulator,
        run_of(simulator.recording, simulation.schedule, told, workspace=simulator.workspace),
        policy or simulation.policy,
        simulation.status,
        simulation.budget_bytes,
        simulation.clock_ns,
    )
    stop = told.stop
    shown = msgspec.structs.replace(
        shown,
        overhead_limit=simulation.overhead_limit,
        peak_bytes=simulation.peak_bytes,
        counters=told.counters,
        stopped=None if stop is None else stopped(simulation.schedule, stop),
        smallest=None if smallest is None else attempt(smallest),
        instead=tuple(
            attempt(run, banishing=run.rules.deallocation != instead[0].rules.deallocation) for run in instead
        ),
    )
    return _worded(shown)


def view_of_plan(simulator: Simulator, plan: Plan, name: str, *, budget_bytes: int | None) -> SimulationView:
    """What is shown of ``plan``, played on the step of ``simulator``. Raises PlanError if it does not execute it."""
    run = run_of_plan(simulator.recording, plan, workspace=simulator.workspace)
    fits = budget_bytes is None or max(run.curves.after_bytes, default=0) <= budget_bytes
    clock = sum(run.durations_ns[op] for op in run.curves.op)
    shown = _view(simulator, run, name, "ok" if fits else "over", budget_bytes, clock)
    return _worded(msgspec.structs.replace(shown, rules=""))


def attempt(simulation: Simulation, *, banishing: bool = False) -> Attempt:
    """``simulation`` in a few figures."""
    return Attempt(
        policy=simulation.policy + (" with banishing" if banishing else ""),
        budget_bytes=simulation.budget_bytes or 0,
        status=simulation.status,
        overhead=simulation.overhead,
        peak_bytes=simulation.peak_bytes,
    )


def _worded(shown: SimulationView) -> SimulationView:
    return msgspec.structs.replace(shown, verdict=words.verdict(shown), advice=tuple(words.advice(shown)))


def _view(
    simulator: Simulator, run: Run, policy: str, status: str, budget_bytes: int | None, clock_ns: int
) -> SimulationView:
    """What runs of policies and of plans have in common."""
    meta, schedule = run.graph.meta, simulator.schedule
    least, op = least_bytes(schedule)
    again = [op for op, again in zip(run.curves.op, run.curves.again, strict=True) if again]
    return SimulationView(
        workload=meta.workload,
        hyperparameters=meta.hyperparameters,
        framework=meta.framework,
        ops=len(run.graph),
        device=schedule.device,
        durations=simulator.recording.source,
        policy=policy,
        rules=words.rules(simulator.deallocation, simulator.compat),
        budget_bytes=budget_bytes,
        overhead_limit=None,
        status=status,
        verdict="",
        advice=(),
        baseline_bytes=simulator.baseline_bytes,
        peak_bytes=max(run.curves.after_bytes, default=0),
        least_bytes=least,
        least_op=place(run.graph, int(schedule.origin[op])) if op >= 0 else None,
        model_ns=schedule.model_ns,
        clock_ns=clock_ns,
        remat_ns=sum(run.durations_ns[op] for op in again),
        overhead=clock_ns / schedule.model_ns if schedule.model_ns else 1.0,
        recomputed=len(again),
        counters=None,
        modules=by_module(run),
        kinds=by_kind(run),
        evicted=evicted(run),
        stopped=None,
        smallest=None,
        instead=(),
        curves=run.curves,
    )
