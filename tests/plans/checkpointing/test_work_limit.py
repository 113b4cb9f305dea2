"""Schedules of limited work are the same however loaded the machine is."""

from __future__ import annotations

import msgspec
import pytest

from tensortide.plans.checkpointing.optimum import Optimum, optimum, rounded
from tensortide.plans.checkpointing.segments import no_recompute
from tests.clocks import on_a_loaded_machine
from tests.plans.checkpointing.test_optimum import uneven

STATIC = uneven(3, 12)
BUDGET = int(no_recompute(STATIC).peak_bytes * 0.4)


def limited(work: float, time_s: float | None = None) -> Optimum:
    return msgspec.structs.replace(optimum(STATIC, BUDGET, time_s, work_limit=work), time_s=0.0)


@pytest.mark.parametrize("work", [0, 1_000, 300_000])
def test_an_optimum_of_limited_work_is_the_same_on_a_loaded_machine(work: float) -> None:
    assert on_a_loaded_machine(lambda: limited(work)) == limited(work)


def test_more_work_finds_no_worse_a_schedule_and_no_worse_a_bound() -> None:
    found = [limited(work) for work in (1_000, 100_000, 10_000_000)]
    costs = [one.plan.cost_ns for one in found if one.plan is not None]
    assert costs == sorted(costs, reverse=True)
    bounds = [one.bound_ns for one in found]
    assert bounds == sorted(bounds)
    assert bounds[0] < bounds[-1]


@pytest.mark.parametrize("work", [1, 10_000_000])
def test_rounding_of_limited_work_is_the_same_on_a_loaded_machine(work: float) -> None:
    budget = int(no_recompute(STATIC).peak_bytes * 0.9)
    found = rounded(STATIC, budget, work_limit=work)
    assert on_a_loaded_machine(lambda: rounded(STATIC, budget, work_limit=work)) == found
    assert (found is None) is (work == 1)
