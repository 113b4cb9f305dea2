"""A search with a limit of work finds the same however loaded the machine is, and says where the limit ended it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tensortide.plans.planned import Planned
from tensortide.studies.planning import frontier, plan
from tensortide.studies.planning.warm import warm_up
from tests.clocks import on_a_loaded_machine
from tests.studies.planning.test_monotone import HOST, SSD, peak, step

WAYS: dict[str, dict[str, Any]] = {
    "recomputation": {},
    "in any order": {"order": "free"},
    "moves": {"links": (HOST,), "recompute": False},
    "all": {"links": (HOST, SSD), "order": "free"},
}


def without_seconds(found: Planned) -> Planned:
    return msgspec.structs.replace(found, search_s=0.0, step=None)


def limited(how: str, work: float, ops: int = 40, **more: Any) -> Planned:
    graph, durations = step(3, ops)
    budget = peak(graph, durations) * 8 // 10
    found = plan(graph, budget, durations_ns=durations, effort=0.05, work_limit=work, **WAYS[how], **more)
    return without_seconds(found)


@pytest.mark.parametrize(
    ("how", "work"),
    [
        ("recomputation", 2_000),
        pytest.param("in any order", 100_000, marks=pytest.mark.slow),
        ("moves", 2_000),
        ("all", 100_000),
    ],
)
def test_a_plan_of_limited_work_is_the_same_on_a_loaded_machine(how: str, work: int) -> None:
    warm_up(moves="links" in WAYS[how])
    found = limited(how, work)
    assert on_a_loaded_machine(lambda: limited(how, work)) == found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "work"),
    [("recomputation", 3_000_000), ("in any order", 300_000), ("moves", 3_000_000), ("all", 300_000)],
)
def test_a_plan_of_a_larger_step_and_limited_work_is_the_same_on_a_loaded_machine(how: str, work: int) -> None:
    found = limited(how, work, 100)
    assert on_a_loaded_machine(lambda: limited(how, work, 100)) == found


@pytest.mark.parametrize("how", ["recomputation", "moves"])
def test_a_plan_says_that_its_work_was_not_complete(how: str) -> None:
    assert not limited(how, 2_000).complete
    assert limited(how, 1e12, 20).complete


def test_more_work_is_no_slower() -> None:
    times = [limited("recomputation", work, 70).step_ns for work in (5_000, 50_000, 500_000, 5_000_000)]
    known = [time for time in times if time is not None]
    assert known == sorted(known, reverse=True)


def test_a_limit_of_seconds_holds_beside_one_of_work() -> None:
    found = on_a_loaded_machine(lambda: limited("recomputation", 1e12, 70, time_limit_s=60.0))
    assert not found.complete


def test_a_frontier_of_limited_work_is_the_same_on_a_loaded_machine() -> None:
    graph, durations = step(3, 30)

    def find() -> list[Planned]:
        found = frontier(graph, points=3, durations_ns=durations, effort=0.05, work_limit=50_000)
        return [without_seconds(point) for point in found.points]

    warm_up(moves=False)
    assert on_a_loaded_machine(find) == find()
