"""Orders of little memory: made in one pass of safe moves, refined at minimum cuts, and searched by cases.

An op that is ready is *safe* from the down-set D within a limit if it runs within the limit and leaves no more resident
than before it: ``held(D + v) <= held(D)``. Running it next is never wrong: take any order that goes on from D within
the limit, and move v to the front. Every later set of ops done gains v, which by submodularity adds to it at most what
it adds to D, so nothing; and v itself runs within the limit. So memory is freed early, and views and ops in place,
which hold nothing, cost no decision.

Refining lets the op at the peak run with the least held that can be, again and again. The order is split at the
smallest minimum cut of its peak op: first the ops of the cut's down-set, then the op, then all others, each part in the
order it had. The parts are refined on their own, the one with the highest peak first. For ops of which one must follow
the other, smallest minimum cuts lie inside one another (by submodularity), so that no split spoils another.

The minimum cut of one op may ask for an order that another op cannot afford. Where the peak of the best order stays
above the cut of its peak op w, some op v runs before w though the cut would have it after, or the other way round.
Either v comes first or w does: both cases are ordering problems of their own, with one dependency more, and tighter
cuts.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from tensortide.plans.order.cuts import cut_of, least_held
from tensortide.plans.order.incumbent import Budget, Incumbent
from tensortide.plans.order.problem import Problem
from tensortide.plans.order.proof import Cut, Either, Persistent, Proof, ordered


def ranks(order: Sequence[int]) -> list[int]:
    """The position of each op in ``order``."""
    at = [0] * len(order)
    for position, op in enumerate(order):
        at[op] = position
    return at


def by_rank(problem: Problem, rank: Sequence[int], limit: int, *, depth_first: bool = False) -> list[int]:
    """Safe ops at once, else the ready op of lowest ``rank``; with ``depth_first``, of those that became ready last.

    If ``rank`` is that of an order within ``limit``, the result is within it too, unless it is ``depth_first``.
    """
    run = _Run(problem, rank, limit, depth_first)
    while len(run.order) < len(problem):
        run.execute(run.next())
    return run.order


class _Run:
    """A step under way."""

    def __init__(self, problem: Problem, rank: Sequence[int], limit: int, depth_first: bool) -> None:
        self.problem = problem
        self.order: list[int] = []
        self._rank = rank
        self._limit = limit
        self._depth_first = depth_first
        self._waiting = [len(needed) for needed in problem.before]
        self._left = [len(touching) for touching in problem.users]
        self._held = problem.start
        self._done = bytearray(len(problem) + 1)
        self._ready: list[tuple[int, int, int]] = []
        self._maybe: list[int] = []  # ops to be looked at: they may have become safe
        self._high: list[int] = []  # ops that are safe once less is resident
        for op, count in enumerate(self._waiting):
            if not count:
                self._enable(op)

    def _enable(self, op: int) -> None:
        heapq.heappush(self._ready, (-len(self.order) if self._depth_first else 0, self._rank[op], op))
        self._maybe.append(op)

    def _net(self, op: int) -> int:
        """Bytes that running ``op`` now adds for good."""
        freed = sum(self.problem.nbytes[block] for block in self.problem.uses[op] if self._left[block] == 1)
        return self.problem.born[op] - freed

    def next(self) -> int:
        """The op to run: a safe one if there is one."""
        while self._maybe:
            op = self._maybe.pop()
            if not self._done[op] and not self._waiting[op] and self._net(op) <= 0:
                if self._held + self.problem.needs[op] <= self._limit:
                    return op
                self._high.append(op)
        while True:
            op = heapq.heappop(self._ready)[2]
            if not self._done[op]:
                return op

    def execute(self, op: int) -> None:
        """Run ``op``."""
        net = self._net(op)
        self._held += net
        self._done[op] = True
        self.order.append(op)
        for block in self.problem.uses[op]:
            self._left[block] -= 1
            if self._left[block] == 1:
                self._maybe += [user for user in self.problem.users[block] if user < len(self._waiting)]
        if net < 0:
            self._maybe += self._high
            self._high.clear()
        for later in self.problem.after[op]:
            self._waiting[later] -= 1
            if not self._waiting[later]:
                self._enable(later)


def improve(problem: Problem, order: Sequence[int], floor: int, budget: Budget) -> list[int]:
    """An order with a peak no higher than that of ``order``; ``floor`` is a lower bound, where it may stop."""
    best, peak = list(order), problem.peak(order)
    while peak > floor:
        refined = refine(problem, best, floor, budget)
        settled = by_rank(problem, ranks(refined), problem.peak(refined))
        found = min((problem.peak(candidate), candidate) for candidate in (refined, settled))
        if found[0] >= peak:
            break
        peak, best = found
    return best


def refine(problem: Problem, order: Sequence[int], floor: int, budget: Budget) -> list[int]:
    """The best order seen while splitting ``order`` at its peak until the peak op cannot be helped."""
    now = list(order)
    best, least = list(order), problem.peak(order)
    parts: list[tuple[int, int, int, int]] = []

    def push(*bounds: int) -> None:
        levels = problem.levels(now)
        for start, stop in itertools.pairwise(bounds):
            if start < stop:
                peak = max(levels[start:stop])
                heapq.heappush(parts, (-peak, start, stop, levels.index(peak, start)))

    push(0, len(now))
    while parts:
        lowered, start, stop, at = heapq.heappop(parts)
        if -lowered < least:
            best, least = list(now), -lowered
        if -lowered <= floor:
            break
        op = now[at]
        done = problem.ancestors(op).union(now[:start])
        barred = problem.descendants(op).union(now[stop:], (op,))
        budget.spend(4 * len(now))
        cut = least_held(problem, done, barred, budget)
        if cut.nbytes + problem.needs[op] >= -lowered:
            break
        middle = len(cut.done)
        first = [v for v in now[start:stop] if v in cut.done]
        now[start:stop] = [*first, op, *(v for v in now[start:stop] if v not in cut.done and v != op)]
        push(start, middle, middle + 1, stop)
    return best


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
    """Improve ``best``, order and bound, by branch and bound on which of two ops runs first, until it is proved or
    ``_PATIENCE`` is lost.

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
