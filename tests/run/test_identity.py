"""Under any budget that suffices a training step leaves behind what it does without one, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tensortide.errors import BudgetInfeasible
from tensortide.examples import examples, find
from tests.capture.workloads import ALL
from tests.examples.tiny import TINY
from tests.run.same import UNLIMITED, Left, run

SHARES = (0.35, 0.6, 0.85)
"""Of what a step needs beyond what is there at its start."""
POLICIES = ("dtr-eq", "dtr", "dtr-eq+sqrt", "lru")
DEEP = {"resnet101", "resnet152", "densenet", "inception_v3", "diffusion", "resnet", "resnet50", "resnet34"}
"""Take longer: one fraction, the default policy."""
NAMES = sorted(example.name for example in examples() if example.available)


def tightest(build: Callable[[], Any], policy: str, shares: tuple[float, ...]) -> Left | None:
    """Checks ``build`` without a limit, then under the tightest of some budgets that suffices; None if none does."""
    plain, free = run(build, None), run(build, UNLIMITED)
    assert plain.same(free)
    assert free.usage is not None
    for share in shares:
        limit = int((free.usage.peak_bytes - free.before_bytes) * share)
        try:
            tight = run(build, limit, policy)
        except BudgetInfeasible:
            continue
        assert plain.same(tight)
        assert tight.usage is not None
        assert tight.usage.peak_bytes <= tight.before_bytes + limit
        return tight
    return None


@pytest.mark.parametrize(("place", "name"), list(enumerate(NAMES)))
def test_examples_leave_the_same_behind(place: int, name: str) -> None:
    policy = "dtr-eq" if name in DEEP else POLICIES[place % len(POLICIES)]
    workload = find(name).load()
    tightest(lambda: workload(**{**TINY[name], "batch": 24}), policy, (0.6,) if name in DEEP else SHARES)


@pytest.mark.parametrize(("place", "name"), list(enumerate(ALL)))
def test_features_leave_the_same_behind(place: int, name: str) -> None:
    workload, settings = ALL[name]
    tightest(lambda: workload(**settings), POLICIES[place % len(POLICIES)], SHARES)


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "char_lm", "resnet34"])
@pytest.mark.parametrize("policy", ["dtr-eq", "dtr"])
def test_much_is_computed_again(name: str, policy: str) -> None:
    workload = find(name).load()
    tight = tightest(lambda: workload(**{**TINY[name], "batch": 24}), policy, (0.4, 0.5, 0.6, 0.7))
    assert tight is not None
    assert tight.usage is not None
    assert tight.usage.recomputations > 0
    assert tight.usage.recomputations < 20 * tight.usage.ops
