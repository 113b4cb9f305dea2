"""A sequence of ops is a plan: time and peak are those of the checker, and what it cannot run is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tensortide.errors import PlanError
from tensortide.plans.instance import Instance, InstanceOp, InstanceStorage
from tensortide.plans.model import Compute
from tensortide.plans.under_budget.sequence import evaluate, steps_of
from tensortide.plans.under_budget.tables import tables
from tests.plans.events.judge import instance_of, time_and_peak
from tests.plans.under_budget.cases import cases, name_of, raw

WITNESSED = [case for case in cases() if case.get("plan")]


@pytest.mark.parametrize("case", WITNESSED, ids=name_of)
def test_a_known_optimum_plays_as_the_checker_says(case: dict[str, Any]) -> None:
    problem = instance_of(raw(case))
    t = tables(problem)
    order = [step[1] for step in case["plan"]["steps"] if step[0] == "compute"]
    played = evaluate(problem, t, order, free=case["order"] == "free")
    assert (played.time_ns, played.peak_bytes) == time_and_peak(
        problem, steps_of(t, map(Compute, order)), case["budget_bytes"]
    )
    assert played.time_ns == case["best_ns"]
    assert played.peak_bytes <= case["budget_bytes"]


def chain() -> Instance:
    """0 makes a; 1 writes a; 2: a -> b; 3 draws a number and makes c; 4: a, b, c -> d, which stays."""
    ops = (
        InstanceOp("f0", 4, makes=(0,)),
        InstanceOp("f1", 5, writes=(0,)),
        InstanceOp("f2", 3, reads=(0,), makes=(1,)),
        InstanceOp("f3", 2, makes=(2,), once=True),
        InstanceOp("f4", 1, reads=(0, 1, 2), makes=(3,)),
    )
    storages = (*(InstanceStorage(nbytes) for nbytes in (6, 4, 2)), InstanceStorage(3, kept=True))
    return Instance(ops, storages)


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ((0, 1, 2, 3), "op 4 never runs"),
        ((0, 1, 2, 3, 3, 4), r"op 3 \(f3\) runs twice"),
        ((0, 2, 1, 3, 4), "not as recorded"),
        ((0, 1, 2, 1, 3, 4), "not as recorded"),
        ((0, 1, 2, 0, 3, 4), None),
        ((0, 1, 2, 3, 0, 1, 4), None),
        ((0, 1, 3, 2, 4), None),
    ],
)
def test_a_sequence_runs_if_each_op_finds_the_recorded_states(order: tuple[int, ...], reason: str | None) -> None:
    problem = chain()
    if reason is None:
        assert evaluate(problem, tables(problem), order).time_ns == sum(problem.ops[op].ns for op in order)
    else:
        with pytest.raises(PlanError, match=reason):
            evaluate(problem, tables(problem), order)


def test_first_runs_out_of_order_are_refused_unless_the_order_is_free() -> None:
    problem = chain()
    with pytest.raises(PlanError, match="not run in recorded order"):
        evaluate(problem, tables(problem), (0, 1, 3, 2, 4), free=False)
