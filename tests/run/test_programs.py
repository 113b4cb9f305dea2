"""Random programs compute the same under a budget."""

from __future__ import annotations

import os

import pytest

from tests.run.programs import Program
from tests.run.same import squeezed

POLICIES = ("dtr-eq", "dtr", "lru", "msps", "dtr-local", "dtr-eq+sqrt", "random")
SHARES = (0.5, 0.6, 0.65, 0.7, 0.72, 0.74, 0.76, 0.78, 0.8, 0.85, 0.9, 0.95, 0.98, 0.999)
SEEDS = range(600 if os.environ.get("TENSORTIDE_LIVE") else 16)


@pytest.mark.parametrize("start", SEEDS[::4])
def test_random_programs_compute_the_same(start: int) -> None:
    for seed in range(start, start + 4):
        squeezed(lambda: Program(seed).step, POLICIES[seed % len(POLICIES)], SHARES, warm=0)  # noqa: B023
