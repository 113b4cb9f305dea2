"""Small steps with transfers solved by OR-Tools, from the best plan known."""

from __future__ import annotations

import importlib.util

from tensortide.plans.instance import Instance
from tensortide.plans.transfers.constraints import Limits, Model
from tensortide.plans.transfers.search import Transfers
from tensortide.search_limit import attended

MOST_OPS = 60
"""Longest step that is solved as a whole."""
OPS_PER_UNIT = 10**6 / 0.6
"""A unit of the solver's deterministic time, about a second, counts as playing so many ops."""


def is_solvable(instance: Instance) -> bool:
    """Tell whether a step is small enough, and OR-Tools is installed."""
    return len(instance.ops) <= MOST_OPS and importlib.util.find_spec("ortools") is not None


def improve(search: Transfers, *, free: bool, recompute: bool, effort: float) -> None:
    """Look for a plan better than the best one, within ``Limits``.

    ``effort``: deterministic time of the solver, a unit of which counts as ``OPS_PER_UNIT`` ops played. Does nothing
    where OR-Tools is not installed. Raises Stopped once the listener of ``search`` has had enough.
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
    solver.parameters.max_deterministic_time = min(effort, search.limit.work_left / OPS_PER_UNIT)
    try:
        attended(lambda: solver.solve(model.cp), search.look, solver.stop_search)
    finally:  # a solver that is stopped has its best solution, too
        search.limit.spend(solver.response_proto.deterministic_time * OPS_PER_UNIT)
        if solver.response_proto.status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            tokens, homes = model.tokens(solver.value)
            search.offer(tokens, homes, "constraint model")


def _longest(search: Transfers) -> int:
    """A time that no plan worth having exceeds."""
    instance = search.instance
    moves = max((x.transfer_ns(s.nbytes) for x in instance.links for s in instance.storages), default=0)
    return 4 * instance.base_ns + 8 * moves * len(instance.storages)
