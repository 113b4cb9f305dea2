"""Plans with links: storages move, and what other budgets would recompute is recomputed."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from tensortide.plans.instance import Instance
from tensortide.plans.legal import moves
from tensortide.plans.model import Compute, Lane, Plan
from tensortide.plans.transfers.bound import waits
from tensortide.plans.transfers.exact import improve, is_solvable
from tensortide.plans.transfers.search import Transfers
from tensortide.plans.under_budget.bound import NAMES, EachOnce, Proof
from tensortide.plans.under_budget.planned import Planned, Status
from tensortide.studies.planning.recomputation import without_links
from tensortide.studies.planning.request import Request
from tensortide.studies.planning.rivals import offer_policies

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


def with_links(request: Request) -> Planned:
    """The fastest plan found: without transfers; in recorded order and in the sequences that recompute for this or a
    larger budget, over all links or one of them; of a small step, what the solver finds from there."""
    still = {name: plan for name, plan in request.known.items() if not moves(plan)}
    limit_s = WITHOUT * request.time_limit_s
    without = without_links(request.without_links(request.budget_bytes, time_limit_s=limit_s, known=still))
    search = Transfers(request.instance, request.budget_bytes, request.deadline)
    _offer(search, without, request.known)
    proof: Proof = EachOnce()
    search.bound_ns = request.instance.base_ns
    if not search.done() and request.least.nbytes <= request.budget_bytes:
        _sequences(request, search, without)
        offer_policies(search, request)
        if request.order == "recorded" and search.best is not None:
            most_ns = search.best.played.makespan_ns - request.instance.base_ns
            search.bound_ns, found = waits(request.instance, request.budget_bytes, most_ns)
            proof = found or proof
        for free in (False, True)[: 2 if request.order == "free" else 1]:
            improve(search, free=free, recompute=request.recompute, effort=SOLVING * request.effort)
    best = search.best
    status: Status = "fits" if best else "infeasible" if request.least.nbytes > request.budget_bytes else "none found"
    lanes = () if best is None else (Lane(without.device, best.steps),)
    return msgspec.structs.replace(
        without,
        status=status,
        plan=None if best is None else Plan(request.instance.digest, lanes, dict(best.home)),
        time_ns=None if best is None else best.played.makespan_ns,
        peak_bytes=None if best is None else best.played.peak_bytes,
        bound_ns=search.bound_ns,
        plan_class=request.plan_class,
        bound_name=NAMES[type(proof)],
        proof=proof,
        least=request.least,
        source="" if best is None else best.source,
        work=without.work + search.work,
        complete=without.complete and time.monotonic() < request.deadline,
        seconds=time.monotonic() - request.began,
    )


def _offer(search: Transfers, without: Planned, known: Mapping[str, Plan]) -> None:
    """Play plans that are known already."""
    if without.plan is not None:
        search.offer_steps(without.plan.lanes[0].steps, search.homes({}), without.source)
    for name, plan in known.items():
        if plan.graph == search.instance.digest and len(plan.lanes) == 1:
            search.offer_steps(plan.lanes[0].steps, plan.home, name)


def _sequences(request: Request, search: Transfers, without: Planned) -> None:
    recorded = range(len(request.instance.ops))
    search.sequence(recorded, ROUNDS, "as recorded, with transfers")
    if len(request.instance.links) > 1:
        for link in request.instance.links:
            alone = Transfers(_over(request.instance, link.name), request.budget_bytes, request.deadline)
            alone.sequence(recorded, ROUNDS, f"as recorded, with transfers over {link.name}")
            if alone.best is not None:
                search.offer_steps(alone.best.steps, alone.best.home, alone.best.source)
    excess = max(0, without.recorded_peak_bytes - request.budget_bytes)
    for share in SHARES:
        if search.done() or is_solvable(request.instance):
            return
        budget, limit_s = request.budget_bytes + int(share * excess), RELAXED * request.time_limit_s
        relaxed = without_links(request.without_links(budget, time_limit_s=limit_s, known={}))
        if relaxed.plan is not None:
            sequence = [step.op for step in relaxed.plan.lanes[0].steps if isinstance(step, Compute)]
            search.sequence(sequence, ROUNDS, f"{relaxed.source}, with transfers")


def _over(instance: Instance, name: str) -> Instance:
    """``instance`` with one of its links alone."""
    return msgspec.structs.replace(instance, links=(instance.link(name),))
