"""``frontier``: the fastest plans found from the least budget that any was found for to the peak of the step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.plans.instance import instance
from tensortide.plans.model import Plan
from tensortide.plans.remat.schedule import Recording
from tensortide.plans.transfers.least import least_with_transfers
from tensortide.plans.under_budget.gaps import gaps, least
from tensortide.plans.under_budget.planned import Frontier, Planned
from tensortide.plans.under_budget.search import Incumbent
from tensortide.plans.under_budget.tables import tables
from tensortide.studies.planning.planning import plan, recording_of

_HALVINGS = 7
"""Halvings of the interval that holds the least budget for which recomputation at the peaks finds a plan."""


def frontier(
    step: Graph | Recording,
    *,
    points: int = 12,
    device: str | None = None,
    durations_ns: Sequence[int] | None = None,
    time_limit_s: float = 120.0,
    **options: Any,
) -> Frontier:
    """Plan ``step`` under so many budgets; ``options`` are those of ``plan``.

    Each plan starts from that for the next smaller budget too, so time never rises with the budget. Raises PlanError
    for less than two points.
    """
    if points < 2:
        raise PlanError(f"{points} points are no frontier: give 2 or more")
    recording = recording_of(step, durations_ns)
    device = recording.graph.index.device(device or "")
    budgets = _budgets(recording, device, points, options)
    end = time.monotonic() + time_limit_s
    known: dict[str, Plan] = {}
    found: list[Planned] = []
    for number, budget in enumerate(budgets):
        left = max(0.0, end - time.monotonic()) / (len(budgets) - number)
        planned = plan(recording, budget, device=device, time_limit_s=left, known=known, **options)
        if planned.plan is not None:
            known = {f"the plan for {budget:,} bytes": planned.plan}
            found.append(planned)
    return Frontier(points=tuple(found))


def _budgets(recording: Recording, device: str, points: int, options: dict[str, Any]) -> list[int]:
    """Budgets at equal distances up to the peak of the step: from what any plan needs where storages may move, else
    from the least for which recomputation at the peaks finds a plan."""
    taken = {name: options[name] for name in ("links", "workspace", "pinned", "keep_random") if name in options}
    problem = instance(recording.graph, device, recording.durations_ns, **taken)
    t = tables(problem)
    idle = gaps(problem, t)
    low, high = least(problem, t, idle).nbytes, int(idle.need.max(initial=0))
    peak = high
    if problem.links:
        high = least_with_transfers(problem, recorded=options.get("order", "recorded") == "recorded").nbytes
    for _ in range(0 if problem.links else _HALVINGS):
        middle = (low + high) // 2
        best = Incumbent(problem, t, middle, free=False)
        best.repair(np.arange(len(problem.ops)))
        if best.best is None:
            low = middle
        else:
            high = middle
    return sorted({high + (peak - high) * k // (points - 1) for k in range(points)})
