"""Decoded tokens, played by machine code, take the time that their plan takes, and lack what it lacks."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tensortide.errors import PlanError
from tensortide.plans.transfers.residences import steps_of
from tensortide.plans.transfers.search import Transfers
from tests.oracles import plan_events
from tests.plans.events.drawn import random_instance


def assert_agrees(seed: int) -> bool:
    """Decode a drawn sequence for a drawn budget. Returns True if the plan fits."""
    chance = random.Random(seed)
    instance = random_instance(chance, chance.choice((5, 12, 25)))
    search = Transfers(instance, 0)
    decoder, sequence = search.decoder, np.arange(len(instance.ops))
    most = sum(storage.nbytes for storage in instance.storages)
    budget = chance.randint(0, most)
    made = decoder.decode(sequence, budget)
    steps, home = steps_of(instance, decoder.told(made)), search.homes(decoder.homes(made))
    if made.short_bytes:
        with pytest.raises(PlanError, match=r"does not fit|before the first step, and has"):
            plan_events.play(instance, steps, home=home, budget_bytes=budget)
        return False
    played = plan_events.play(instance, steps, home=home, budget_bytes=budget)
    runs = [start for start, engine in zip(played.start_ns, played.engine, strict=True) if engine == "device"]
    assert (made.time_ns, made.axis.tolist()) == (played.makespan_ns, [*runs, played.makespan_ns])
    return True


def test_tokens_agree() -> None:
    assert 10 < sum(assert_agrees(seed) for seed in range(60)) < 60


@pytest.mark.slow
def test_two_thousand_token_lists_agree() -> None:
    assert 200 < sum(assert_agrees(seed) for seed in range(1000, 3000)) < 2000
