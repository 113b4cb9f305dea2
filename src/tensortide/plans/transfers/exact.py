"""Small steps with transfers solved by OR-Tools, from the best plan known."""

from __future__ import annotations

import importlib.util
import time

from tensortide.plans.instance import Instance
from tensortide.plans.transfers.constraints import Limits, Model
from tensortide.plans.transfers.search import Transfers

MOST_OPS = 60
"""Longest step that is solved as a whole."""


def is_solvable(instance: Instance) -> bool:
    """Tell whether a step is small enough, and OR-Tools is installed."""
    return len(instance.ops) <= MOST_OPS and importlib.util.find_spec("ortools") is not None


def improve(search: Transfers, *, free: bool, recompute: bool, effort: float) -> None:
    """Look for a plan better than the best one, within ``Limits``.

    ``effort``: deterministic time of the solver. Does nothing where OR-Tools is not installed.
    """
    if not is_solvable(search.instance) or search.done():
        return
    from ortools.sat.python import cp_model

    instance = search.instance
    horizon = search.best.played.makespan_ns if search.best is not None else _longest(search)
    model = Model(
        instance,
        search.budget_bytes,
        horizon,
        bound_ns=search.bound_ns,
        free=free,
        recompute=recompute,
        limits=Limits(),
    )
    if search.best is not None:
        model.hint(search.best.played)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = effort
    solver.parameters.max_time_in_seconds = max(0.1, min(1e6, search.deadline - time.monotonic()))
    status = solver.solve(model.cp)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        tokens, homes = model.tokens(solver.value)
        search.offer(tokens, homes, "constraint model")


def _longest(search: Transfers) -> int:
    """A time that no plan worth having exceeds."""
    instance = search.instance
    moves = max((x.transfer_ns(s.nbytes) for x in instance.links for s in instance.storages), default=0)
    return 4 * instance.base_ns + 8 * moves * len(instance.storages)
