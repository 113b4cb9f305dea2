"""Plans play as the independent checker plays them, to the byte and nanosecond; what it finds illegal is illegal."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tensortide.errors import PlanError
from tensortide.plans.events import Played, play
from tensortide.plans.instance import Instance
from tests.plans.events.drawn import random_instance, random_plan, spoiled
from tests.plans.events.judge import assert_judged_alike, figures_of, instance_of, log_of, plan_of, planning_folder


def test_the_worked_example_plays_as_published() -> None:
    data = json.loads((planning_folder() / "worked_example.json").read_text())
    instance = instance_of(data["instance"])
    for plan in data["plans"].values():
        steps, home = plan_of(plan["plan"])
        budget = plan.get("budget_bytes", data["instance"]["budget_bytes"])
        if "result" not in plan:
            with pytest.raises(PlanError):
                play(instance, steps, home=home, budget_bytes=budget)
            continue
        played = play(instance, steps, home=home, budget_bytes=budget)
        expected = plan["result"]
        assert log_of(played) == expected.pop("log")
        assert figures_of(played, len(instance.ops)) == expected


@pytest.mark.parametrize("name", ["recompute", "offload", "joint"])
def test_every_witness_plan_takes_the_proven_time(name: str) -> None:
    data = json.loads((planning_folder() / f"{name}.json").read_text())
    played = 0
    for case in data["cases"]:
        if not case.get("plan"):
            continue
        told: dict[str, Any] = {**data["instances"][case["instance"]], **case.get("machine", {})}
        instance = instance_of(told)
        steps, home = plan_of(case["plan"])
        for serial in (False, True):
            found = try_play(instance, steps, home, case["budget_bytes"], serial=serial)
            assert_judged_alike(instance, steps, home, case["budget_bytes"], found, serial=serial)
        assert play(instance, steps, home=home, budget_bytes=case["budget_bytes"]).makespan_ns == case["best_ns"]
        played += 1
    assert played >= 18


def try_play(instance: Instance, *plan: Any, serial: bool = False) -> Played | None:
    steps, home, budget = plan
    try:
        return play(instance, steps, home=home, budget_bytes=budget, serial=serial)
    except PlanError:
        return None


def assert_plans_are_judged_alike(seeds: range) -> tuple[Counter[bool], Counter[str]]:
    """Random plans of random instances play as the checker plays them; returns how many are legal and how many not, and
    the causes of stalls."""
    verdicts: Counter[bool] = Counter()
    stalls: Counter[str] = Counter()
    for seed in seeds:
        chance = random.Random(seed)
        instance = random_instance(chance)
        steps, home = random_plan(chance, instance)
        if chance.random() < 0.3:
            steps = spoiled(chance, instance, steps)
        for budget in (None, *_budgets(chance, instance, steps, home)):
            serial = chance.random() < 0.3
            played = try_play(instance, steps, home, budget, serial=serial)
            assert_judged_alike(instance, steps, home, budget, played, serial=serial)
            verdicts[played is not None] += 1
            stalls.update(stall.cause for stall in (() if played is None else played.stalls))
    return verdicts, stalls


def _budgets(chance: random.Random, *plan: Any) -> Iterator[int]:
    """Budgets under which a plan just fits, stalls, or just does not fit: the least is the peak of the serial replay,
    in which each step finds released all that was to be released before it."""
    free, serial = try_play(*plan, None), try_play(*plan, None, serial=True)
    if free is not None and serial is not None:
        yield serial.peak_bytes
        yield chance.randint(serial.peak_bytes, max(serial.peak_bytes, free.peak_bytes))
        if serial.peak_bytes:
            yield serial.peak_bytes - 1


def test_some_hundred_random_plans_are_judged_alike() -> None:
    verdicts, stalls = assert_plans_are_judged_alike(range(300))
    assert min(verdicts.values()) > 100
    assert {*stalls} == {"fetch", "copy", "room", "serial"}


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_thousands_of_random_plans_are_judged_alike(block: int) -> None:
    verdicts, _ = assert_plans_are_judged_alike(range(1000 + 1000 * block, 1000 + 1000 * (block + 1)))
    assert verdicts.total() > 2000
    assert min(verdicts.values()) > 200
