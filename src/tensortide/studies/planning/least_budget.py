"""The least budget for which a search finds a plan."""

from __future__ import annotations

from collections.abc import Callable

from tensortide.plans.planned import Planned
from tensortide.studies.planning.problem import Problem
from tensortide.units import printed_bytes

_EFFORT = 0.1
"""Most effort for one budget: a search that goes on where there is no plan exhausts a small step each time."""
_ROUNDS, _PARTS = 4, 5
"""The interval that holds the least budget is divided into so many parts; the lowest that does is divided again."""


def least_budget(
    problem: Problem, find: Callable[[Problem], Planned], low_bytes: int, high_bytes: int, *, most_ns: int | None = None
) -> int:
    """The least budget between the two for which ``find`` finds a plan that takes ``most_ns`` at most (None: any time),
    to a part of the interval, as it is printed; ``high_bytes`` if none below is enough.

    A search may fail for a larger budget than one that is enough, so all parts are tried. Looks until the limit of
    ``problem`` is reached, or its listener has had enough.
    """
    problem.partitions, problem.simulator  # noqa: B018  (once for all budgets)
    enough, width = high_bytes, high_bytes - low_bytes
    for _ in range(_ROUNDS):
        width = -(-width // _PARTS)
        high = enough
        for part in range(1, _PARTS):
            tried = printed_bytes(max(0, high - part * width))
            if not low_bytes < tried < enough:
                continue
            if problem.limit.spent or not problem.goes_on():
                return enough
            effort = min(problem.effort, _EFFORT)
            found = find(problem.under(tried, watch=_until_found(problem, most_ns), effort=effort))
            if found.step_ns is not None and (most_ns is None or found.step_ns <= most_ns):
                enough = tried
    return enough


def _until_found(problem: Problem, most_ns: int | None) -> Callable[[int | None, int], bool]:
    def goes_on(best_ns: int | None, _: int) -> bool:
        is_enough = best_ns is not None and (most_ns is None or best_ns <= most_ns)
        return not is_enough and problem.goes_on()

    return goes_on
