"""The published comparison on linear networks. The costs of its "ramp" chains are not given: only "unit" is checked."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensortide.plans.checkpointing.optimum import optimum
from tensortide.plans.checkpointing.segments import checkpoint_all, checkpoint_last, chen_greedy, chen_sqrt
from tensortide.plans.checkpointing.stages import StaticPlan
from tensortide.plans.checkpointing.static import StaticGraph, chain
from tests.marks import some_slow

STRATEGIES: dict[str, Callable[[StaticGraph, float], StaticPlan]] = {
    "CHECKPOINT_ALL": lambda static, _: checkpoint_all(static),
    "CHECKPOINT_ALL_AP": lambda static, _: checkpoint_all(static, articulation=True),
    "CHECKPOINT_LAST_NODE": lambda static, _: checkpoint_last(static),
    "CHEN_SQRTN_NOAP": lambda static, _: chen_sqrt(static),
    "CHEN_SQRTN": lambda static, _: chen_sqrt(static, articulation=True),
    "CHEN_GREEDY_NOAP": chen_greedy,
}


def rows(reference: Path, name: str) -> list[dict[str, Any]]:
    with gzip.open(reference / "dtr" / name, "rt") as file:
        found: list[dict[str, Any]] = json.load(file)
    return found


def test_static_strategies_cost_what_was_published(reference: Path) -> None:
    checked = 0
    for row in rows(reference, "static_vs_simrd_linear.json.gz"):
        if row["graph"] != "unit" or row["strategy"] not in STRATEGIES:
            continue
        plan = STRATEGIES[row["strategy"]](chain(row["n_fwd"]), row["solver_budget"])
        found = (plan.cost_ns, plan.peak_bytes, plan.activation_bytes, plan.overhead)
        assert found == (row["cpu"], row["peak_ram"], row["activation_ram"], row["overhead"]), row
        checked += 1
    assert checked == 40


@pytest.mark.parametrize("first", some_slow([0, 1], [1]))
def test_optima_are_those_of_another_solver(reference: Path, first: int) -> None:
    """Of every other row."""
    for row in rows(reference, "checkmate_milp_highs_linear.json.gz")[first::2]:
        found = optimum(chain(row["n_fwd"]), row["budget"])
        assert found.status == "proved"
        assert found.plan is not None
        assert found.plan.cost_ns == found.bound_ns == row["cpu"] == round(row["obj"])
        assert found.plan.peak_bytes <= row["budget"]


def test_no_online_heuristic_beats_the_optimum(reference: Path) -> None:
    """At every other budget that online policies were run with on the chain of 16: none recomputes less."""
    online: dict[int, float] = {}
    for row in rows(reference, "static_vs_simrd_linear.json.gz"):
        if row["graph"] == "unit" and row["n_fwd"] == 16 and row.get("status") == "ok" and row["solver_budget"] >= 7:
            online[row["solver_budget"]] = min(row["cpu"], online.get(row["solver_budget"], row["cpu"]))
    assert online
    for budget, cost in sorted(online.items())[::2]:
        found = optimum(chain(16), budget)
        assert found.status == "proved"
        assert found.bound_ns <= cost
