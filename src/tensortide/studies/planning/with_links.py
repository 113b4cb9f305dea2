"""Plans with links: storages move, and what other budgets would recompute is recomputed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from tensortide.plans.instance import Instance
from tensortide.plans.legal import moves
from tensortide.plans.model import Compute, Lane, Plan
from tensortide.plans.transfers.bound import waits
from tensortide.plans.transfers.exact import improve, is_solvable
from tensortide.plans.transfers.search import Transfers
from tensortide.plans.under_budget.bound import NAMES, EachOnce, Proof
from tensortide.plans.under_budget.planned import Planned, Status
from tensortide.plans.under_budget.search import Watch
from tensortide.studies.planning.recomputation import without_links
from tensortide.studies.planning.request import Request
from tensortide.studies.planning.rivals import adopt, policies_plan

ROUNDS = 12
"""Greedy rounds for a sequence."""
SHARES = (0.75, 0.5, 0.25)
"""Between the budget and the peak of the step as recorded: budgets whose recomputation is tried, the rest moves."""
WITHOUT = 0.4
"""Share of the time for the plan without transfers."""
RELAXED = 0.1
"""Share of the time for each budget whose recomputation is tried."""
ALONE = 0.25
"""Share of the time that is left for the plan over each link alone."""
SOLVING = 0.6
"""Deterministic seconds of the solver per unit of effort."""


def with_links(request: Request) -> Planned:
    """The fastest plan found: without transfers; over each link alone; over all; of policies made for traces."""
    theirs = policies_plan(request)
    still = {name: plan for name, plan in request.known.items() if not moves(plan)}
    limit_s = WITHOUT * request.time_limit_s
    without = without_links(request.without_links(request.budget_bytes, time_limit_s=limit_s, known=still))
    search = _Watched(request.instance, request.budget_bytes, request.deadline, watch=request.watch)
    search.bound_ns = request.instance.base_ns
    _offer(search, without, request.known)
    proof: Proof = EachOnce()
    if request.least.nbytes <= request.budget_bytes and not search.done():
        proof = _look(search, request, _Sequences(request, without))
    adopt(search, theirs)
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
        complete=without.complete and time.monotonic() < search.deadline,
        seconds=time.monotonic() - request.began,
    )


@dataclass
class _Watched(Transfers):
    """A search with transfers that ends when the listener has had enough."""

    watch: Watch | None = None

    def done(self) -> bool:
        """Whether the search is over; asks the listener."""
        best = None if self.best is None else self.best.played.makespan_ns
        if self.watch is not None and not self.watch(best, self.bound_ns):
            self.deadline = 0.0
        return super().done()


@dataclass
class _Sequences:
    """Sequences whose storages may move: as recorded, and those that recompute for a larger budget, found once."""

    request: Request
    without: Planned
    _relaxed: list[tuple[str, list[int]]] | None = None

    def __iter__(self) -> Iterator[tuple[str, list[int]]]:
        yield "as recorded", list(range(len(self.request.instance.ops)))
        if self._relaxed is None:
            self._relaxed = [] if is_solvable(self.request.instance) else list(self._larger_budgets())
        yield from self._relaxed

    def _larger_budgets(self) -> Iterator[tuple[str, list[int]]]:
        request = self.request
        excess = max(0, self.without.recorded_peak_bytes - request.budget_bytes)
        for share in SHARES:
            budget, limit_s = request.budget_bytes + int(share * excess), RELAXED * request.time_limit_s
            relaxed = without_links(request.without_links(budget, time_limit_s=limit_s, known={}))
            if relaxed.plan is not None:
                steps = relaxed.plan.lanes[0].steps
                yield relaxed.source, [step.op for step in steps if isinstance(step, Compute)]


def _offer(search: Transfers, without: Planned, known: Mapping[str, Plan]) -> None:
    """Play plans that are known already."""
    if without.plan is not None:
        search.offer_steps(without.plan.lanes[0].steps, search.homes({}), without.source)
    for name, plan in known.items():
        if plan.graph == search.instance.digest and len(plan.lanes) == 1:
            search.offer_steps(plan.lanes[0].steps, plan.home, name)


def _look(search: _Watched, request: Request, sequences: _Sequences) -> Proof:
    """Move storages in each of the ``sequences``, over one link and over all; returns the proof of the bound."""
    if len(request.links) > 1:
        for link in request.links:
            left_s = ALONE * max(0.0, search.deadline - time.monotonic())
            alone = _Watched(_over(search.instance, link.name), search.budget_bytes, time.monotonic() + left_s)
            alone.bound_ns, alone.watch = search.bound_ns, search.watch
            _sequences(alone, request, sequences, f" over {link.name}")
            if alone.best is not None:
                search.offer_steps(alone.best.steps, alone.best.home, alone.best.source)
    _sequences(search, request, sequences)
    found: Proof | None = None
    if request.order == "recorded" and search.best is not None:
        most_ns = search.best.played.makespan_ns - request.instance.base_ns
        search.bound_ns, found = waits(request.instance, request.budget_bytes, most_ns)
    _solve(search, request)
    return found or EachOnce()


def _sequences(search: _Watched, request: Request, sequences: _Sequences, over: str = "") -> None:
    for source, sequence in sequences:
        if search.done():
            return
        search.sequence(sequence, ROUNDS, f"{source}, with transfers{over}")
    if over:
        _solve(search, request)


def _solve(search: _Watched, request: Request) -> None:
    """Look for the optimum of a small step, from the best plan known."""
    for free in (False, True)[: 2 if request.order == "free" else 1]:
        improve(search, free=free, recompute=request.recompute, effort=SOLVING * request.effort)


def _over(instance: Instance, name: str) -> Instance:
    """``instance`` with one of its links alone."""
    return msgspec.structs.replace(instance, links=(instance.link(name),))
