"""The cheapest schedule within a budget by integer programming, proved or rounded (Jain et al. 2020, "Checkmate")."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from tensortide.plans.checkpointing.segments import (
    checkpoint_all,
    checkpoint_last,
    chen_greedy_sweep,
    chen_sqrt,
    is_chain,
    no_recompute,
    revolve,
)
from tensortide.plans.checkpointing.stages import StaticPlan, nothing_kept, planned
from tensortide.plans.checkpointing.static import StaticGraph
from tensortide.plans.model import Compute
from tensortide.search_limit import SearchLimit, attended

Term: TypeAlias = tuple[int, int]
"""A coefficient and a variable."""


@dataclass(slots=True)
class Program:
    """Minimise ``sum(cost)`` over variables 0 or 1 such that each of ``rows`` sums to at most its bound.

    For stage t and node i <= t, ``made[t, i]`` says that t computes i, ``kept[t, i]`` that it finds i resident; never
    both. A third kind of variable, ``need``, stands for the ``FREE`` of the paper (section 4): whether i is still to be
    read in stage t, by a node from some position on, or to be kept. All three are monotone, so the bytes resident while
    k is computed are a plain sum, and the linear relaxation is tight: stages, more than anything else, make it so.

    ``made`` and ``kept`` number the variables by (stage, node). Node t is computed in stage t: ``made[t, t]`` is
    ``ONE``. What the step leaves behind is needed after the last stage: ``kept[n, i]`` is ``ONE``.
    """

    count: int = 1
    made: dict[tuple[int, int], int] = field(default_factory=dict)
    kept: dict[tuple[int, int], int] = field(default_factory=dict)
    rows: list[tuple[list[Term], int]] = field(default_factory=list)
    cost: list[Term] = field(default_factory=list)
    ns: int = 1

    def variable(self) -> int:
        """A new one."""
        self.count += 1
        return self.count - 1

    def at_most(self, bound: int, *terms: Term) -> None:
        """Require the sum of ``terms`` to be at most ``bound``."""
        self.rows.append((list(terms), bound))


ONE = 0
"""The variable that is 1."""


def formulate(static: StaticGraph, activation_bytes: int) -> Program:
    """The program for at most ``activation_bytes`` resident while any node is computed; costs in units of ``ns``."""
    program = Program(ns=math.gcd(*static.cost_ns) or 1)
    _variables(static, program)
    _precedence(static, program)
    _memory(static, program, activation_bytes)
    program.cost = [(static.cost_ns[node] // program.ns, made) for (_, node), made in program.made.items()]
    return program


def _variables(static: StaticGraph, program: Program) -> None:
    for stage in range(len(static)):
        for node in range(stage):
            program.kept[stage, node] = program.variable()
            if stage <= static.until[node]:
                program.made[stage, node] = program.variable()
        program.made[stage, stage] = ONE
    program.kept.update(((len(static), node), ONE) for node in static.kept)


def _precedence(static: StaticGraph, program: Program) -> None:
    """Require that a value kept was resident before, a value read is resident, and none is computed while resident."""
    made, kept = program.made, program.kept
    for (stage, node), var in kept.items():
        program.at_most(0, (1, var), *_of(-1, (made, kept), stage - 1, node))
        program.at_most(1, (1, var), *_of(1, (made,), stage, node))
    for (stage, node), var in made.items():
        for parent in static.parents[node]:
            program.at_most(0, (1, var), *_of(-1, (made, kept), stage, parent))


def _of(sign: int, tables: tuple[dict[tuple[int, int], int], ...], stage: int, node: int) -> list[Term]:
    return [(sign, table[stage, node]) for table in tables if (stage, node) in table]


def _memory(static: StaticGraph, program: Program, activation_bytes: int) -> None:
    unit = math.gcd(*static.nbytes) or 1
    size = [nbytes // unit for nbytes in static.nbytes]
    for stage in range(len(static)):
        needs = [_needs(static, program, stage, node) for node in range(stage + 1)]
        for at in range(stage + 1):
            terms = [(size[at], var) for _, var in _of(1, (program.made, program.kept), stage, at)]
            needed = ((size[node], needs[node][at]) for node in range(at))
            terms += ((weight, var) for weight, var in needed if var is not None)
            terms += ((size[node], program.kept[stage, node]) for node in range(at + 1, stage))
            program.at_most(activation_bytes // unit, *((weight, var) for weight, var in terms if weight))


def _needs(static: StaticGraph, program: Program, stage: int, node: int) -> dict[int, int | None]:
    """For each later position of the stage the variable that says whether ``node`` is needed there or after it; None
    where it is not."""
    need = program.kept.get((stage + 1, node))
    found: dict[int, int | None] = {}
    end = stage
    for child in reversed([c for c in static.children[node] if c <= stage]):
        found.update(dict.fromkeys(range(child + 1, end + 1), need))
        end = child
        read = program.made.get((stage, child))
        if read is None or need == ONE:
            continue
        if need is None or read == ONE:
            need = read
            continue
        either = program.variable()
        program.at_most(0, (1, need), (-1, either))
        program.at_most(0, (1, read), (-1, either))
        need = either
    found.update(dict.fromkeys(range(node + 1, end + 1), need))
    return found


Status: TypeAlias = Literal["proved", "feasible", "infeasible", "unknown"]
"""The plan is optimal; it is the best found; there is none; none was found, and there may be one."""

NODES = 200
"""Up to so many nodes the program is built: its rows hold about n**3 / 3 terms."""

TIME_LIMIT_S = 60.0
"""Seconds after which a search ends that is given no limit."""

WORK_PER_SECOND = 10**6
"""Work for which a second of a solver's deterministic time counts."""

