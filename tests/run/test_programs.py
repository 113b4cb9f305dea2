"""Random programs compute the same under a budget."""

from __future__ import annotations

import os
import random

import pytest

from tensortide.errors import BudgetInfeasible
from tests.run.programs import Program
from tests.run.same import UNLIMITED, run

POLICIES = ("dtr-eq", "dtr", "lru", "msps", "dtr-local", "dtr-eq+sqrt", "random")


def compared(seed: int) -> int:
    """Runs the program of ``seed`` under budgets; returns how many ops were computed again."""

    def build() -> object:
        return Program(seed).step

    try:
        plain = run(build, None, warm=0)
    except RuntimeError:  # it overwrites what its gradients need
        return 0
    free = run(build, UNLIMITED, warm=0)
    assert plain.same(free)
    assert free.usage is not None
    dice, again = random.Random(seed), 0
    for _ in range(2):
        share, policy = dice.uniform(0.5, 1), dice.choice(POLICIES)
        limit = int((free.usage.peak_bytes - free.before_bytes) * share)
        try:
            tight = run(build, limit, policy, warm=0)
        except BudgetInfeasible:
            continue
        assert plain.same(tight), (seed, share, policy)
        assert tight.usage is not None
        assert tight.usage.peak_bytes <= tight.before_bytes + limit
        again += tight.usage.recomputations
    return again


@pytest.mark.parametrize("start", range(0, 600 if os.environ.get("TENSORTIDE_LIVE") else 12, 4))
def test_random_programs_compute_the_same(start: int) -> None:
    again = sum(compared(seed) for seed in range(start, start + 4))
    assert again > 0


@pytest.mark.parametrize("seed", [108, 160])
def test_numbers_that_are_used_again_keep_their_owner(seed: int) -> None:
    assert compared(seed) > 0
