"""Several independent searches of one problem, side by side: in threads, or on a Ray cluster; the best one counts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from tensortide.executors import Where, run_all
from tensortide.placements.problem import Problem
from tensortide.placements.search.algorithm import Search
from tensortide.placements.search.session import Budget, SearchResult


def search_starts(
    search: Search,
    problem: Problem,
    budget: Budget,
    seed: int,
    starts: int,
    where: Where,
    stop: Callable[[], bool] = lambda: False,
) -> SearchResult:
    """Carry out ``search`` from the seeds ``seed``, ``seed + 1``, ..., ``starts`` of them, and return the best result.

    Each has an equal share of the counts of ``budget``, and all of its time. Counts of the result are those of all
    starts; its history is that of the best. The result depends on seed and ``starts``, not on ``where``, as long as no
    time limit ends a search; a start whose worker dies is carried out again. ``stop``: ends all searches in threads,
    and those on a cluster once one has ended; the best of the others is returned.
    """
    count = budget.proposals // starts, None if budget.evaluations is None else budget.evaluations // starts
    each = replace(budget, proposals=max(1, count[0]), evaluations=count[1] and max(1, count[1]))
    heard = stop if where.cluster is None else None
    found: dict[int, SearchResult] = {}
    start = functools.partial(_found, search, problem, each, heard)
    found.update(run_all(start, range(seed, seed + starts), where, lambda: bool(found) and stop()))
    best = min(found.items(), key=lambda item: (item[1].score_ms, item[0]))[1]
    return replace(
        best,
        seed=seed,
        proposals=sum(one.proposals for one in found.values()),
        evaluations=sum(one.evaluations for one in found.values()),
        cpu_s=sum(one.cpu_s for one in found.values()),
        none_fits=any(one.none_fits for one in found.values()),
        ended="interrupted" if stop() and not best.proved else best.ended,
    )


def _found(
    search: Search, problem: Problem, budget: Budget, stop: Callable[[], bool] | None, seed: int
) -> SearchResult:
    return search.search(problem, budget, seed, stop=stop)
