"""Time does not rise with anything that can grow: budget, memory of a tier, rates, the set of links, freedom of order.

Each sweep gives the plan of the smaller machine to the planner as one to beat, as ``frontier`` does.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from fractions import Fraction

import pytest

from tensortide.graph.model import Graph
from tensortide.plans.instance import instance
from tensortide.plans.model import Plan
from tensortide.plans.planned import FirstRuns
from tensortide.plans.under_budget.idle import idle_intervals
from tensortide.plans.under_budget.tables import tables
from tensortide.studies.planning import plan
from tensortide.timing.links import Link
from tests.plans.dags import random_dag

EFFORT = 0.02
HOST = Link("host", Fraction(10**8), 20, capacity_bytes=None)
SSD = Link("ssd", Fraction(10**7), 50, capacity_bytes=None)


def step(seed: int, ops: int = 70) -> tuple[Graph, list[int]]:
    """A step too large to be solved as a whole, and the durations of its ops."""
    graph = random_dag(seed, ops)
    chance = random.Random(seed)
    return graph, [chance.randint(1, 500) for _ in range(len(graph))]


def peak(graph: Graph, durations: list[int]) -> int:
    problem = instance(graph, graph.index.main_device, durations)
    return int(idle_intervals(problem, tables(problem)).need.max())


def assert_never_slower(
    seed: int, machines: Iterable[tuple[float, tuple[Link, ...]]], order: FirstRuns = "recorded", ops: int = 70
) -> None:
    """``machines``: a budget as a part of the peak, and links, the smallest first."""
    graph, durations = step(seed, ops)
    whole = peak(graph, durations)
    known: dict[str, Plan] = {}
    times = []
    for part, links in machines:
        found = plan(
            graph,
            int(part * whole),
            durations_ns=durations,
            links=links,
            known=known,
            effort=EFFORT,
            order=order,
        )
        times.append(float("inf") if found.step_ns is None else found.step_ns)
        if found.plan is not None:
            known = {"smaller machine": found.plan}
    assert len(times) >= 8
    assert times == sorted(times, reverse=True)


def part_of(link: Link, share: float, capacity: int | None = None) -> Link:
    return Link(link.name, link.bytes_per_s * Fraction(share), link.latency_ns, capacity_bytes=capacity)


@pytest.mark.parametrize("seed", [1])
def test_budget(seed: int) -> None:
    assert_never_slower(seed, [(0.5 + 0.06 * k, ()) for k in range(9)], ops=30)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["recorded", "free"])
def test_budget_with_links(order: FirstRuns) -> None:
    assert_never_slower(3, [(0.5 + 0.06 * k, (HOST,)) for k in range(9)], order)


@pytest.mark.slow
def test_memory_of_a_tier() -> None:
    graph, durations = step(4)
    whole = peak(graph, durations)
    assert_never_slower(4, [(0.6, (part_of(HOST, 1, whole * k // 16),)) for k in range(1, 9)])


@pytest.mark.slow
def test_rates() -> None:
    assert_never_slower(5, [(0.6, (part_of(SSD, 0.25 * 2**k),)) for k in range(8)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6])
def test_links_and_order(seed: int) -> None:
    """Without any plan given: each set of links, and freedom, has the plans of what it includes as candidates."""
    graph, durations = step(seed, 40)
    budget = peak(graph, durations) * 6 // 10
    sets: list[tuple[Link, ...]] = [(), (HOST,), (SSD,), (HOST, SSD)]

    def times(order: FirstRuns) -> list[float]:
        found = (
            plan(graph, budget, durations_ns=durations, links=links, effort=0.05, order=order).step_ns for links in sets
        )
        return [float("inf") if ns is None else ns for ns in found]

    recorded, free = times("recorded"), times("free")
    for none, host, ssd, both in (recorded, free):
        assert max(host, ssd) <= none
        assert both <= min(host, ssd)
    assert all(one <= other for one, other in zip(free, recorded, strict=True))
