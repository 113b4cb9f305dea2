"""Steps that no plan fits into a budget: proved without a search, and what may help."""

from __future__ import annotations

import time

from tensortide.plans.planned import Planned
from tensortide.plans.proofs import NAMES
from tensortide.plans.under_budget.bound import EachOnce
from tensortide.plans.under_budget.idle import Least, least_in_any_order, least_with_transfers
from tensortide.studies.planning.problem import Problem


def too_large(problem: Problem, least: Least) -> Planned:
    """The answer where an op needs ``least`` by itself, more than the budget: no plan of any class fits."""
    return Planned(
        status="infeasible",
        plan=None,
        step_ns=None,
        peak_bytes=None,
        base_ns=problem.instance.base_ns,
        bound_ns=problem.instance.base_ns,
        plan_class=problem.plan_class,
        bound_name=NAMES[EachOnce],
        proof=EachOnce(),
        least=least,
        rivals=(),
        budget_bytes=problem.budget_bytes,
        recorded_peak_bytes=problem.recorded_peak_bytes,
        device=problem.device,
        search_s=time.monotonic() - problem.began,
        one_op=True,
    )


def may_help(problem: Problem) -> tuple[str, ...]:
    """The options that allow more plans than ``problem`` does, of which some may fit: the least that these need is
    within the budget."""
    made, budget_bytes, recorded = problem.instance, problem.budget_bytes, problem.order == "recorded"
    found = []
    if not problem.links and least_with_transfers(made, recorded=recorded).nbytes <= budget_bytes:
        found.append("--offload host")
    if recorded:
        least = least_with_transfers(made, recorded=False) if problem.links else least_in_any_order(made)
        found += ["--order free"] * (least.nbytes <= budget_bytes)
    return tuple(found)
