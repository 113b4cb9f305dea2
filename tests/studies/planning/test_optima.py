"""Small steps end to end: the optimum found, by recomputation, moves and both, whatever the machine does beside."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensortide.search_limit import SearchLimit
from tensortide.studies.planning.planning import fastest
from tests.plans.events.judge import instance_of, planning_folder
from tests.studies.planning.given import faults, problem_of

pytest.importorskip("ortools")
WORK = 1e8
QUICK = ("R00", "O00", "J10")
"""Instances all of whose cases take a second together."""
LONG = ("J38", "O20")
"""Instances of which some case takes over ten seconds."""


def cases() -> list[Any]:
    found = []
    for name in ("recompute", "offload", "joint"):
        data = json.loads((planning_folder() / f"{name}.json").read_text())
        for case in data["cases"]:
            if case["instance"] not in LONG:
                told = f"{case['instance']}-{case['budget_bytes']}-{case['allow']}-{case['order']}"
                marks: list[Any] = [] if case["instance"] in QUICK else [pytest.mark.slow]
                found.append(pytest.param(case, data["instances"][case["instance"]], id=told, marks=marks))
    return found


@pytest.mark.parametrize(("case", "raw"), cases())
def test_the_plan_is_within_one_per_cent_of_the_optimum(case: dict[str, Any], raw: dict[str, Any]) -> None:
    found = fastest(problem_of(instance_of(raw), case, limit=SearchLimit(work=WORK)))
    assert not faults(raw, case, found)
    if case["best_ns"] is None:
        assert found.plan is None
    else:
        assert found.step_ns is not None
        assert found.step_ns <= 1.01 * case["best_ns"]
