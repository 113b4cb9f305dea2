"""The optimum against exhaustive search, heuristics, and a solver's bug."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensortide.plans.checkpointing.optimum import cheapest, optimum, rounded, unavoidable_bytes
from tensortide.plans.checkpointing.segments import chen_sqrt, no_recompute, revolve
from tensortide.plans.checkpointing.static import StaticGraph, chain
from tests.marks import some_slow
from tests.plans.checkpointing.oracles import cheapest_of_all, interpreted, static_graphs


@settings(max_examples=60)
@given(static_graphs(most=6), st.floats(0, 1))
def test_no_schedule_in_stages_is_cheaper(static: StaticGraph, tightness: float) -> None:
    least, most = unavoidable_bytes(static), no_recompute(static).peak_bytes
    budget = least + int((most - least) * tightness)
    expected = cheapest_of_all(static, budget)
    found = optimum(static, budget)
    if expected is None:
        assert found.status == "infeasible"
        assert found.plan is None
        return
    assert found.status == "proved"
    assert found.plan is not None
    assert interpreted(static, found.plan) == (expected, found.plan.activation_bytes)
    assert found.plan.peak_bytes <= budget
    assert found.bound_ns == expected


@settings(max_examples=20)
@given(static_graphs(most=9))
def test_no_heuristic_beats_it_at_its_own_peak(static: StaticGraph) -> None:
    for heuristic in (chen_sqrt(static), chen_sqrt(static, articulation=True, tight=True)):
        found = optimum(static, heuristic.peak_bytes)
        assert found.status == "proved"
        assert found.plan is not None
        assert found.plan.cost_ns <= heuristic.cost_ns
        assert found.plan.peak_bytes <= heuristic.peak_bytes


def uneven(seed: int, length: int) -> StaticGraph:
    chance, count = random.Random(seed), 2 * length + 1
    cost = [chance.randint(10**5, 10**7) for _ in range(count)]
    return chain(length, cost, [chance.randint(1, 10**9) for _ in range(count)])


@pytest.mark.parametrize(("part", "length"), some_slow([(0.9, 16), (0.9, 12), (0.5, 10)], [(0.9, 16)]))
def test_rounding_is_no_better_than_the_proved_optimum(part: float, length: int) -> None:
    """It was, at 0.9: large coefficients make the presolve of CP-SAT 9.15 prove what is not so."""
    static = uneven(3, length)
    budget = int(no_recompute(static).peak_bytes * part)
    best, near, start = optimum(static, budget), rounded(static, budget), cheapest(static, budget)
    assert best.status == "proved"
    assert best.plan is not None
    assert near is not None
    assert start is not None
    assert static.base_ns < best.plan.cost_ns <= min(near.cost_ns, start.cost_ns)
    assert max(plan.peak_bytes for plan in (best.plan, near, start)) <= budget
    assert interpreted(static, near) == (near.cost_ns, near.activation_bytes)


@pytest.mark.parametrize(("length", "slots"), some_slow([(8, 1), (8, 2), (8, 4), (12, 1), (16, 6)], [(12, 1)]))
def test_revolve_is_the_optimum_of_even_chains(length: int, slots: int) -> None:
    plan = revolve(chain(length), slots)
    found = optimum(chain(length), plan.peak_bytes)
    assert found.status == "proved"
    assert found.bound_ns == plan.cost_ns


def test_what_cannot_be_and_what_was_not_tried() -> None:
    assert optimum(chain(4), 2).status == "infeasible"
    assert rounded(chain(4), 2) is None
    untried = optimum(chain(16), 7, nodes=10)
    assert untried.status == "feasible"
    assert untried.plan is not None
    assert untried.bound_ns == 33
    once = StaticGraph(
        cost_ns=(1,) * 4, nbytes=(5, 4, 4, 1), parents=((), (), (1,), (0, 2)), backward=(False,) * 4, until=(0, 1, 2, 3)
    )
    assert unavoidable_bytes(once) == 10
    assert optimum(once, 13).status == "proved"
    assert optimum(once, 12).status == "infeasible"
    assert optimum(once, 12, nodes=0).status == "unknown"
