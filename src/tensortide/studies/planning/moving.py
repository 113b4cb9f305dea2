"""Plans with links: storages move, and what other budgets would recompute is recomputed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from tensortide.plans.instance import Instance
from tensortide.plans.model import Compute, Evict, Lane, Plan, Step
from tensortide.plans.transfers.bound import waits
from tensortide.plans.transfers.exact import improve, is_solvable
from tensortide.plans.transfers.least import least_with_transfers
from tensortide.plans.transfers.search import Transfers
from tensortide.plans.under_budget.bound import NAMES, EachOnce, Proof
from tensortide.plans.under_budget.planned import FirstRuns, Planned, Status

ROUNDS = 12
"""Greedy rounds for a sequence."""
SHARES = (0.75, 0.5, 0.25)
"""Between the budget and the peak of the step as recorded: budgets whose recomputation is tried, the rest moves."""
WITHOUT = 0.4
"""Share of the time for the plan without transfers."""
RELAXED = 0.1
"""Share of the time for each budget whose recomputation is tried."""
SOLVING = 0.6
"""Deterministic seconds of the solver per unit of effort."""

WithoutLinks: TypeAlias = Callable[..., Planned]
"""Plans without transfers: called with the budget, and with ``time_limit_s``."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A step with links, to be planned within a time since ``began`` (of ``time.monotonic``)."""

    instance: Instance
    budget_bytes: int
    order: FirstRuns
    effort: float
    began: float
    time_limit_s: float

    @property
    def deadline(self) -> float:
        """When the time is up."""
        return self.began + self.time_limit_s


def planned_with_links(asked: Problem, without_links: WithoutLinks, known: Mapping[str, Plan]) -> Planned:
    """The fastest plan found: without transfers; in recorded order and in the sequences that recompute for this or a
    larger budget, over all links or one of them; of a small step, what the solver finds from there."""
    still = {name: plan for name, plan in known.items() if not any(_moves(step) for step in plan.lanes[0].steps)}
    without = without_links(asked.budget_bytes, time_limit_s=WITHOUT * asked.time_limit_s, known=still)
    needs = least_with_transfers(asked.instance, recorded=asked.order == "recorded")
    search = Transfers(asked.instance, asked.budget_bytes, asked.deadline)
    _offer(search, without, known)
    proof: Proof = EachOnce()
    search.bound_ns = asked.instance.base_ns
    if not search.done() and needs.nbytes <= asked.budget_bytes:
        _sequences(asked, search, without, without_links)
        if asked.order == "recorded" and search.best is not None:
            most_ns = search.best.played.makespan_ns - asked.instance.base_ns
            search.bound_ns, found = waits(asked.instance, asked.budget_bytes, most_ns)
            proof = found or proof
        for free in (False, True)[: 2 if asked.order == "free" else 1]:
            improve(search, free=free, recompute=True, effort=SOLVING * asked.effort)
    best = search.best
    status: Status = "fits" if best else "infeasible" if needs.nbytes > asked.budget_bytes else "none found"
    moves = [f"moves over {link.name}" for link in asked.instance.links]
    lanes = () if best is None else (Lane(without.device, best.steps),)
    return msgspec.structs.replace(
        without,
        status=status,
        plan=None if best is None else Plan(asked.instance.digest, lanes, dict(best.home)),
        time_ns=None if best is None else best.played.makespan_ns,
        peak_bytes=None if best is None else best.played.peak_bytes,
        bound_ns=search.bound_ns,
        plan_class=", ".join((without.plan_class, *moves)),
        bound_name=NAMES[type(proof)],
        proof=proof,
        least=needs,
        source="" if best is None else best.source,
        work=without.work + search.work,
        complete=without.complete and time.monotonic() < asked.deadline,
        seconds=time.monotonic() - asked.began,
    )


def _moves(step: Step) -> bool:
    return not isinstance(step, Compute | Evict)


def _offer(search: Transfers, without: Planned, known: Mapping[str, Plan]) -> None:
    """Play plans that are known already."""
    if without.plan is not None:
        search.offer_steps(without.plan.lanes[0].steps, search.homes({}), without.source)
    for name, plan in known.items():
        if plan.graph == search.instance.digest and len(plan.lanes) == 1:
            search.offer_steps(plan.lanes[0].steps, plan.home, name)


def _sequences(asked: Problem, search: Transfers, without: Planned, without_links: WithoutLinks) -> None:
    recorded = range(len(asked.instance.ops))
    search.sequence(recorded, ROUNDS, "as recorded, with transfers")
    if len(asked.instance.links) > 1:
        for link in asked.instance.links:
            alone = Transfers(_over(asked.instance, link.name), asked.budget_bytes, asked.deadline)
            alone.sequence(recorded, ROUNDS, f"as recorded, with transfers over {link.name}")
            if alone.best is not None:
                search.offer_steps(alone.best.steps, alone.best.home, alone.best.source)
    excess = max(0, without.recorded_peak_bytes - asked.budget_bytes)
    for share in SHARES:
        if search.done() or is_solvable(asked.instance):
            return
        relaxed = without_links(asked.budget_bytes + int(share * excess), time_limit_s=RELAXED * asked.time_limit_s)
        if relaxed.plan is not None:
            sequence = [step.op for step in relaxed.plan.lanes[0].steps if isinstance(step, Compute)]
            search.sequence(sequence, ROUNDS, f"{relaxed.source}, with transfers")


def _over(instance: Instance, name: str) -> Instance:
    """``instance`` with one of its links alone."""
    return msgspec.structs.replace(instance, links=(instance.link(name),))
