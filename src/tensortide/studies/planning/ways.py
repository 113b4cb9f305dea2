"""Ways to plan with links: over some of them, with recomputation or without; each searched as if it were all.

A plan of one way is a plan of every way that may do more, so the result for all that is allowed is never slower than
the result for a part of it: the searches of the parts are the same as if only those were asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tensortide.plans.model import Compute, Plan
from tensortide.plans.proofs import Proof
from tensortide.plans.transfers.bound import waits
from tensortide.plans.transfers.decoder import Made
from tensortide.plans.transfers.exact import OPS_PER_UNIT, improve, is_solvable
from tensortide.plans.transfers.mixing import OPS_PER_TURN
from tensortide.plans.transfers.search import Moved, Transfers
from tensortide.plans.transfers.windows import windows
from tensortide.plans.under_budget.bound import EachOnce
from tensortide.plans.under_budget.search import SMALL_EFFORT
from tensortide.plans.under_budget.tables import Ints
from tensortide.studies.planning.g10_moves import policies_choices
from tensortide.studies.planning.problem import BOUND_WORK, Problem

MIXING = 0.6
"""Share of the limit that is left for recomputation in place of moves."""
MIGRATION, POLISH = 0.4, 0.6
"""Shares of the effort for choosing what moves: in the order of the ops, and in the best plan."""
OPS_PER_FIT = 70
"""Fitting a sequence takes about as long as playing it so many times."""
MOST_WAITS = 500
"""Longest step whose bound is looked for op by op."""
_BOUND = 0.3
"""Share of the limit that is left for the linear program of the bound."""


@dataclass
class Way:
    """A way to plan: what ``problem`` allows, and no more. ``starts``: sequences that fit, to improve from."""

    problem: Problem
    search: Transfers
    name: str
    starts: list[tuple[Made, Ints]] = field(default_factory=list)
    proof: Proof = field(default_factory=EachOnce)

    @property
    def is_at_best(self) -> bool:
        """True if every op runs once and nothing waits."""
        return self.search.best is not None and self.search.best.played.makespan_ns == self.problem.instance.base_ns

    def loosen(self, problem: Problem) -> None:
        """Go on with first runs in any order, of which nothing is proved."""
        self.problem = problem.narrowed(self.problem.links, recompute=self.problem.recompute)
        self.search.bound_ns, self.proof = problem.instance.base_ns, EachOnce()
        self.search.limit = problem.limit
        self.starts.clear()

    def includes(self, other: Way) -> bool:
        """True if plans of ``other`` are plans of this way."""
        links = {link.name for link in self.problem.links}
        return {link.name for link in other.problem.links} <= links and (
            self.problem.recompute or not other.problem.recompute
        )

    def offer(self, known: Mapping[str, Plan]) -> None:
        """Play plans that are known already."""
        for name, plan in known.items():
            if plan.graph == self.search.instance.digest and len(plan.lanes) == 1:
                self.search.offer_steps(plan.lanes[0].steps, plan.home, name)

    def take(self, found: Moved | None) -> None:
        """Play the plan of another way, if there is one."""
        if found is not None:
            self.search.offer_steps(found.steps, self.search.homes(found.home), found.source)

    def first(self, order: Sequence[int], called: str) -> None:
        """Look for plans whose ops run for the first time in an order: by moves alone, beginning with those of policies
        made for traces; or with recomputation, too."""
        search, problem = self.search, self.problem
        if search.done():
            return
        source = f"{called}, with {self.name}"
        if not problem.recompute:
            planned = policies_choices(problem, search.look) if problem.order == "recorded" else ()
            search.sequence(order, self._steps(MIGRATION), source, planned)
            return
        found = search.fit(order, source)
        if not found[0].short_bytes:
            self.starts.append(found)

    def _steps(self, share: float) -> int:
        """Steps of choosing in a share of the effort, each of which takes about as long as playing the ops."""
        most = SMALL_EFFORT if is_solvable(self.problem.instance) else self.problem.effort
        return int(share * most * 10**6 / max(1, len(self.problem.instance.ops)))

    def bound(self) -> None:
        """Look for a bound on plans in recorded order, as far as the best plan; none is known of those in any order."""
        problem, best = self.problem, self.search.best
        if best is None or problem.order == "free":
            return
        most_ns = best.played.makespan_ns - problem.instance.base_ns
        limit = self.search.limit.part(_BOUND, work=BOUND_WORK)
        wide = partial(windows, limit=limit, look=self.search.look)
        single = partial(waits, look=self.search.look)
        for bound_of in (single, wide) if len(problem.instance.ops) <= MOST_WAITS else (wide,):
            bound_ns, found = bound_of(problem.instance, problem.budget_bytes, most_ns)
            if found is not None and bound_ns > self.search.bound_ns:
                self.search.bound_ns, self.proof = bound_ns, found

    def improve(self) -> None:
        """Recompute in place of moves; ruin and fit; choose what moves in the best plan anew; solve a small step."""
        search, problem = self.search, self.problem
        if search.done():
            return
        if problem.recompute:
            self._mix()
            self._refit()
        search.polish(self._steps(POLISH))
        improve(
            search,
            free=problem.order == "free",
            recompute=problem.recompute,
            effort=10**6 * problem.effort / OPS_PER_UNIT,
        )

    def _mix(self) -> None:
        """Recompute some of what moves, and the other way round; small steps are left to the solver."""
        problem, whole = self.problem, self.search.limit
        if not is_solvable(problem.instance):
            self.search.limit = whole.part(MIXING)
            self.search.mix(int(problem.effort * 10**6 / (OPS_PER_TURN * len(problem.instance.ops))), "search")
            self.search.limit = whole

    def _refit(self) -> None:
        """Recompute and move in the best plan, ruin and fit the fastest that comes of that."""
        search, problem = self.search, self.problem
        if search.best is not None:
            again = np.array([step.op for step in search.best.steps if isinstance(step, Compute)], np.int64)
            found = search.fit(again.tolist(), search.best.source)
            if not found[0].short_bytes:
                self.starts.append(found)
        if self.starts:
            most = SMALL_EFFORT if is_solvable(problem.instance) else problem.effort
            start = min(self.starts, key=lambda start: start[0].time_ns)
            search.improve(start, int(most * 10**6 / (OPS_PER_FIT * len(problem.instance.ops))), "search")


def ways_of(problem: Problem, watch: Callable[[int | None, int], bool]) -> list[Way]:
    """All ways that ``problem`` allows, each after those that it includes; the last one is the whole."""
    found = []
    for count in range(1, len(problem.links) + 1):
        for links in itertools.combinations(problem.links, count):
            for recompute in (False, True)[: 1 + problem.recompute]:
                narrow = problem.narrowed(links, recompute=recompute)
                search = Transfers(narrow.instance, problem.budget_bytes, problem.limit, watch=watch)
                search.bound_ns = problem.instance.base_ns
                found.append(Way(narrow, search, _name(narrow)))
    return found


def _name(problem: Problem) -> str:
    return ("recomputation and " if problem.recompute else "") + _moves(problem)


def _moves(problem: Problem) -> str:
    return "moves over " + " and ".join(link.name for link in problem.links)
