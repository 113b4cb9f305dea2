"""Recomputation and moves together: judged plans, no slower than moves alone, the same at every call."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from tensortide.plans.instance import Instance
from tensortide.plans.transfers.choosing import Choosing, Setting
from tensortide.plans.transfers.kernels.arrays import HERE
from tensortide.plans.transfers.search import Moved, Transfers
from tensortide.plans.under_budget.idle import least_with_transfers
from tensortide.plans.under_budget.tables import Ints
from tensortide.search_limit import no_look
from tests.plans.events.judge import assert_judged_alike, instance_of, plan_of, planning_folder
from tests.plans.transfers.drawn import training_step

CASE = ("J08", 29, "offload")


def drawn(seed: int) -> tuple[random.Random, Instance, int]:
    """A step, and a budget between what an op needs and what all need."""
    chance = random.Random(seed)
    step = training_step(chance, links=1 + seed % 2, layers=6)
    return chance, step, least_with_transfers(step, recorded=True).nbytes + chance.randint(0, 12)


def chosen(seed: int) -> tuple[random.Random, Choosing, Ints]:
    """Choices of a step in recorded order, and one of them."""
    chance, step, budget = drawn(seed)
    choosing = Choosing(Setting(step, no_look, lambda ops: None), np.arange(len(step.ops)), budget)
    choice = choosing.nothing()
    for i in range(len(choice)):
        if chance.random() < 0.6:
            choosing.choose(choice, i, chance.choice(step.links).name)
    return chance, choosing, choice


def mixed(step: Instance, budget: int) -> tuple[int, Moved] | None:
    """The time of moves alone, and the plan that recomputes some of them."""
    search = Transfers(step, budget)
    search.sequence(range(len(step.ops)), 8, "moves alone")
    if search.best is None:
        return None
    alone = search.best.played.makespan_ns
    search.mix(20, "mixed")
    return alone, search.best


def fitted(step: Instance, budget: int) -> Moved | None:
    """The plan of a sequence that is fitted first, and changed then."""
    search = Transfers(step, budget)
    search.mix(10, "search", search.fit(range(len(step.ops)), "both"))
    return search.best


@pytest.mark.parametrize("seed", range(30))
def test_what_fits_is_as_the_checker_says_and_the_same_at_every_call(seed: int) -> None:
    _, step, budget = drawn(seed)
    found, again = (fitted(step, budget) for _ in range(2))
    if found is None or again is None:
        assert found is again
        return
    assert found.steps == again.steps
    assert found.home == again.home
    assert_judged_alike(step, found.steps, found.home, budget, found.played)


def test_both_together_are_faster_than_transfers_alone_in_total() -> None:
    both = alone = 0
    for seed in range(30):
        _, step, budget = drawn(seed)
        found, search = fitted(step, budget), Transfers(step, budget)
        search.sequence(range(len(step.ops)), 8, "moves alone")
        if found is not None and search.best is not None:
            both += found.played.makespan_ns
            alone += search.best.played.makespan_ns
    assert both < alone


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_that_recomputes_is_legal_no_slower_and_the_same_at_every_call(seed: int) -> None:
    _, step, budget = drawn(seed)
    found, again = mixed(step, budget), mixed(step, budget)
    assert (found is None) == (again is None)
    if found is not None and again is not None:
        assert found[1].steps == again[1].steps
        assert found[1].played.makespan_ns <= found[0]
        assert_judged_alike(step, found[1].steps, found[1].home, budget, found[1].played)


def test_recomputation_in_place_of_moves_is_faster_in_total() -> None:
    found = [mixed(step, budget) for _, step, budget in map(drawn, range(20))]
    both = [(alone, best.played.makespan_ns) for alone, best in filter(None, found)]
    assert sum(best for _, best in both) < sum(alone for alone, _ in both)


def test_recomputations_give_way_to_a_move_that_ops_wait_for() -> None:
    """Of the three recomputations of the fastest plan without moves one is left out, and what it makes moves."""
    data = json.loads((planning_folder() / "joint.json").read_text())
    step = instance_of(data["instances"]["J38"])
    alone, both = (
        next(case for case in data["cases"] if (case["instance"], case["budget_bytes"], case["allow"]) == asked)
        for asked in (("J38", 46, "recompute"), ("J38", 46, "both"))
    )
    search = Transfers(step, 46, bound_ns=both["best_ns"])
    search.offer_steps(*plan_of(alone["plan"]), "recompute")
    assert search.best is not None
    assert search.best.played.makespan_ns == alone["best_ns"]
    search.mix(200, "mixed")
    assert search.best.played.makespan_ns == both["best_ns"]
    assert_judged_alike(step, search.best.steps, search.best.home, 46, search.best.played)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_away_at_a_place_is_what_covers_it(seed: int) -> None:
    _, choosing, choice = chosen(seed)
    v, nbytes = choosing.v, choosing.setting.t.nbytes
    for place, away in enumerate(choosing.away(choice).tolist()):
        covers = [
            (v.before[i] < place or place < v.after[i]) if v.wraps[i] else v.before[i] < place < v.after[i]
            for i in range(len(choice))
        ]
        moved = [i for i in range(len(choice)) if covers[i] and choice[i] != HERE]
        assert away == sum(int(nbytes[v.storage[i]]) for i in moved)


@pytest.mark.parametrize("seed", range(20))
def test_a_choice_is_carried_to_its_own_sequence_as_it_is(seed: int) -> None:
    chance, choosing, choice = chosen(seed)
    assert (choosing.carried(choosing, choice) == choice).all()
    sequence = choosing.x.sequence.tolist()
    for _ in range(3):
        place = chance.randrange(len(sequence))
        sequence.insert(place, sequence[chance.randrange(place + 1)])
    longer = Choosing(choosing.setting, np.array(sequence, np.int64), choosing.budget)
    of = {int(longer.v.storage[i]) for i in np.flatnonzero(longer.carried(choosing, choice) != HERE)}
    assert of <= {int(choosing.v.storage[i]) for i in np.flatnonzero(choice != HERE)}


def test_an_early_fetch_leaves_room_for_what_is_still_being_copied() -> None:
    """Moves alone reach the proven optimum, without the solver."""
    data = json.loads((planning_folder() / "joint.json").read_text())
    (best_ns,) = (x["best_ns"] for x in data["cases"] if (x["instance"], x["budget_bytes"], x["allow"]) == CASE)
    instance = instance_of(data["instances"][CASE[0]])
    search = Transfers(instance, CASE[1])
    search.sequence(range(len(instance.ops)), 1000, "moves alone")
    assert search.best is not None
    assert search.best.played.makespan_ns == best_ns
