"""Plans with links: storages move, and what other budgets would recompute is recomputed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from tensortide.plans.legal import moves
from tensortide.plans.model import Lane, Plan
from tensortide.plans.planned import Planned, Status
from tensortide.plans.proofs import NAMES
from tensortide.plans.transfers.exact import is_solvable
from tensortide.plans.under_budget.search import Stopped
from tensortide.studies.planning.problem import Problem
from tensortide.studies.planning.recomputation import RECORDED, any_order, without_links
from tensortide.studies.planning.ways import Way, ways_of

MOVING, WITHOUT, PARTS = 0.8, 0.3, 0.4
"""Shares of the limit that is left: for moves alone, half of it over all links; for the plan without transfers; then
for ways that do not include all."""


def with_links(problem: Problem) -> Planned:
    """The fastest plan found: without transfers; over each set of links, with recomputation and without; by policies
    made for traces; of a small step, what the solver finds from there."""
    began, recorded = problem.began, problem
    if problem.order == "free":
        recorded = problem.in_recorded_order(share=RECORDED)
    search = _Search(recorded)
    without = search.run(without_links, range(len(problem.instance.ops)), "as recorded")
    if problem.order == "free":
        search.loosen(problem)
        if not search.is_over:
            without = search.run(partial(any_order, first=without), problem.least_order, "order of the least peak")
    return search.result(problem, without, time.monotonic() - began)


class _Search:
    """A search over all ways that ``problem`` allows. ``whole``: the one that includes all others."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.complete, self.is_stopped = problem, True, False
        self.without_ns: int | None = None
        self.ways = ways_of(problem, self._goes_on)
        *self.parts, self.whole = self.ways
        for way in self.ways:
            self._try(way, partial(way.offer, problem.known))

    def loosen(self, problem: Problem) -> None:
        """Go on with first runs in any order."""
        self.problem = problem
        for way in self.ways:
            way.loosen(problem)

    @property
    def is_over(self) -> bool:
        """True once the limit is reached, the listener has had enough, or nothing can be better."""
        is_late = self.problem.limit.spent
        self.complete = self.complete and (self.whole.is_at_best or not is_late)
        return is_late or self.is_stopped or self.whole.is_at_best

    def run(self, find: Callable[[Problem], Planned], order: Sequence[int], called: str) -> Planned:
        """Search from plans whose ops run for the first time in ``order``; returns the plan without transfers, which
        ``find`` finds."""
        fits = self.problem.least.nbytes <= self.problem.budget_bytes
        if fits:
            self._first(order, called)
        without = self._without(find)
        for number, way in enumerate(self.ways if fits else ()):
            left = len(self.ways) - 1 - number
            way.search.limit = self.problem.limit.part(PARTS / (PARTS + left))
            self._try(way, partial(self._improve, way, self.ways[:number]))
        return without

    def _first(self, order: Sequence[int], called: str) -> None:
        """Look for first plans: by moves alone, over all links before some of them; then with recomputation, too."""
        moving = [way for way in reversed(self.ways) if not way.problem.recompute]
        moving[0].search.is_patient = True
        for number, way in enumerate(moving):
            way.search.limit = self.problem.limit.part(MOVING / (2 + number))
            self._try(way, partial(way.first, order, called))
            moving[0].take(way.search.best)
        moving[0].search.is_patient = False
        self.whole.take(moving[0].search.best)
        for way in reversed(self.ways):
            if way.problem.recompute and not self.whole.is_at_best:
                way.search.limit = self.problem.limit
                self._try(way, partial(way.first, order, called))

    def _improve(self, way: Way, smaller: Iterable[Way]) -> None:
        for other in smaller:
            if way.includes(other):
                way.take(other.search.best)
        if way is self.whole or is_solvable(way.problem.instance):
            way.bound()
        if not self.whole.is_at_best:
            way.improve()

    def _without(self, find: Callable[[Problem], Planned]) -> Planned:
        """The fastest plan without transfers, offered to all ways that recompute."""
        problem = self.problem
        still = {name: plan for name, plan in problem.known.items() if not moves(plan)}
        effort = 0.0 if self.whole.is_at_best else problem.effort  # the plans known before are shown beside it
        made = find(problem.without_links(share=WITHOUT, known=still, effort=effort, watch=self._goes_on_without))
        for way in self.ways:
            if made.plan is not None and (way.problem.recompute or made.step_ns == made.base_ns):
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
        if self.problem.watch is None:
            return True
        bests = [way.search.best.played.makespan_ns for way in self.ways if way.search.best is not None]
        known = min((*bests, *(() if self.without_ns is None else (self.without_ns,))), default=None)
        return self.problem.watch(known, self.whole.search.bound_ns)

    def result(self, problem: Problem, without: Planned, seconds: float) -> Planned:
        """The result for ``problem``, beside the plan without transfers."""
        best = self.whole.search.best
        fits = problem.least.nbytes <= problem.budget_bytes
        status: Status = "fits" if best is not None else "none found" if fits else "infeasible"
        lanes = () if best is None else (Lane(without.device, best.steps),)
        return msgspec.structs.replace(
            without,
            status=status,
            plan=None if best is None else Plan(problem.instance.digest, lanes, dict(best.home)),
            step_ns=None if best is None else best.played.makespan_ns,
            peak_bytes=None if best is None else best.played.peak_bytes,
            bound_ns=self.whole.search.bound_ns,
            plan_class=problem.plan_class,
            bound_name=NAMES[type(self.whole.proof)],
            proof=self.whole.proof,
            least=problem.least,
            source="" if best is None else best.source,
            work=without.work + sum(way.search.work for way in self.ways),
            complete=self.complete,
            search_s=seconds,
        )
