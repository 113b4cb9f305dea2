"""Plans with links: storages move, and what other budgets would recompute is recomputed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from tensortide.plans.legal import moves
from tensortide.plans.model import Lane, Plan
from tensortide.plans.planned import Planned, Status
from tensortide.plans.proofs import NAMES
from tensortide.plans.transfers.exact import is_solvable
from tensortide.plans.under_budget.search import Stopped
from tensortide.studies.planning.recomputation import RECORDED, any_order, without_links
from tensortide.studies.planning.request import Request
from tensortide.studies.planning.ways import Way, ways_of

WITHOUT, PARTS = 0.3, 0.4
"""Shares of the limit that is left: for the plan without transfers, then for ways that do not include all."""


def with_links(request: Request) -> Planned:
    """The fastest plan found: without transfers; over each set of links, with recomputation and without; by policies
    made for traces; of a small step, what the solver finds from there."""
    began, recorded = request.began, request
    if request.order == "free":
        recorded = request.in_recorded_order(share=RECORDED)
    search = _Search(recorded)
    without = search.run(without_links, range(len(request.instance.ops)), "as recorded")
    if request.order == "free":
        search.loosen(request)
        if not search.is_over:
            without = search.run(partial(any_order, first=without), request.least_order, "order of the least peak")
    return search.result(request, without, time.monotonic() - began)


class _Search:
    """A search over all ways that ``request`` allows. ``whole``: the one that includes all others."""

    def __init__(self, request: Request) -> None:
        self.request, self.complete, self.is_stopped = request, True, False
        self.without_ns: int | None = None
        self.ways = ways_of(request, self._goes_on)
        *self.parts, self.whole = self.ways
        for way in self.ways:
            self._try(way, partial(way.offer, request.known))

    def loosen(self, request: Request) -> None:
        """Go on with first runs in any order."""
        self.request = request
        for way in self.ways:
            way.loosen(request)

    @property
    def is_over(self) -> bool:
        """Whether the limit is reached, the listener has had enough, or nothing can be better."""
        is_late = self.request.limit.spent
        self.complete = self.complete and (self.whole.is_at_best or not is_late)
        return is_late or self.is_stopped or self.whole.is_at_best

    def run(self, find: Callable[[Request], Planned], order: Sequence[int], called: str) -> Planned:
        """Search from plans whose ops run for the first time in ``order``; returns the plan without transfers, which
        ``find`` finds."""
        fits = self.request.least.nbytes <= self.request.budget_bytes
        self.whole.search.is_patient = True
        for way in (self.whole, *self.parts) if fits else ():
            self._try(way, partial(way.first, order, called))
        self.whole.search.is_patient = False
        without = self._without(find)
        for number, way in enumerate(self.ways if fits else ()):
            left = len(self.ways) - 1 - number
            way.search.limit = self.request.limit.part(PARTS / (PARTS + left))
            self._try(way, partial(self._improve, way, self.ways[:number]))
        return without

    def _improve(self, way: Way, smaller: Iterable[Way]) -> None:
        for other in smaller:
            if way.includes(other):
                way.take(other.search.best)
        if way is self.whole or is_solvable(way.request.instance):
            way.bound()
        if not self.whole.is_at_best:
            way.improve()

    def _without(self, find: Callable[[Request], Planned]) -> Planned:
        """The fastest plan without transfers, offered to all ways that recompute."""
        request = self.request
        still = {name: plan for name, plan in request.known.items() if not moves(plan)}
        alone = request.without_links(request.budget_bytes, share=WITHOUT, known=still)
        effort = 0.0 if self.whole.is_at_best else request.effort  # the plans known before are shown beside it
        made = find(replace(alone, effort=effort, watch=self._goes_on_without))
        for way in self.ways:
            if made.plan is not None and (way.request.recompute or made.time_ns == made.base_ns):
                way.offer({made.source: made.plan})
        self.complete = self.complete and made.complete
        return made

    def _try(self, way: Way, work: Callable[[], None]) -> None:
        """Do some work of a way, unless the listener has had enough."""
        if self.is_stopped:
            return
        try:
            work()
        except Stopped:
            self.complete = False
            self.is_stopped = not way.search.limit.spent
        self.complete = self.complete and (way.is_at_best or not way.search.limit.spent)

    def _goes_on_without(self, best_ns: int | None, _: int) -> bool:
        self.without_ns = best_ns
        return self._goes_on(best_ns, 0)

    def _goes_on(self, _best_ns: int | None, _bound_ns: int) -> bool:
        """Tell the listener of the best plan of all."""
        if self.request.watch is None:
            return True
        bests = [way.search.best.played.makespan_ns for way in self.ways if way.search.best is not None]
        known = min((*bests, *(() if self.without_ns is None else (self.without_ns,))), default=None)
        return self.request.watch(known, self.whole.search.bound_ns)

    def result(self, request: Request, without: Planned, seconds: float) -> Planned:
        """What was found for ``request``, beside the plan without transfers."""
        best = self.whole.search.best
        fits = request.least.nbytes <= request.budget_bytes
        status: Status = "fits" if best is not None else "none found" if fits else "infeasible"
        lanes = () if best is None else (Lane(without.device, best.steps),)
        return msgspec.structs.replace(
            without,
            status=status,
            plan=None if best is None else Plan(request.instance.digest, lanes, dict(best.home)),
            time_ns=None if best is None else best.played.makespan_ns,
            peak_bytes=None if best is None else best.played.peak_bytes,
            bound_ns=self.whole.search.bound_ns,
            plan_class=request.plan_class,
            bound_name=NAMES[type(self.whole.proof)],
            proof=self.whole.proof,
            least=request.least,
            source="" if best is None else best.source,
            work=without.work + sum(way.search.work for way in self.ways),
            complete=self.complete,
            seconds=seconds,
        )
