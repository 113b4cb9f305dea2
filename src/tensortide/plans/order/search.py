"""Exact search over the sets of ops done, the lowest peak first, from the start of the step or from its end.

Between two ops only the set of ops done matters, so an order is a path through down-sets, and its peak the highest
level on the way. A search that always goes on from the set reached with the lowest peak (Dijkstra's, with the maximum
in place of the sum) reaches the end by a best order; until then the peak it has come to is a lower bound. Safe moves
(``orders``) are made at once. Played backwards a step obeys the same rules, as they rest on submodularity alone, and
one of the two directions is often far easier: joins are easy from the end, forks from the start.

Runs of ops can be safe as one is: they start at a down-set D, stay within the limit, and end at a set E that holds no
more than D, each set between them holding more; and every op of a run that adds something, its first op included, must
precede all that come after it. Then E holds least of the down-sets between D and E: one without the first op is D; to
any other one the ops that it lacks before the next one that adds can be added at no cost, by submodularity, which makes
it a set of the run or E. Take any order that goes on from D within the limit, and move the run to the front: a later
set A becomes A | E, with held(A | E) <= held(A) + held(E) - held(A & E) <= held(A).
"""

from __future__ import annotations

import heapq

from tensortide.plans.order.incumbent import Budget, Incumbent
from tensortide.plans.order.problem import Problem, mask
from tensortide.plans.order.proof import Exhausted

_RUN = 16
"""Ops in a safe run that are tried."""


def explore(best: Incumbent, budget: Budget, *, forward: bool, states: int) -> None:
    """Improve the bound of ``best``, and its order if a better one is found, within ``states`` sets of ops.

    Raises budget.Exhausted if the budget is spent first.
    """
    search = _Search(best.problem, forward)
    try:
        order = search.run(best.lower, best.upper, budget, states)
    finally:
        best.bound(min(search.bound, best.upper), Exhausted(min(search.bound, best.upper), forward))
    if order is not None:
        best.offer(order)


class _Search:
    """Sets of ops are bit masks: ``gone`` holds the ops played so far, from either end."""

    def __init__(self, problem: Problem, forward: bool) -> None:
        self.problem = problem
        self.forward = forward
        self.bound = problem.base
        self._full = (1 << len(problem)) - 1
        before, self._opens = (problem.before, problem.after) if forward else (problem.after, problem.before)
        self._needs = [mask(ops) for ops in before]
        self._users = [mask(ops) for ops in problem.users]
        self._cost = 1 + len(problem) // 500

    def run(self, lower: int, upper: int, budget: Budget, states: int) -> list[int] | None:
        """An order with a peak below ``upper``, None if there is none or too many sets would have to be visited."""
        start = self.problem.start if self.forward else self.problem.end
        ready = [op for op, needs in enumerate(self._needs) if not needs]
        came: dict[int, tuple[int, list[int]]] = {}
        reached = {0: lower}
        heap = [(lower, 0, 0, start, ready, -1, -1)]
        while heap:
            self.bound, _, gone, held, ready, parent, op = heapq.heappop(heap)
            if reached[gone] < self.bound:
                continue
            budget.spend(self._cost * (5 + 3 * len(ready)))
            gone, held, ready, path = self._settle(gone, held, ready, op)
            if gone in came:
                continue
            came[gone] = parent, path
            if gone == self._full:
                return self._order(came, gone)
            if len(reached) > states:
                return None
            for following in ready:
                new, change, level = self._play(following, gone, held)
                peak = max(self.bound, level)
                if peak < upper and peak < reached.get(new, upper):
                    reached[new] = peak
                    heapq.heappush(heap, (peak, -new.bit_count(), new, held + change, ready, gone, following))
        self.bound = upper
        return None

    def _play(self, op: int, gone: int, held: int) -> tuple[int, int, int]:
        """Play ``op`` after ``gone``: the ops gone, the change of what is held, and the level while it runs."""
        new = gone | 1 << op
        done = new if self.forward else self._full & ~gone
        problem = self.problem
        net = problem.born[op]
        for block in problem.uses[op]:
            if not self._users[block] & ~done:
                net -= problem.nbytes[block]
        if self.forward:
            return new, net, held + problem.needs[op]
        return new, -net, held - net + problem.needs[op]

    def _settle(self, gone: int, held: int, ready: list[int], op: int) -> tuple[int, int, list[int], list[int]]:
        """Play ``op``, one of ``ready`` (-1: none), and all that is safe then: the new state, and what was played."""
        path = []
        if op >= 0:
            path = [op]
            ready = self._without(ready, op, gone)
        again = True
        while again:
            again = False
            for candidate in ready:
                run, level = self._descend(candidate, gone, held)
                for played in run:
                    gone |= 1 << played
                    ready = self._without(ready, played, gone)
                    again = True
                path += run
                held = level
        return gone, held, ready, path

    def _descend(self, op: int, gone: int, held: int) -> tuple[list[int], int]:
        """A safe run from ``op`` on, within the bound, after which no more is held than before.

        Returns the run and what is held after it; an empty run if none is found.
        """
        level, run, opened = held, list[int](), [op]
        while opened and len(run) < _RUN:
            change, peak, best = min(
                (change, peak, v) for v in opened for _, change, peak in [self._play(v, gone, level)]
            )
            if peak > self.bound:
                break
            gone |= 1 << best
            run.append(best)
            level += change
            if level <= held:
                return run, level
            opened = self._without(opened if change <= 0 else [], best, gone)
        return [], held

    def _without(self, ready: list[int], op: int, gone: int) -> list[int]:
        opened = [later for later in self._opens[op] if not self._needs[later] & ~gone]
        return [other for other in ready if other != op] + opened

    def _order(self, came: dict[int, tuple[int, list[int]]], gone: int) -> list[int]:
        parts = []
        while gone >= 0:
            gone, path = came[gone]
            parts.append(path)
        order = [op for path in reversed(parts) for op in path]
        return order if self.forward else order[::-1]
