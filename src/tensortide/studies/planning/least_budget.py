"""The least budget for which static strategies, recomputation at the peaks, or an online policy find a plan."""

from __future__ import annotations

import contextlib
from itertools import chain

import numpy as np

from tensortide.plans.under_budget.search import Search, Stopped
from tensortide.studies.planning.known import online, per_block, static
from tensortide.studies.planning.problem import Problem

_HALVINGS = 7
"""Halvings of the interval that holds the least budget."""


def least_budget(problem: Problem, low_bytes: int, high_bytes: int, *, most_ns: int | None = None) -> int:
    """The least budget between the two for which a static strategy, recomputation at the peaks of the recorded order
    or an online policy finds a plan that takes ``most_ns`` at most (None: any time), to a part of the interval;
    ``high_bytes`` if none below is enough.

    Looks until the limit of ``problem`` is reached, or its listener has had enough.
    """
    low, high = low_bytes, high_bytes
    search = Search(problem.instance, problem.tables, high_bytes, False, problem.watch, problem.limit)
    with contextlib.suppress(Stopped):
        search.take_known(chain(per_block(problem), static(problem)))
    peaks = [start.peak_bytes for start in search.starts if most_ns is None or start.time_ns <= most_ns]
    high = max(low + 1, min([high, *peaks]))
    with contextlib.suppress(Stopped):
        for _ in range(_HALVINGS):
            middle = (low + high) // 2
            if not low < middle < high or problem.limit.spent:
                break
            enough = _peak_within(problem, middle, most_ns)
            if enough is None:
                low = middle
            else:
                high = enough
    return high


def _peak_within(problem: Problem, budget_bytes: int, most_ns: int | None) -> int | None:
    """The peak of a plan within ``budget_bytes`` that takes ``most_ns`` at most; None if none is found."""
    search = Search(problem.instance, problem.tables, budget_bytes, False, problem.watch, problem.limit)
    order = np.arange(len(problem.instance.ops))

    def is_found() -> bool:
        return search.best is not None and (most_ns is None or search.best.time_ns <= most_ns)

    search.repair(order)
    if not is_found():
        search.repair_at_random(order)
    if not is_found():
        for known in online(problem.under(budget_bytes)):
            problem.limit.spend(len(order))
            search.take_known([known])
            if is_found():
                break
    return search.best.peak_bytes if search.best is not None and is_found() else None
