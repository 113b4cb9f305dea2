"""One step under one budget, by one policy or a plan, or by the best of all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from tensortide.errors import PlanError, RequestError
from tensortide.plans import save_plan
from tensortide.plans.model import Plan
from tensortide.plans.remat.choice import decision
from tensortide.plans.remat.choice import policy as find_policy
from tensortide.plans.remat.policies import DEFAULT_POLICY, contenders
from tensortide.progress import Say, silent
from tensortide.replays.remat import Simulator
from tensortide.replays.remat.budgets import MISSING, Budget, activation_bytes, one_budget
from tensortide.replays.remat.simulator import AUTO, play, smallest_budget
from tensortide.request import Arg, Opt, OutFile, Request
from tensortide.studies.planning.quick import least_plan, quick_plan
from tensortide.studies.remat.budgeted import Budgeted, of_plan, of_policy
from tensortide.studies.remat.request import Handling, Limit, PlayedRequest
from tensortide.targets.requests import TARGET, Top


@dataclass(frozen=True, kw_only=True)
class SimulateRequest(Request):
    """Question whether a step runs within a budget, at what price, and if not, why not."""

    GROUP = "The budget and the policy"

    target: Annotated[str, Arg(TARGET)]
    budget: Annotated[
        Budget | None,
        Opt(
            "Memory that the step may take: 8GiB, 24 GB, or 60% of what it takes without a budget, 60%act of "
            "the activations in that. Optional with a plan.",
            read=partial(one_budget, many="tensortide remat sweep"),
            common=True,
        ),
    ] = None
    policy: Annotated[
        str,
        Opt(
            "Eviction policy: dtr-eq, msps, lru, ..., your own as FILE.py:NAME, a plan as FILE.json, or auto, the "
            "best of all policies and of plans made ahead.",
            common=True,
            value="POLICY",
        ),
    ] = AUTO
    limit: Limit = 2.0
    top: Top = 10
    plan: Annotated[Path | None, OutFile("Write the run as a plan, if it ends.")] = None
    deallocation: Handling = "eager"
    step: PlayedRequest = PlayedRequest()


def answer(asked: SimulateRequest, say: Say = silent) -> Budgeted:
    """The run of the step.

    Raises:
        PlanError: there is no such policy, or a plan does not execute the step.
        RequestError: a policy has no budget.
    """
    plan = _plan_of(asked.policy)
    if plan is None and asked.budget is None:
        raise RequestError(MISSING)
    recording, step = asked.step.recording(asked.target, say), asked.step
    simulator = Simulator(
        recording, compat=step.compat, deallocation=asked.deallocation, device=step.capture.device or ""
    )
    nbytes = None if asked.budget is None else _bytes_of(asked.budget, simulator)
    if plan is not None:
        return _replay(simulator, plan, asked.policy, nbytes)
    assert nbytes is not None
    return _play(simulator, asked.policy, nbytes, asked.limit, say)


def _bytes_of(budget: Budget, simulator: Simulator) -> int:
    of = activation_bytes(simulator.recording.graph, simulator.schedule.device) if budget.of_activations else 0
    return budget.bytes_of(simulator.baseline_bytes, of)


def simulate(asked: SimulateRequest) -> Budgeted:
    """The run of the step, as ``answer`` has it, and its plan written where that is asked for."""
    run = answer(asked)
    write_plan(run, asked.plan)
    return run


def write_plan(run: Budgeted, path: Path | None) -> list[Path]:
    """Write the plan that was played, or that of a run that ended; nothing if there is none or no ``path``."""
    plan = run.plan
    if plan is None and run.simulation is not None and run.outcome == "ok":
        plan = run.simulation.plan()
    return [] if path is None or plan is None else [save_plan(plan, path)]


def _plan_of(policy: str) -> Plan | None:
    """Return the plan that ``policy`` names, None for a policy. Raises PlanError if it is neither."""
    if policy == AUTO:
        return None
    found = decision(policy)
    return found if isinstance(found, Plan) else None


def _replay(simulator: Simulator, plan: Plan, name: str, budget: int | None) -> Budgeted:
    try:
        return of_plan(simulator, plan, name, budget_bytes=budget)
    except PlanError as error:
        raise PlanError(f"{name} does not execute this step: {error}") from error


def _play(simulator: Simulator, policy: str, budget: int, limit: float, say: Say) -> Budgeted:
    say("simulating")
    run, others = play(simulator, policy, budget, overhead_limit=limit)
    plans = policy == AUTO and not simulator.compat and simulator.deallocation == "eager"
    if plans and (run.status != "ok" or run.clock_ns > simulator.schedule.model_ns):
        say("planning")
        known = {run.policy: run.plan()} if run.status == "ok" else {}
        planned = quick_plan(simulator, budget, known)
        most_ns = run.clock_ns - 1 if run.status == "ok" else int(limit * simulator.schedule.model_ns)
        if planned is not None and planned.plan is not None and (planned.step_ns or 0) <= most_ns:
            name = f"{AUTO}: planned, {planned.source}"
            return of_plan(simulator, planned.plan, name, budget_bytes=budget, others=others)
    smallest, least = None, None
    if run.status != "ok":
        say("looking for what would do")
        smallest = smallest_budget(simulator, run.policy, overhead_limit=limit, above=budget)
        if plans:
            least = least_plan(simulator, budget, int(limit * simulator.schedule.model_ns))
        if policy != AUTO and simulator.has_kernel(find_policy(policy)):
            names = (name for name in contenders(seeded=False) if name not in (policy, DEFAULT_POLICY))
            others = tuple(simulator.run(name, budget, overhead_limit=limit) for name in names)
    player = simulator.by(run.rules.deallocation)  # the best of all runs may be one with banishing
    name = f"{AUTO}: {run.policy}{'' if player is simulator else ' with banishing'}" if policy == AUTO else run.policy
    return replace(of_policy(player, run, smallest=smallest, others=others, name=name), least_plan=least)
