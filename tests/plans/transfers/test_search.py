"""Plans with transfers: there is one wherever ops fit one by one, as the checker says; nothing moves where all fits."""

from __future__ import annotations

import random

import pytest

from tensortide.plans.events import play
from tensortide.plans.instance import Instance
from tensortide.plans.model import Compute
from tensortide.plans.transfers.search import Transfers
from tensortide.plans.under_budget.idle import least_with_transfers
from tests.plans.events.drawn import random_instance
from tests.plans.events.judge import assert_judged_alike


def searched(instance: Instance, budget_bytes: int) -> Transfers:
    search = Transfers(instance, budget_bytes)
    search.sequence(range(len(instance.ops)), 8, "as recorded")
    return search


@pytest.mark.parametrize("seed", range(40))
def test_with_room_on_a_tier_there_is_a_plan_at_the_least_budget_and_none_below(seed: int) -> None:
    instance = random_instance(random.Random(seed))
    if not instance.links or any(link.capacity_bytes is not None for link in instance.links):
        return
    least = least_with_transfers(instance, recorded=True)
    found = searched(instance, least.nbytes).best
    assert found is not None
    assert_judged_alike(instance, found.steps, found.home, least.nbytes, found.played)
    assert searched(instance, least.nbytes - 1).best is None


@pytest.mark.parametrize("seed", range(40))
def test_nothing_moves_in_a_step_that_fits(seed: int) -> None:
    instance = random_instance(random.Random(seed))
    played = play(
        instance, [Compute(op) for op in range(len(instance.ops))], home=dict.fromkeys(instance.home, "device")
    )
    peak = played.peak_bytes
    found = searched(instance, max(peak, least_with_transfers(instance, recorded=True).nbytes)).best
    assert found is not None
    assert found.played.makespan_ns == instance.base_ns
    assert not any(found.played.moved_bytes.values())
