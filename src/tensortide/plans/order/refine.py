"""Better orders from minimum cuts: let the op at the peak run with the least held that can be, again and again.

The order is split at the smallest minimum cut of its peak op: first the ops of the cut's down-set, then the op, then
all others, each part in the order it had. The parts are refined on their own, the one with the highest peak first. For
ops of which one must follow the other, smallest minimum cuts lie inside one another (by submodularity), so that no
split spoils another.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence

from tensortide.plans.order.budget import Budget
from tensortide.plans.order.cuts import least_held
from tensortide.plans.order.lists import by_rank, ranks
from tensortide.plans.order.problem import Problem


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
        if problem.base + cut.held + problem.needs[op] >= -lowered:
            break
        middle = len(cut.done)
        first = [v for v in now[start:stop] if v in cut.done]
        now[start:stop] = [*first, op, *(v for v in now[start:stop] if v not in cut.done and v != op)]
        push(start, middle, middle + 1, stop)
    return best
