"""Choices of what moves, placed by a ledger: as the event rules play them, within capacities, and never worse."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from tensortide.errors import PlanError
from tensortide.plans.events import play
from tensortide.plans.instance import Instance
from tensortide.plans.model import Compute, Fetch
from tensortide.plans.transfers.choosing import PRICES, Choosing, Setting
from tensortide.plans.transfers.kernels.arrays import HERE
from tensortide.plans.transfers.kernels.placing import NEVER
from tensortide.plans.transfers.search import Transfers
from tensortide.plans.under_budget.local_search import LocalSearch
from tensortide.plans.under_budget.sequence import steps_of
from tensortide.plans.under_budget.tables import Ints
from tensortide.plans.under_budget.touches import touches_of
from tensortide.search_limit import no_look
from tensortide.timing.links import Link
from tests.plans.events.judge import assert_judged_alike
from tests.plans.transfers.drawn import training_step
from tests.plans.under_budget.test_search import chained

SEEDS = range(150)


def drawn(seed: int) -> tuple[random.Random, Instance, Choosing]:
    """A step, some of whose ops run twice, and a budget around what it needs."""
    chance = random.Random(seed)
    step = training_step(chance, links=1 + seed % 2, layers=6)
    sequence = np.arange(len(step.ops))
    level = Choosing(Setting(step, no_look, lambda ops: None), sequence, 0).x.level
    budget = int(level.max()) - chance.randint(0, 15)
    return chance, step, Choosing(Setting(step, no_look, lambda ops: None), sequence, budget)


def random_choice(chance: random.Random, step: Instance, choosing: Choosing) -> Ints:
    choice = choosing.nothing()
    for i in range(len(choice)):
        if chance.random() < 0.6:
            choosing.choose(choice, i, chance.choice(step.links).name)
    return choice


@pytest.mark.parametrize("seed", SEEDS)
def test_a_choice_takes_as_long_as_its_plan_and_exceeds_no_capacity(seed: int) -> None:
    chance, step, choosing = drawn(seed)
    choice = random_choice(chance, step, choosing)
    made = choosing.made(choice)
    assert (made.time_ns == NEVER) == (made.short_bytes > 0)
    if made.short_bytes:
        return
    search = Transfers(step, choosing.budget)
    homes = search.homes(choosing.setting.homes(made))
    steps = steps_of(choosing.setting.t, choosing.setting.told(made))
    try:
        played = play(step, steps, home=homes, budget_bytes=choosing.budget)
    except PlanError:
        assert any(link.capacity_bytes is not None for link in step.links)  # a copy finds no room until another goes
        return
    assert_judged_alike(step, steps, homes, choosing.budget, played)
    assert played.peak_bytes <= choosing.budget
    for link in step.links:
        assert link.capacity_bytes is None or played.tier_peak_bytes[link.name] <= link.capacity_bytes
    if all(link.capacity_bytes is None for link in step.links):
        assert played.makespan_ns == made.time_ns
    assert played.makespan_ns >= made.time_ns


@pytest.mark.parametrize("seed", SEEDS)
def test_every_fetch_ends_before_what_needs_it_starts(seed: int) -> None:
    chance, step, choosing = drawn(seed)
    made = choosing.made(random_choice(chance, step, choosing))
    if made.short_bytes or any(link.capacity_bytes is not None for link in step.links):
        return
    homes = Transfers(step, choosing.budget).homes(choosing.setting.homes(made))
    played = play(
        step, steps_of(choosing.setting.t, choosing.setting.told(made)), home=homes, budget_bytes=choosing.budget
    )
    arrives: dict[int, int] = {}
    for primitive, start, end in zip(played.steps, played.start_ns, played.end_ns, strict=True):
        if isinstance(primitive, Fetch):
            arrives[primitive.storage] = end
        if isinstance(primitive, Compute):
            assert all(arrives.get(s, 0) <= start for s in step.ops[primitive.op].touches)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_is_read_as_the_choice_that_it_was_made_of(seed: int) -> None:
    chance, step, choosing = drawn(seed)
    choice = random_choice(chance, step, choosing)
    made = choosing.made(choice)
    if made.short_bytes:
        return
    again = choosing.of_steps(choosing.setting.told(made), choosing.setting.homes(made))
    assert again.tolist() == choice.tolist()


@pytest.mark.parametrize("price", PRICES)
def test_what_is_covered_fits_nearly_wherever_all_that_can_move_makes_room(price: float) -> None:
    fits = short = 0
    for seed in SEEDS:
        _, step, choosing = drawn(seed)
        covered = choosing.covered(choosing.nothing(), price)
        made = choosing.made(covered)
        everything = choosing.nothing()
        for i in range(len(everything)):
            choosing.choose(everything, i, step.links[-1].name)
        if not choosing.made(everything).short_bytes:
            fits += not made.short_bytes
            short += made.short_bytes > 0
    assert fits > len(SEEDS) // 3
    assert short <= fits // 20


@pytest.mark.parametrize("seed", range(30))
def test_a_search_returns_faster_choices_alone_and_the_same_at_every_call(seed: int) -> None:
    _, _, choosing = drawn(seed)
    start = choosing.covered(choosing.nothing(), PRICES[seed % 2])
    found = [choosing.made(choice).time_ns for choice in choosing.improved(start, 300)]
    assert found == [choosing.made(choice).time_ns for choice in choosing.improved(start, 300)]
    assert all(after < before for before, after in pairwise(found))
    if choosing.made(start).time_ns < NEVER:
        assert found[-1] <= choosing.made(start).time_ns


def test_a_storage_moves_over_one_link_and_not_around_the_step_and_to_its_ends_at_once() -> None:
    for seed in SEEDS:
        chance, step, choosing = drawn(seed)
        dear = choosing.covered(choosing.nothing(), PRICES[-1])
        for choice in (random_choice(chance, step, choosing), dear, *choosing.improved(dear, 20)):
            _check_storages(choosing, choice, len(step.ops))


def _check_storages(choosing: Choosing, choice: Ints, count: int) -> None:
    v = choosing.v
    for s, numbers in choosing.of_storage.items():
        chosen = [i for i in numbers if choice[i] != HERE]
        assert len({int(choice[i]) for i in chosen}) <= 1, s
        ends = [i for i in chosen if not v.wraps[i] and (v.before[i] < 0 or v.after[i] >= count)]
        assert not (ends and any(v.wraps[i] for i in chosen)), s


def test_copies_that_cost_more_give_way_to_homes_on_the_tier_of_what_is_not_written() -> None:
    homes = dict.fromkeys(PRICES, 0)
    for seed in SEEDS:
        _, _, choosing = drawn(seed)
        for price in PRICES:
            homes[price] += int((choosing.covered(choosing.nothing(), price)[choosing.v.wraps > 0] != HERE).sum())
    assert homes[PRICES[-1]] > 1.2 * homes[PRICES[0]]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_said_to_stall_nothing_takes_the_time_of_its_ops_within_the_budget(seed: int) -> None:
    _, step, choosing = drawn(seed)
    found = choosing.hidden(np.ones(len(step.storages)))
    if found.made.short_bytes:
        assert (choosing.x.level[:-1] - found.away).max() > choosing.budget
        return
    steps = steps_of(choosing.setting.t, choosing.setting.told(found.made))
    homes = Transfers(step, choosing.budget).homes(choosing.setting.homes(found.made))
    played = play(step, steps, home=homes, budget_bytes=choosing.budget)
    assert_judged_alike(step, steps, homes, choosing.budget, played)
    assert played.makespan_ns == found.made.time_ns == step.base_ns


@pytest.mark.parametrize("seed", [27, 45, 54, 57])
def test_an_op_that_makes_a_resident_storage_again_leaves_the_older_copy_to_later_ops(seed: int) -> None:
    step = msgspec.structs.replace(chained(seed), links=(Link("host", Fraction(10**9), 0),))
    setting = Setting(step, no_look, lambda ops: None)
    whole, ones = np.arange(len(step.ops)), np.ones(len(step.storages))
    peak = int(touches_of(setting.t, whole).level.max())
    local = LocalSearch(setting.t, peak * 7 // 10, lambda ops: None)
    _, sequence, _ = local.relieved(whole, np.zeros(len(whole), np.int64), ones, 1.0, no_look)
    choosing = Choosing(setting, sequence, peak)
    for choice in (choosing.nothing(), choosing.everything("host")):
        made = choosing.made(choice)
        played = play(step, steps_of(setting.t, setting.told(made)), home=setting.homes(made))
        assert played.makespan_ns == made.time_ns
