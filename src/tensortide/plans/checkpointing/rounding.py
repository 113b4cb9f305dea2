"""A schedule near the optimum by rounding: the linear relaxation says what to keep (Jain et al. 2020, section 5)."""

from __future__ import annotations

from collections.abc import Iterable

from tensortide.plans.checkpointing.formulation import ONE, Program, Term, formulate
from tensortide.plans.checkpointing.stages import StaticPlan, complete, execute, nothing_kept, tightened
from tensortide.plans.checkpointing.static import StaticGraph

SLACK = (0, 10, 25, 50)
"""Percents of the budget that the relaxation is denied, so that what rounding adds still fits."""


def rounded(static: StaticGraph, budget_bytes: int, time_s: float = 60.0) -> StaticPlan | None:
    """The cheapest schedule within ``budget_bytes`` that rounding finds; None if it finds none.

    What the relaxation keeps to a half or more is kept, and the computations are completed, once for each slack; each
    relaxation gets at most ``time_s`` seconds.

    Needs the extra ``solve``.
    """
    found: list[StaticPlan] = []
    for percent in SLACK:
        program = formulate(static, (budget_bytes - static.fixed_bytes) * (100 - percent) // 100)
        values = _relaxed(program, time_s)
        if values is None:
            break
        keep = nothing_kept(static)
        for (stage, node), var in program.kept.items():
            keep[stage, node] = values[var] >= 0.5
        found.append(execute(static, tightened(static, complete(static, keep)), "LP rounding"))
    fitting = (plan for plan in found if plan.peak_bytes <= budget_bytes)
    return min(fitting, key=lambda plan: plan.cost_ns, default=None)


def _relaxed(program: Program, time_s: float) -> list[float] | None:
    """The values of the variables in an optimum of the linear relaxation; None if there is none or no time."""
    from ortools.linear_solver.python import model_builder

    model = model_builder.Model()  # type: ignore[no-untyped-call]
    variables = [model.new_num_var(float(number == ONE), 1.0, "") for number in range(program.count)]

    def weighted(terms: Iterable[Term]) -> model_builder.LinearExprT:
        weights: dict[int, int] = {}
        for weight, var in terms:
            weights[var] = weights.get(var, 0) + weight
        return model_builder.LinearExpr.weighted_sum([variables[v] for v in weights], list(weights.values()))

    for terms, bound in program.rows:
        model.add(weighted(terms) <= bound)
    model.minimize(weighted(program.cost))
    solver = model_builder.Solver("glop")
    solver.set_time_limit_in_seconds(time_s)
    if solver.solve(model) != model_builder.SolveStatus.OPTIMAL:
        return None
    return [solver.value(variable) for variable in variables]
