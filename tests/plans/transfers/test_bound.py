"""The bound on plans with transfers: never above an optimum, above the time of every op once where that is a bound."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from tensortide.plans.instance import Instance, InstanceOp, InstanceStorage
from tensortide.plans.proofs import verify
from tensortide.plans.transfers.bound import waits
from tensortide.plans.transfers.exact import improve
from tensortide.plans.transfers.search import Transfers
from tensortide.plans.transfers.windows import Row, Windows, windows
from tensortide.plans.under_budget.idle import least_with_transfers
from tensortide.timing.links import Link
from tests.plans.events.judge import instance_of
from tests.plans.transfers.drawn import training_step
from tests.plans.transfers.test_exact import cases

BOUNDS = (waits, windows)


@pytest.mark.parametrize(("case", "stored"), cases())
def test_no_bound_is_above_a_proven_optimum(case: Any, stored: Any) -> None:
    instance = instance_of(stored)
    if case["allow"] == "offload":
        ops = tuple(msgspec.structs.replace(op, once=True) for op in instance.ops)
        instance = msgspec.structs.replace(instance, ops=ops)
    for bound_of in BOUNDS:
        bound_ns, proof = bound_of(instance, case["budget_bytes"], 10 * instance.base_ns)
        assert instance.base_ns <= bound_ns <= case["best_ns"]
        assert proof is None or verify(instance, proof) == bound_ns


@pytest.mark.parametrize("seed", range(6))
def test_no_bound_is_above_what_the_solver_finds_for_a_random_step(seed: int) -> None:
    pytest.importorskip("ortools")
    chance = random.Random(seed)
    instance = training_step(chance, recompute=seed % 2 > 0, layers=2)
    budget = least_with_transfers(instance, recorded=True).nbytes + chance.randint(0, 2)
    search = Transfers(instance, budget)
    search.sequence(range(len(instance.ops)), 4, "as recorded")
    improve(search, free=False, recompute=True, effort=10)
    assert search.best is not None
    for bound_of in BOUNDS:
        assert bound_of(instance, budget, 10 * instance.base_ns)[0] <= search.best.played.makespan_ns


def test_of_a_copy_and_a_fetch_an_op_hides_no_more_than_its_own_time() -> None:
    ops = (
        InstanceOp("makes", 1, makes=(0,), once=True),
        InstanceOp("fills", 1, makes=(1,), once=True),
        InstanceOp("reads", 1, reads=(0,), once=True),
    )
    link = Link("host", Fraction(10**9), 0)
    instance = Instance(ops, (InstanceStorage(10), InstanceStorage(10)), (link,))
    for bound_of in BOUNDS:
        bound_ns, proof = bound_of(instance, 15, 100)
        assert proof is not None
        assert verify(instance, proof) == bound_ns
        half_ns = 0 if bound_of is waits else 10  # of a storage of 10 bytes, 5 are over
        assert bound_ns == 3 + 10 + 10 - 1 - half_ns


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_weights_no_bound_is_above_a_plan(seed: int) -> None:
    chance = random.Random(seed)
    instance = training_step(chance, links=1 + seed % 2, layers=4)
    budget = least_with_transfers(instance, recorded=True).nbytes + chance.randint(0, 3)
    search = Transfers(instance, budget)
    search.fit(range(len(instance.ops)), "both")
    search.sequence(range(len(instance.ops)), 4, "as recorded")
    if search.best is None:
        return
    moments = tuple(sorted(chance.sample(range(len(instance.ops)), 3)))
    for _ in range(20):
        rows: list[Row] = [("need", j, 0, 0) for j in (1, 2, 3)]
        rows += [
            ("out", 3, 0, 1),
            ("out", 2, 0, 0),
            ("back", 1, 0, 3),
            ("back", 2, 0, 4),
            ("again", 1, 0, 4),
            ("once", 0, 0, 0),
        ]
        proof = Windows(
            budget, 10 * instance.base_ns, moments, tuple((row, chance.randint(0, 1 << 31)) for row in rows)
        )
        found = verify(instance, proof)
        assert found is not None
        assert found <= search.best.played.makespan_ns
