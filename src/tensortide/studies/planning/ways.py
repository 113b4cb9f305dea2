"""Ways to plan with links: over some of them, with recomputation or without; each searched as if it were all.

A plan of one way is a plan of every way that may do more, so the result for all that is allowed is never slower than
the result for a part of it: the searches of the parts are the same as if only those were asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tensortide.plans.model import Plan
from tensortide.plans.proofs import Proof
from tensortide.plans.transfers.bound import waits
from tensortide.plans.transfers.exact import OPS_PER_UNIT, improve, is_solvable
from tensortide.plans.transfers.mixing import OPS_PER_TURN, Mixed
from tensortide.plans.transfers.search import Moved, Transfers
from tensortide.plans.transfers.windows import windows
from tensortide.plans.under_budget.bound import EachOnce
from tensortide.plans.under_budget.search import SMALL_EFFORT
from tensortide.studies.planning.g10_moves import policies_choices
from tensortide.studies.planning.problem import BOUND_WORK, Problem

MIXING = 0.6
"""Share of the limit that is left for recomputation in place of moves."""
MIGRATION, POLISH = 0.4, 0.6
"""Shares of the effort for choosing what moves: in the order of the ops, and in the best plan."""
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
    starts: list[Mixed] = field(default_factory=list)
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
        self.starts.append(search.fit(order, source))

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
        """Recompute in place of moves, and the other way round; choose what moves in the best plan anew; solve a small
        step."""
        search, problem = self.search, self.problem
        if search.done():
            return
        if problem.recompute:
            self._mix()
        search.polish(self._steps(POLISH))
        improve(
            search,
            free=problem.order == "free",
            recompute=problem.recompute,
            effort=10**6 * problem.effort / OPS_PER_UNIT,
        )

    def _mix(self) -> None:
        """Recompute some of what moves, and the other way round, in the best plan and in the fastest of the starts."""
        problem, whole = self.problem, self.search.limit
        most = SMALL_EFFORT if is_solvable(problem.instance) else problem.effort
        turns = int(most * 10**6 / (OPS_PER_TURN * max(1, len(problem.instance.ops))))
        self.search.limit = whole.part(MIXING)
        self.search.mix(turns, "search")
        self.search.limit = whole
        if self.starts:
            self.search.mix(turns, "search", min(self.starts, key=lambda start: start.made.time_ns))


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
