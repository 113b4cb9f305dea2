"""What a plan may not do, it does not: recompute, move what is pinned, or go on when it is told to stop."""

from __future__ import annotations

import random
import time

import pytest

from tensortide import plan
from tensortide.errors import PlanError, RequestError
from tensortide.graph.model import Role
from tensortide.plans.instance import instance
from tensortide.plans.model import Compute, Copy, Evict, Fetch, Offload, Plan
from tensortide.plans.under_budget.idle import idle_intervals
from tensortide.plans.under_budget.tables import tables
from tensortide.studies.planning.pins import pinned
from tensortide.studies.remat.linear import linear_network
from tests.plans.dags import random_dag
from tests.studies.planning.test_monotone import HOST, peak, step


def moved_of(found: Plan) -> set[int]:
    return {s.storage for s in found.lanes[0].steps if isinstance(s, Copy | Offload | Fetch | Evict)}


def test_without_recomputation_every_op_runs_once() -> None:
    graph, durations = step(1, 30)
    budget = peak(graph, durations) * 8 // 10
    found = plan(graph, budget, durations_ns=durations, links=(HOST,), recompute=False, effort=0.05)
    assert found.plan is not None
    runs = [s.op for s in found.plan.lanes[0].steps if isinstance(s, Compute)]
    assert len(runs) == len(set(runs)) == len(graph)
    assert moved_of(found.plan)
    assert "recomputation" not in found.plan_class
    alone = plan(graph, budget, durations_ns=durations, recompute=False, effort=0.05)
    assert alone.plan is None
    assert alone.status == "infeasible"


def test_what_is_pinned_neither_moves_nor_is_evicted() -> None:
    graph, durations = step(2, 12)
    budget = peak(graph, durations) * 8 // 10
    free = plan(graph, budget, durations_ns=durations, links=(HOST,), effort=0.01)
    assert free.plan is not None
    chosen = random.Random(0).sample(sorted(moved_of(free.plan)), 2)
    found = plan(graph, budget, durations_ns=durations, links=(HOST,), effort=0.01, pinned=set(chosen))
    assert found.plan is None or not moved_of(found.plan) & set(chosen)


def test_a_pattern_names_storages_by_role_and_by_module() -> None:
    graph = random_dag(2, 20)
    roles = {storage.role for storage in graph.storages}
    role = min(roles)
    assert pinned(graph, [role.value]) == {i for i, s in enumerate(graph.storages) if s.role is role}
    assert pinned(graph, []) == set()
    missing = next(each.value for each in Role if each not in roles)
    with pytest.raises(PlanError, match=f"--pin {missing} names no tensor: .* or a role: .*{role.value}"):
        pinned(graph, [missing])


def test_the_listener_ends_a_search_with_links() -> None:
    graph, durations = step(2, 70)
    budget = peak(graph, durations) * 7 // 10
    asked = []

    def watch(best: int | None, bound: int) -> bool:
        asked.append((best, bound))
        return best is None

    began = time.process_time()
    found = plan(graph, budget, durations_ns=durations, links=(HOST,), effort=1000, watch=watch)
    assert time.process_time() - began < 60
    assert asked[-1][0] is not None
    assert not found.complete
    assert found.plan is not None


def test_a_step_that_takes_no_time_is_refused() -> None:
    graph = random_dag(2, 20)
    with pytest.raises(PlanError, match="every op takes 0 ns"):
        plan(graph, 1, durations_ns=[0] * len(graph))


def test_ops_of_no_time_among_others_are_planned() -> None:
    graph = random_dag(2, 20)
    durations = [0, *[7] * (len(graph) - 1)]
    problem = instance(graph, graph.index.main_device, durations)
    whole = int(idle_intervals(problem, tables(problem)).need.max())
    found = plan(graph, whole, durations_ns=durations)
    assert found.step_ns == sum(durations)


@pytest.mark.parametrize("effort", [-1, float("nan"), "much"])
def test_what_is_no_effort_is_said(effort: float) -> None:
    with pytest.raises(RequestError, match="effort is a number of millions of ops, 0 or more, not"):
        plan(linear_network(8), "80%", effort=effort)
