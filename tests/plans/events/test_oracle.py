"""Plans written as tasks and played agree with the event rules played step by step, to the nanosecond and byte."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tensortide.errors import PlanError
from tensortide.plans import events
from tests.oracles import plan_events
from tests.plans.events.drawn import random_instance, random_plan


def outcome(play: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What ``play`` returns, or all that its error says."""
    try:
        return play(*arguments, **options)
    except PlanError as error:
        return str(error), error.step, error.storage, error.expected, error.found, error.short_bytes


def assert_agrees(seed: int) -> bool:
    """Play a drawn plan by both. Returns True if it is legal and fits."""
    chance = random.Random(seed)
    instance = random_instance(chance, chance.choice((4, 12, 30)), blind=chance.random() < 0.3)
    steps, home = random_plan(chance, instance)
    steps = list(steps)
    if steps and chance.random() < 0.2:  # most plans without a step, or with two that change places, are illegal
        at = chance.randrange(len(steps))
        steps[at:] = chance.choice((steps[at + 1 :], [*reversed(steps[at : at + 2]), *steps[at + 2 :]]))
    free = outcome(plan_events.play, instance, steps, home=home)
    most = free.peak_bytes if isinstance(free, events.Played) else 30
    for budget in (None, most, most * 3 // 4, chance.randint(0, most)):
        for serial in (False, True):
            options: dict[str, Any] = {"home": home, "budget_bytes": budget, "serial": serial}
            expected = outcome(plan_events.play, instance, steps, **options)
            assert outcome(events.play, instance, steps, **options) == expected
        of_many = {"home": home, "budget_bytes": budget}
        expected = outcome(plan_events.steady_ns, instance, steps, **of_many)
        assert outcome(events.steady_ns, instance, steps, **of_many) == expected
    assert outcome(events.check, instance, steps, home=home) == outcome(plan_events.check, instance, steps, home=home)
    return isinstance(free, events.Played)


def test_plans_agree() -> None:
    assert 20 < sum(assert_agrees(seed) for seed in range(80)) < 80


@pytest.mark.slow
def test_two_thousand_plans_agree() -> None:
    assert 500 < sum(assert_agrees(seed) for seed in range(1000, 3000)) < 2000
