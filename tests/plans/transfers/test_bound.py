"""The bound on plans with transfers: never above an optimum, above the time of every op once where that is a bound."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from tensortide.plans.instance import Instance, InstanceOp, InstanceStorage
from tensortide.plans.transfers.bound import verify_waits, waits
from tensortide.plans.transfers.exact import improve
from tensortide.plans.transfers.least import least_with_transfers
from tensortide.plans.transfers.search import Transfers
from tensortide.plans.under_budget.bound import verify
from tensortide.timing.machine import Link
from tests.plans.events.judge import instance_of
from tests.plans.transfers.drawn import training_step
from tests.plans.transfers.test_exact import cases


@pytest.mark.parametrize(("case", "stored"), cases())
def test_no_bound_is_above_a_proven_optimum(case: Any, stored: Any) -> None:
    instance = instance_of(stored)
    if case["allow"] == "offload":
        ops = tuple(msgspec.structs.replace(op, once=True) for op in instance.ops)
        instance = msgspec.structs.replace(instance, ops=ops)
    bound_ns, proof = waits(instance, case["budget_bytes"], 10 * instance.base_ns)
    assert instance.base_ns <= bound_ns <= case["best_ns"]
    assert proof is None or verify_waits(instance, proof) == verify(instance, proof) == bound_ns


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
    bound_ns, _ = waits(instance, budget, 10 * instance.base_ns)
    assert bound_ns <= search.best.played.makespan_ns


def test_of_a_copy_and_a_fetch_an_op_hides_no_more_than_its_own_time() -> None:
    ops = (
        InstanceOp("makes", 1, makes=(0,), once=True),
        InstanceOp("fills", 1, makes=(1,), once=True),
        InstanceOp("reads", 1, reads=(0,), once=True),
    )
    link = Link("host", Fraction(10**9), 0)
    instance = Instance(ops, (InstanceStorage(10), InstanceStorage(10)), (link,))
    bound_ns, proof = waits(instance, 15, 100)
    assert bound_ns == 3 + 10 + 10 - 1
    assert proof is not None
    assert verify(instance, proof) == bound_ns
