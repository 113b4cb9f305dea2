"""The least budget for which recomputation at the peaks finds a plan."""

from __future__ import annotations

import contextlib

import numpy as np

from tensortide.plans.under_budget.search import Search, Stopped
from tensortide.studies.planning.problem import Problem

_HALVINGS = 7
"""Halvings of the interval that holds the least budget."""


def least_budget(problem: Problem, low_bytes: int, high_bytes: int, *, most_ns: int | None = None) -> int:
    """The least budget between the two for which recomputation at the peaks of the recorded order finds a plan that
    takes ``most_ns`` at most (None: any time), to a part of the interval; ``high_bytes`` if none below is enough.

    Looks until the limit of ``problem`` is reached, or its listener has had enough.
    """
    low, high = low_bytes, high_bytes
    with contextlib.suppress(Stopped):
        for _ in range(_HALVINGS):
            middle = (low + high) // 2
            if not low < middle < high or problem.limit.spent:
                break
            if _is_enough(problem, middle, most_ns):
                high = middle
            else:
                low = middle
    return high


def _is_enough(problem: Problem, budget_bytes: int, most_ns: int | None) -> bool:
    search = Search(problem.instance, problem.tables, budget_bytes, False, problem.watch, problem.limit)
    search.repair(np.arange(len(problem.instance.ops)))
    return search.best is not None and (most_ns is None or search.best.time_ns <= most_ns)