_ENDLESS_S = 1e6

SLOTS = 32
"""Up to so many checkpoints ``heuristics`` tries on chains."""

SLACK = (0, 10, 25, 50)
"""Percents of the budget that the relaxation is denied, so that what rounding adds still fits."""


class Optimum(msgspec.Struct, frozen=True, kw_only=True):
    """The cheapest schedule found, and what no schedule of this kind can beat.

    ``bound_ns <= cost of the optimum <= plan.cost_ns``. The optimum is over schedules in stages: the nodes are computed
    for the first time in the order of the graph, and each at most once between two of those first times.
    """

    status: Status
    plan: StaticPlan | None
    bound_ns: int
    budget_bytes: int
    time_s: float


def optimum(
    static: StaticGraph,
    budget_bytes: int,
    time_limit_s: float | None = None,
    *,
    work_limit: float | None = None,
    nodes: int = NODES,
) -> Optimum:
    """The cheapest schedule of ``static`` whose peak is at most ``budget_bytes``, what is resident throughout included.

    Starts from the cheapest heuristic schedule within the budget and searches with OR-Tools CP-SAT on one thread, its
    linear relaxation at full strength: without it nothing is proved. Beyond ``nodes`` nodes the heuristic is all there
    is, and the bound is that of no recomputation.

    ``time_limit_s``: about so many seconds, 60 by default without a ``work_limit``, and none with one. ``work_limit``:
    steps of schedules that are made; a second of the solver's deterministic time counts as ``WORK_PER_SECOND``.

    Needs the extra ``solve``.
    """
    start, limit = time.monotonic(), SearchLimit.given(time_limit_s, work_limit, otherwise_s=TIME_LIMIT_S)
    best = cheapest(static, budget_bytes, limit)
    status: Status = "feasible" if best else "unknown"
    bound = static.base_ns
    if best is not None and best.cost_ns == bound:
        status = "proved"
    elif unavoidable_bytes(static) > budget_bytes:
        status, best = "infeasible", None
    elif len(static) <= nodes:
        status, best, bound = _solved(static, budget_bytes, best, limit)
    spent = round(time.monotonic() - start, 3)
    return Optimum(status=status, plan=best, bound_ns=bound, budget_bytes=budget_bytes, time_s=spent)


def unavoidable_bytes(static: StaticGraph) -> int:
    """Bytes without which some node cannot be computed: what it makes and reads, what is resident throughout; at the
    end, all that the step leaves behind."""
    needs = (sum(static.nbytes[u] for u in {node, *read}) for node, read in enumerate(static.parents))
    return static.fixed_bytes + max([sum(static.nbytes[node] for node in static.kept), *needs], default=0)


