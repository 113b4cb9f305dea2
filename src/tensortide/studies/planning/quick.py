"""Plans in seconds, to stand beside the runs of online policies: static ones, and those of a short search."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tensortide.compiled import IS_COMPILED
from tensortide.plans.immovable import immovable
from tensortide.plans.model import Plan
from tensortide.plans.planned import Planned
from tensortide.plans.under_budget.search import SMALL_EFFORT
from tensortide.replays.remat.simulator import Simulator
from tensortide.search_limit import SearchLimit
from tensortide.studies.planning.least_budget import least_budget
from tensortide.studies.planning.problem import Problem
from tensortide.studies.planning.recomputation import without_links
from tensortide.studies.planning.warm import warm_up

EFFORT = 2.0
"""Millions of ops that are played for a plan."""
TIME_S = 20.0
"""Seconds after which a search for a plan ends."""
MOST_PLAIN = 500
"""Longest step that is planned where Numba does not compile the search."""
_PARTS = 512
"""The budget is a multiple of a power of two that is at least half of this part of the peak."""


def quick_plan(
    simulator: Simulator, budget_bytes: int, known: Mapping[str, Plan], limit: SearchLimit | None = None
) -> Planned | None:
    """The fastest plan found in seconds of the step of ``simulator``, no slower than those ``known``; None if it is too
    long to be planned. ``limit``: of the search, ``TIME_S`` seconds by default."""
    problem = _problem(simulator, budget_bytes, known, limit)
    return None if problem is None else without_links(problem)


def least_plan(
    simulator: Simulator, above_bytes: int, most_ns: int, limit: SearchLimit | None = None
) -> Planned | None:
    """A plan of the least budget for which a short search finds one that takes at most ``most_ns``; None if there is
    none. Budgets up to ``above_bytes`` are known not to do; it is rounded up."""
    problem = _problem(simulator, above_bytes, {}, limit)
    if problem is None:
        return None
    low = max(above_bytes, problem.least.nbytes - 1)
    tried = problem.under(above_bytes, effort=SMALL_EFFORT)
    high = least_budget(tried, without_links, low, problem.recorded_peak_bytes, most_ns=most_ns)
    unit = 1 << max(0, (problem.recorded_peak_bytes // _PARTS).bit_length() - 1)
    budget = -(-high // unit) * unit
    found = without_links(problem.under(budget, began=time.monotonic(), limit=limit or SearchLimit(seconds=TIME_S)))
    return found if found.step_ns is not None and found.step_ns <= most_ns else None


def _problem(
    simulator: Simulator, budget_bytes: int, known: Mapping[str, Plan], limit: SearchLimit | None
) -> Problem | None:
    recording = simulator.recording
    if not IS_COMPILED and len(recording.graph) > MOST_PLAIN:
        return None
    warm_up(moves=False)
    return Problem(
        recording=recording,
        device=simulator.schedule.device,
        budget_bytes=budget_bytes,
        workspace=simulator.workspace is True,
        pinned=immovable(recording.graph),
        effort=EFFORT,
        limit=limit or SearchLimit(seconds=TIME_S),
        known=known,
        policies=False,
        partitioner=False,
    )
