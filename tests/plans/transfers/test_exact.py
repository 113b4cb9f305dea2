"""Small steps with links: the proven optima, found, and judged by the independent checker."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pytest

from tensortide.plans.transfers.exact import improve
from tensortide.plans.transfers.search import Transfers
from tests.plans.events.judge import assert_judged_alike, instance_of, planning_folder

pytest.importorskip("ortools")
LONG = {"J08", "J34", "J38", "O08", "O20", "O22"}
"""Instances that the solver takes over two seconds to prove optimal, some of them minutes: it is told the optimum, and
ends once it has a plan that reaches it."""
SLOW = {"J02-41-both", "J04-31-both", "J06-33-both", "J10-40-both", "J10-41-both", "J14-25-both", "J24-19-both",
        "J32-24-both", "O03-23-offload", "O03-24-offload", "O16-41-offload", "O18-35-offload", "O24-24-offload",
        "O24-25-offload"}  # fmt: skip
"""Cases that take longest of the others."""
LATE = {"O20"}
"""Instances whose optimum the solver may not find in minutes."""


def cases(without: Collection[str] = (), slow: Collection[str] = ()) -> list[Any]:
    """Every given case with a link but those of instances ``without``; those that take longest are marked, and those
    in ``slow``."""
    found = []
    for name in ("offload", "joint"):
        path = planning_folder() / f"{name}.json"
        data = json.loads(path.read_text()) if path.is_file() else {"cases": []}
        for case in data["cases"]:
            if case["allow"] != "recompute" and case["instance"] not in without:
                told = f"{case['instance']}-{case['budget_bytes']}-{case['allow']}"
                marks: list[Any] = [pytest.mark.slow] if case["instance"] in LONG or told in slow else []
                found.append(pytest.param(case, data["instances"][case["instance"]], id=told, marks=marks))
    return found


@pytest.mark.parametrize(("case", "stored"), cases(LATE, SLOW))
def test_a_small_step_with_a_link_takes_no_longer_than_the_proven_optimum(case: Any, stored: Any) -> None:
    instance = instance_of(stored)
    search = Transfers(instance, case["budget_bytes"], bound_ns=case["best_ns"] if case["instance"] in LONG else 0)
    search.sequence(range(len(instance.ops)), 8, "as recorded")
    improve(search, free=case["order"] == "free", recompute=case["allow"] == "both", effort=60)
    assert search.best is not None
    assert search.best.played.makespan_ns <= case["best_ns"]
    assert search.best.played.makespan_ns == case["best_ns"] or _at_home_elsewhere(search.best.home)
    assert_judged_alike(instance, search.best.steps, search.best.home, case["budget_bytes"], search.best.played)


def _at_home_elsewhere(home: Any) -> bool:
    """The given optima of ``joint.json`` leave what is persistent at home on the device."""
    return any(place != "device" for place in home.values())
