"""Orders of little memory: made in one pass of safe moves, then refined at minimum cuts.

An op that is ready is *safe* from the down-set D within a limit if it runs within the limit and leaves no more resident
than before it: ``held(D + v) <= held(D)``. Running it next is never wrong: take any order that goes on from D within
the limit, and move v to the front. Every later set of ops done gains v, which by submodularity adds to it at most what
it adds to D, so nothing; and v itself runs within the limit. So memory is freed early, and views and ops in place,
which hold nothing, cost no decision.

Refining lets the op at the peak run with the least held that can be, again and again. The order is split at the
smallest minimum cut of its peak op: first the ops of the cut's down-set, then the op, then all others, each part in the
order it had. The parts are refined on their own, the one with the highest peak first. For ops of which one must follow
the other, smallest minimum cuts lie inside one another (by submodularity), so that no split spoils another.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence

from tensortide.plans.order.cuts import least_held
from tensortide.plans.order.incumbent import Budget
from tensortide.plans.order.problem import Problem


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
