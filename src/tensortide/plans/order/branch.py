"""Branch and bound on which of two ops runs first, with minimum cuts as bounds and refined orders as solutions.

The minimum cut of one op may ask for an order that another op cannot afford. Where the peak of the best order stays
above the cut of its peak op w, some op v runs before w though the cut would have it after, or the other way round.
Either v comes first or w does: both cases are ordering problems of their own, with one dependency more, and tighter
cuts.
"""

from __future__ import annotations

import heapq

from tensortide.plans.order.budget import Budget
from tensortide.plans.order.cuts import cut_of
from tensortide.plans.order.incumbent import Incumbent, as_proof
from tensortide.plans.order.lists import by_rank
from tensortide.plans.order.proof import Either, Proof, ordered
from tensortide.plans.order.refine import improve

_CUTS = 8
"""Cuts that are computed for a case, of the ops with the highest levels."""

_PATIENCE = 4
"""Cases that are split in a row without any gain before branching is given up."""


class _Case:
    """A case: the ``pairs`` of ops whose order is fixed, a bound and its proof, and the next pair to decide."""

    __slots__ = ("cases", "lower", "pair", "pairs", "proof")

    def __init__(self, pairs: tuple[tuple[int, int], ...], lower: int, proof: Proof) -> None:
        self.pairs = pairs
        self.lower = lower
        self.proof = proof
        self.pair: tuple[int, int] | None = None
        self.cases: list[_Case] = []

    def proven(self) -> tuple[int, Proof]:
        """The bound of all cases below this one."""
        if self.pair is None or len(self.cases) < 2:
            return self.lower, self.proof
        (before, first), (after, second) = (case.proven() for case in self.cases)
        if min(before, after) <= self.lower:
            return self.lower, self.proof
        return min(before, after), Either(*self.pair, first, second)


def solve(best: Incumbent, budget: Budget) -> None:
    """Improve ``best``, order and bound, until it is proved or ``_PATIENCE`` is lost.

    The case of the lowest bound is split first. Raises budget.Exhausted if the budget is spent.
    """
    root = _Case((), best.problem.base, best.proof)
    try:
        _study(best, root, budget)
        heap = [(root.lower, 0, root)]
        count, gained = 1, 0
        while heap and heap[0][0] < best.upper and count <= gained + 2 * _PATIENCE:
            known = best.lower, best.upper
            case = heapq.heappop(heap)[2]
            if case.pair is None:
                return
            for pair in (case.pair, case.pair[::-1]):
                below = _Case((*case.pairs, pair), case.lower, case.proof)
                _study(best, below, budget)
                case.cases.append(below)
                heapq.heappush(heap, (below.lower, count, below))
                count += 1
            best.bound(*root.proven())
            if known != (best.lower, best.upper):
                gained = count
    finally:
        best.bound(*root.proven())


def _study(best: Incumbent, case: _Case, budget: Budget) -> None:
    """Find an order for ``case``, its bound, and the pair of ops to split it by."""
    problem = best.problem
    captured, limit = range(len(problem)), best.upper
    with ordered(problem, case.pairs):
        lists = [by_rank(problem, captured, limit, depth_first=first) for first in (False, True)]
        budget.spend(20 * len(problem))
        order = improve(problem, min(lists, key=problem.peak), case.lower, budget)
        best.offer(order)
        levels = problem.levels(order)
        for position in sorted(captured, key=lambda i: (-levels[i], i))[:_CUTS]:
            op = order[position]
            if levels[position] <= case.lower:
                break
            cut = cut_of(problem, op, budget)
            bound = problem.base + cut.held + problem.needs[op]
            if case.pair is None and bound < levels[position]:
                others = [i for i, v in enumerate(order) if i != position and (i < position) != (v in cut.done)]
                case.pair = order[max(others, key=lambda i: (levels[i], -i))], op
            if bound > case.lower:
                case.lower, case.proof = bound, as_proof(problem, op, cut)
