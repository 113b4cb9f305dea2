"""Branch and bound on which of two ops runs first, with minimum cuts as bounds and refined orders as solutions.

The minimum cut of one op may ask for an order that another op cannot afford. Where the peak of the best order stays
above the cut of its peak op w, some op v runs before w though the cut would have it after, or the other way round.
Either v comes first or w does: both cases are ordering problems of their own, with one dependency more, and tighter
cuts.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from tensortide.plans.order.cuts import cut_of
from tensortide.plans.order.incumbent import Budget, Incumbent
from tensortide.plans.order.orders import by_rank, improve
from tensortide.plans.order.proof import Cut, Either, Persistent, Proof, ordered

_CUTS = 8
"""Cuts that are computed for a case, of the ops with the highest levels."""

_PATIENCE = 4
"""Cases that are split in a row without any gain before branching is abandoned."""


@dataclass(eq=False, slots=True)
class Case:
    """A case: the ``pairs`` of ops whose order is fixed, a bound and its proof, and the next pair to decide.

    The case of no pairs is the problem itself.
    """

    lower: int
    proof: Proof
    pairs: tuple[tuple[int, int], ...] = ()
    pair: tuple[int, int] | None = None
    cases: list[Case] = field(default_factory=list)

    def proven(self) -> tuple[int, Proof]:
        """The bound of all cases below this one."""
        if self.pair is not None and len(self.cases) == 2:
            (before, first), (after, second) = (case.proven() for case in self.cases)
            if min(before, after) > self.lower:
                return min(before, after), Either(*self.pair, first, second)
        return self.lower, self.proof


def studied(best: Incumbent, case: Case, budget: Budget, *, anew: bool = True) -> Case:
    """Find an order for ``case``, its bound, and the pair of ops to split it by; ``best`` takes what is better.

    The order is refined from one made ``anew``, or else from the best so far."""
    problem, captured = best.problem, range(len(best.problem))
    with ordered(problem, case.pairs):
        lists = []
        for depth_first in (False, True):
            lists.append(by_rank(problem, captured, best.upper, depth_first=depth_first))
            best.offer(lists[-1])
        order = min(lists, key=problem.peak) if anew else best.order
        budget.spend(20 * len(problem))
        if not anew:  # the cut of the peak alone often proves it
            _cut(best, case, order, 1, budget)
        if case.lower < problem.peak(order):
            order = improve(problem, order, case.lower, budget)
            best.offer(order)
            _cut(best, case, order, _CUTS, budget)
    return case


def _cut(best: Incumbent, case: Case, order: Sequence[int], count: int, budget: Budget) -> None:
    """Bound ``case`` by the cuts of the ``count`` ops with the highest levels in ``order``. The first that is not
    reached gives the pair to split by."""
    problem, levels = best.problem, best.problem.levels(order)
    case.pair = None
    for position in sorted(range(len(levels)), key=lambda i: (-levels[i], i))[:count]:
        op = order[position]
        if levels[position] <= case.lower:
            break
        cut = cut_of(problem, op, budget)
        bound = cut.nbytes + problem.needs[op]
        if case.pair is None and bound < levels[position]:
            others = [i for i, v in enumerate(order) if i != position and (i < position) != (v in cut.done)]
            case.pair = order[max(others, key=lambda i: (levels[i], -i))], op
        if bound > case.lower:
            case.lower, case.proof = bound, Cut(op, cut.storages, cut.waits)
            if not case.pairs:
                best.bound(case.lower, case.proof)


def solve(best: Incumbent, budget: Budget) -> None:
    """Improve ``best``, order and bound, until it is proved or ``_PATIENCE`` is lost.

    The case of the lowest bound is split first. Raises Exhausted if the budget is spent.
    """
    root = studied(best, Case(best.problem.base, Persistent()), budget)
    heap = [(root.lower, 0, root)]
    count, gained = 1, 0
    try:
        while heap and heap[0][0] < best.upper and count <= gained + 2 * _PATIENCE:
            known = best.lower, best.upper
            case = heapq.heappop(heap)[2]
            if case.pair is None:
                return
            for pair in (case.pair, case.pair[::-1]):
                below = studied(best, Case(case.lower, case.proof, (*case.pairs, pair)), budget)
                case.cases.append(below)
                heapq.heappush(heap, (below.lower, count, below))
                count += 1
            best.bound(*root.proven())
            if known != (best.lower, best.upper):
                gained = count
    finally:
        best.bound(*root.proven())
