"""Recomputation and transfers together: judged plans, no slower than either alone, the same at every call."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from tensortide.errors import PlanError
from tensortide.plans.events import play
from tensortide.plans.instance import DEVICE, Instance
from tensortide.plans.model import Compute, Copy, Fetch
from tensortide.plans.transfers.kernels.arrays import BACK, HERE, OUT, RUN, Tokens, links_of
from tensortide.plans.transfers.kernels.replayed import replayed
from tensortide.plans.transfers.least import least_with_transfers
from tensortide.plans.transfers.ondemand import on_demand
from tensortide.plans.transfers.residences import Token, steps_of
from tensortide.plans.transfers.search import Moved, Transfers
from tensortide.plans.under_budget.tables import tables
from tests.plans.events.judge import assert_judged_alike
from tests.plans.transfers.drawn import training_step


def tokens_of(instance: Instance, tokens: Iterable[Token], home: Mapping[int, str]) -> Tokens:
    """``tokens`` without drops, as arrays."""
    numbers = {link.name: number for number, link in enumerate(instance.links)}
    rows = [
        (RUN, x.op, HERE)
        if isinstance(x, Compute)
        else (OUT if isinstance(x, Copy) else BACK, x.storage, numbers[x.link])
        for x in tokens
        if isinstance(x, Compute | Copy | Fetch)
    ]
    kind, which, link = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    homes = np.full(len(instance.storages), HERE, np.int64)
    for s, place in (instance.home | dict(home)).items():
        homes[s] = numbers.get(place, HERE) if place != DEVICE else HERE
    return Tokens(kind, which, link, homes)


def fitted(instance: Instance, budget_bytes: int, fits: int) -> Moved | None:
    search = Transfers(instance, budget_bytes)
    start = search.fit(range(len(instance.ops)), "both")
    if not start[0].short_bytes:
        search.improve(start, fits, "search")
    return search.best


def drawn(seed: int) -> tuple[Instance, int]:
    """A step, and a budget between what an op needs and what all need."""
    chance = random.Random(seed)
    instance = training_step(chance, links=1 + seed % 2, layers=6)
    least = least_with_transfers(instance, recorded=True).nbytes
    return instance, least + chance.randint(0, 12)


@pytest.mark.parametrize("seed", range(30))
def test_what_fits_is_as_the_checker_says_and_the_same_at_every_call(seed: int) -> None:
    instance, budget = drawn(seed)
    found, again = (fitted(instance, budget, 10) for _ in range(2))
    if found is None or again is None:
        assert found is again
        return
    assert found.steps == again.steps
    assert found.home == again.home
    assert_judged_alike(instance, found.steps, found.home, budget, found.played)


def test_both_together_are_faster_than_transfers_alone_in_total() -> None:
    both = alone = 0
    for seed in range(30):
        instance, budget = drawn(seed)
        found, search = fitted(instance, budget, 10), Transfers(instance, budget)
        search.sequence(range(len(instance.ops)), 8, "moves alone")
        if found is not None and search.best is not None:
            both += found.played.makespan_ns
            alone += search.best.played.makespan_ns
    assert both < alone


@pytest.mark.parametrize("seed", range(30))
def test_the_compiled_replay_is_that_of_the_event_rules(seed: int) -> None:
    instance, budget = drawn(seed)
    sequence = range(len(instance.ops))
    tokens, homes = on_demand(instance, sequence, max(budget, least_with_transfers(instance, recorded=True).nbytes))
    kept = [token for token in tokens if type(token).__name__ != "Drop"]
    homes = Transfers(instance, budget).homes(homes)
    starts = np.zeros(len(instance.ops) + 1, np.int64)
    for most in (budget, budget - 3, 10**9):
        time_ns, short = replayed(tables(instance), links_of(instance), tokens_of(instance, kept, homes), most, starts)
        try:
            played = play(instance, steps_of(instance, kept), home=homes, budget_bytes=most)
        except PlanError:
            assert short > 0
            continue
        assert (time_ns, short) == (played.makespan_ns, 0)
        runs = [start for step, start in zip(played.steps, played.start_ns, strict=True) if isinstance(step, Compute)]
        assert starts.tolist() == [*runs, time_ns]