def heuristics(static: StaticGraph) -> Iterator[StaticPlan]:
    """Schedules of all strategies here that a graph has, with nothing retained beyond its last use."""
    yield no_recompute(static)
    yield checkpoint_last(static, tight=True)
    if is_chain(static):
        yield from (revolve(static, slots) for slots in range(1, min(len(static) // 2, SLOTS)))
    for articulation in (False, True):
        yield checkpoint_all(static, articulation=articulation, tight=True)
        yield chen_sqrt(static, articulation=articulation, tight=True)
        yield from chen_greedy_sweep(static, articulation=articulation, tight=True)


def cheapest(static: StaticGraph, budget_bytes: int, limit: SearchLimit | None = None) -> StaticPlan | None:
    """The cheapest of ``heuristics`` whose peak is at most ``budget_bytes``; None if there is none.

    The first one, no recomputation, wins where it fits; none is tried once ``limit`` is reached, of which each spends
    its steps.
    """
    limit = limit or SearchLimit()
    best: StaticPlan | None = None
    for plan in heuristics(static):
        limit.spend(len(plan.steps))
        if plan.peak_bytes <= budget_bytes and (best is None or plan.cost_ns < best.cost_ns):
            best = plan
        if limit.spent or (best is not None and best.cost_ns == static.base_ns):
            break
    return best


def _solved(
    static: StaticGraph, budget_bytes: int, hint: StaticPlan | None, limit: SearchLimit
) -> tuple[Status, StaticPlan | None, int]:
    from ortools.sat.python import cp_model

    program = formulate(static, budget_bytes - static.fixed_bytes)
    model = cp_model.CpModel()
    variables = [model.new_bool_var("") for _ in range(program.count)]
    model.add(variables[ONE] == 1)
    for terms, bound in program.rows:
        model.add(cp_model.LinearExpr.weighted_sum([variables[v] for _, v in terms], [w for w, _ in terms]) <= bound)
    model.minimize(
        cp_model.LinearExpr.weighted_sum([variables[v] for _, v in program.cost], [w for w, _ in program.cost])
    )
    if hint is not None:
        made = _stages_of(static, hint)
        for (stage, node), var in program.made.items():
            if var != ONE:
                model.add_hint(variables[var], (stage, node) in made)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2
    solver.parameters.cp_model_presolve = False  # proves wrong optima in 9.15: google/or-tools#5293
    solver.parameters.max_time_in_seconds = min(_ENDLESS_S, max(1.0, limit.seconds_left))
    solver.parameters.max_deterministic_time = limit.work_left / WORK_PER_SECOND
    status = attended(lambda: solver.solve(model), stop=solver.stop_search)
    if status == cp_model.INFEASIBLE and hint is None:
        return "infeasible", None, static.base_ns
    bound = max(static.base_ns, math.ceil(solver.best_objective_bound - 1e-6) * program.ns)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return ("feasible" if hint else "unknown"), hint, bound
    plan = _retaining(static, program, [solver.boolean_value(variable) for variable in variables], "optimum")
    if hint is not None and hint.cost_ns < plan.cost_ns:
        plan = hint
    return ("proved" if plan.cost_ns <= bound else "feasible"), plan, bound


def _stages_of(static: StaticGraph, plan: StaticPlan) -> set[tuple[int, int]]:
    """The computations of a schedule as pairs of stage and node."""
    found, stage = set(), 0
    for step in plan.steps:
        if isinstance(step, Compute):
            found.add((stage, step.op))
            stage += step.op == stage
    return found


def _retaining(static: StaticGraph, program: Program, chosen: Sequence[bool], strategy: str) -> StaticPlan:
    """The schedule that keeps what the ``chosen`` variables say."""
    keep = nothing_kept(static)
    for (stage, node), var in program.kept.items():
        keep[stage, node] = chosen[var]
    return planned(static, keep, strategy)


def rounded(
    static: StaticGraph, budget_bytes: int, time_limit_s: float | None = None, *, work_limit: float | None = None
) -> StaticPlan | None:
    """The cheapest schedule within ``budget_bytes`` that rounding finds; None if it finds none.

    The linear relaxation says what to keep (Jain et al. 2020, section 5): what it keeps to a half or more is kept, and
    the computations are completed, once for each slack. The limits are those of ``optimum``, for each relaxation.

    Needs the extra ``solve``.
    """
    found: list[StaticPlan] = []
    for percent in SLACK:
        program = formulate(static, (budget_bytes - static.fixed_bytes) * (100 - percent) // 100)
        values = _relaxed(program, SearchLimit.given(time_limit_s, work_limit, otherwise_s=TIME_LIMIT_S))
        if values is None:
            break
        found.append(_retaining(static, program, [value >= 0.5 for value in values], "LP rounding"))
    fitting = (plan for plan in found if plan.peak_bytes <= budget_bytes)
    return min(fitting, key=lambda plan: plan.cost_ns, default=None)


def _relaxed(program: Program, limit: SearchLimit) -> list[float] | None:
    """The values of the variables in an optimum of the linear relaxation; None if none is found within ``limit``."""
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
    solver.set_time_limit_in_seconds(min(_ENDLESS_S, limit.seconds_left))
    if limit.work_left != math.inf:
        solver.set_solver_specific_parameters(f"max_deterministic_time: {limit.work_left / WORK_PER_SECOND}")
    if attended(lambda: solver.solve(model), stop=solver.stop_search) != model_builder.SolveStatus.OPTIMAL:
        return None
    return [solver.value(variable) for variable in variables]
