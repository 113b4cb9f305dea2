"""``frontier``: the fastest plans found from the least budget that any was found for to the peak of the step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tensortide.compiled import compiling_s
from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.plans.planned import Frontier, Planned
from tensortide.plans.remat.schedule import Recording
from tensortide.plans.under_budget.idle import least
from tensortide.search_limit import SearchLimit
from tensortide.studies.planning.least_budget import least_budget
from tensortide.studies.planning.planning import fastest, recording_of
from tensortide.studies.planning.problem import Problem
from tensortide.studies.planning.warm import warm_up

TIME_LIMIT_S = 120.0
"""Seconds of the processor's time after which a search ends that is given no limit."""
_LEAST = 0.2
"""Share of the limit for the least budget for which there is a plan."""


def frontier(
    step: Graph | Recording,
    *,
    points: int = 12,
    device: str | None = None,
    durations_ns: Sequence[int] | None = None,
    time_limit_s: float | None = None,
    work_limit: float | None = None,
    **options: Any,
) -> Frontier:
    """Plan ``step`` under so many budgets; ``options`` are those of ``plan``. The limits are for all of them together;
    without one, it is ``TIME_LIMIT_S``.

    Each plan starts from that for the next smaller budget too, so time never rises with the budget. Once ``watch`` ends
    the search no other begins; what was found so far is returned. Raises PlanError for less than two points.
    """
    if points < 2:
        raise PlanError(f"{points} points are no frontier: give 2 or more")
    recording = recording_of(step, durations_ns, "frontier")
    options["links"] = tuple(options.get("links", ()))
    warm_up(moves=bool(options["links"]))
    main = recording.graph.index.device(device or "")
    limit = SearchLimit.given(time_limit_s, work_limit, otherwise_s=TIME_LIMIT_S, apart_s=compiling_s)
    whole = Problem(recording=recording, device=main, budget_bytes=0, limit=limit, **options)
    whole.partitions  # noqa: B018  (once for all budgets)
    budgets = _budgets(whole, points)
    known = dict(whole.known)
    found: list[Planned] = []
    for number, budget in enumerate(budgets):
        if budget < budgets[-1] and not whole.goes_on():
            continue  # the last one takes no search: its plan is the step as recorded
        part = limit.part(1 / (len(budgets) - number))
        planned = fastest(whole.under(budget, known=known, limit=part, began=time.monotonic()))
        if planned.plan is not None:
            known = {**whole.known, f"the plan for {budget:,} bytes": planned.plan}
            found.append(planned)
    return Frontier(points=tuple(found), step=recording)


def _budgets(problem: Problem, points: int) -> list[int]:
    """Budgets at equal distances up to the peak of the step: from what any plan needs where storages may move, else
    from the least for which a plan is found."""
    low, high = least(problem.instance, problem.tables, problem.idle).nbytes, problem.recorded_peak_bytes
    peak = high
    if problem.links:
        high = problem.least.nbytes
    else:
        high = least_budget(problem.under(0, limit=problem.limit.part(_LEAST)), fastest, low, high)
    return sorted({high + (peak - high) * k // (points - 1) for k in range(points)})
