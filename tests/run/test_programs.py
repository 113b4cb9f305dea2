"""Random programs compute the same under a budget."""

from __future__ import annotations

import os

import pytest

from tests.marks import some_slow
from tests.run.programs import Program
from tests.run.same import squeezed

POLICIES = ("dtr-eq", "dtr", "lru", "msps", "dtr-local", "dtr-eq+sqrt", "random")
SHARES = (0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.999)
SEEDS = range(600 if os.environ.get("TENSORTIDE_LIVE") else 7)


@pytest.mark.parametrize("seed", some_slow(SEEDS, {1, 2, 5}))
def test_random_programs_compute_the_same(seed: int) -> None:
    squeezed(lambda: Program(seed).step, POLICIES[seed % len(POLICIES)], SHARES, warm=0)
