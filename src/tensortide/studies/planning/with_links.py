"""Plans with links: storages move, and what other budgets would recompute is recomputed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import msgspec

from tensortide.plans.legal import moves
from tensortide.plans.model import Lane, Plan
from tensortide.plans.planned import Planned, Status
from tensortide.plans.proofs import NAMES, Proof
from tensortide.plans.transfers.bound import waits
from tensortide.plans.transfers.decoder import Made
from tensortide.plans.transfers.exact import improve, is_solvable
from tensortide.plans.transfers.search import Transfers
from tensortide.plans.transfers.windows import TIME_LIMIT_S, windows
from tensortide.plans.under_budget.bound import EachOnce
from tensortide.plans.under_budget.search import SMALL_EFFORT, Stopped
from tensortide.plans.under_budget.tables import Ints
from tensortide.studies.planning.g10_moves import adopt, policies_plan
from tensortide.studies.planning.recomputation import without_links
from tensortide.studies.planning.request import Request

ROUNDS = 12
"""Greedy rounds for a sequence."""
OPS_PER_FIT = 70
"""Fitting a sequence takes about as long as playing it so many times."""
MOST_WAITS = 500
"""Longest step whose bound is looked for op by op, which takes no look at the clock."""
WITHOUT = 0.4
"""Share of the time for the plan without transfers."""
SOLVING = 0.6
"""Deterministic seconds of the solver per unit of effort."""


def with_links(request: Request) -> Planned:
    """The fastest plan found: without transfers; in recorded order, with transfers over all links or one of them, and
    beside recomputation; by policies made for traces; of a small step, what the solver finds from there."""
    theirs = policies_plan(request)
    search = Transfers(request.instance, request.budget_bytes, request.deadline, watch=request.watch)
    search.bound_ns = request.instance.base_ns
    proof: Proof = EachOnce()
    fits = request.least.nbytes <= request.budget_bytes
    complete = True
    start = None
    try:
        _offer(search, request.known)
        if fits and not search.done():
            start = _first(request, search)
    except Stopped:
        complete = False
    without = _without(request, search)
    adopt(search, theirs)
    try:
        if complete and fits and not search.done():
            if request.order == "recorded" and search.best is not None:
                search.bound_ns, proof = _bound(request, search.best.played.makespan_ns - request.instance.base_ns)
            _improve(request, search, start)
    except Stopped:
        complete = False
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
        complete=complete and without.complete,
        seconds=time.monotonic() - request.began,
    )


def _offer(search: Transfers, known: Mapping[str, Plan]) -> None:
    """Play plans that are known already."""
    for name, plan in known.items():
        if plan.graph == search.instance.digest and len(plan.lanes) == 1:
            search.offer_steps(plan.lanes[0].steps, plan.home, name)


def _first(request: Request, search: Transfers) -> tuple[Made, Ints]:
    """Look for first plans in recorded order; returns one with recomputations."""
    recorded = range(len(request.instance.ops))
    start = search.fit(recorded, "recomputation and transfers")
    search.sequence(recorded, ROUNDS, "as recorded, with transfers")
    for link in request.instance.links if len(request.instance.links) > 1 else ():
        over = msgspec.structs.replace(request.instance, links=(request.instance.link(link.name),))
        alone = Transfers(over, request.budget_bytes, request.deadline, watch=request.watch)
        alone.fit(recorded, f"recomputation, and transfers over {link.name}")
        alone.sequence(recorded, ROUNDS, f"as recorded, with transfers over {link.name}")
        _solve(request, alone)
        if alone.best is not None:
            search.offer_steps(alone.best.steps, alone.best.home, alone.best.source)
    return start


def _without(request: Request, search: Transfers) -> Planned:
    """The fastest plan without transfers, offered; ``watch`` is told of the best plan of all meanwhile."""

    def watch(best_ns: int | None, _: int) -> bool:
        known_ns = None if search.best is None else search.best.played.makespan_ns
        found = [x for x in (best_ns, known_ns) if x is not None]
        return request.watch is None or request.watch(min(found, default=None), search.bound_ns)

    left_s = max(0.0, request.deadline - time.monotonic())
    still = {name: plan for name, plan in request.known.items() if not moves(plan)}
    alone = request.without_links(request.budget_bytes, time_limit_s=WITHOUT * left_s, known=still)
    made = without_links(replace(alone, watch=watch))
    if made.plan is not None:
        search.offer_steps(made.plan.lanes[0].steps, search.homes({}), made.source)
    return made


def _bound(request: Request, most_ns: int) -> tuple[int, Proof]:
    """The best bound, at most ``most_ns`` over the time of every op once, and its proof."""
    best: tuple[int, Proof] = (request.instance.base_ns, EachOnce())
    wide = partial(windows, time_limit_s=min(TIME_LIMIT_S, request.deadline - time.monotonic()))
    for bound_of in (waits, wide) if len(request.instance.ops) <= MOST_WAITS else (wide,):
        bound_ns, found = bound_of(request.instance, request.budget_bytes, most_ns)
        if found is not None and bound_ns > best[0]:
            best = bound_ns, found
    return best


def _improve(request: Request, search: Transfers, start: tuple[Made, Ints] | None) -> None:
    """Ruin and fit; solve a small step."""
    if start is not None and not start[0].short_bytes:
        most = SMALL_EFFORT if is_solvable(request.instance) else request.effort
        search.improve(start, int(most * 10**6 / (OPS_PER_FIT * len(request.instance.ops))), "search with transfers")
    _solve(request, search)


def _solve(request: Request, search: Transfers) -> None:
    """Look for the optimum of a small step, from the best plan known."""
    for free in (False, True)[: 2 if request.order == "free" else 1]:
        improve(search, free=free, recompute=request.recompute, effort=SOLVING * request.effort)
