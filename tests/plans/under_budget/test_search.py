"""Plans found under a budget are legal, fit, and are no faster than the bound; known optima are reached."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tensortide.errors import PlanError
from tensortide.plans.instance import Instance, InstanceOp, InstanceStorage
from tensortide.plans.model import Compute
from tensortide.plans.proofs import verify
from tensortide.plans.remat.schedule import recorded
from tensortide.plans.under_budget import local_search
from tensortide.plans.under_budget.bound import Exhausted, IdleCover, Moments, idle_cover
from tensortide.plans.under_budget.exhaustive import optimum
from tensortide.plans.under_budget.idle import idle_intervals, least
from tensortide.plans.under_budget.kernels import STOP
from tensortide.plans.under_budget.moments import moments_bound
from tensortide.plans.under_budget.moves import MORE, prune, repair, rounds
from tensortide.plans.under_budget.search import Search
from tensortide.plans.under_budget.sequence import Evaluated, evaluate, steps_of
from tensortide.plans.under_budget.tables import tables
from tensortide.studies.planning.problem import Problem
from tests.marks import some_slow
from tests.plans.dags import random_dag
from tests.plans.events.judge import instance_of, time_and_peak
from tests.plans.under_budget.cases import cases, name_of, raw

SMALL = [case for number, case in enumerate(cases()) if number % 4 in (1, 2)]
"""Small steps, each with half of its orders and budgets."""
RECORDED = [case for case in cases() if case["order"] == "recorded"]


def searched(problem: Instance, budget_bytes: int, effort: float = 0.05) -> Search:
    best = Search(problem, tables(problem), budget_bytes, free=False)
    best.repair(np.arange(len(problem.ops)))
    best.improve(effort)
    return best


@pytest.mark.parametrize("case", RECORDED, ids=name_of)
def test_what_is_found_is_legal_and_never_below_the_bound(case: dict[str, Any]) -> None:
    problem, budget = instance_of(raw(case)), case["budget_bytes"]
    t = tables(problem)
    idle = idle_intervals(problem, t)
    if case["status"] == "infeasible":
        assert least(problem, t, idle).nbytes > budget
        return
    bound, proof = idle_cover(problem, t, idle, budget)
    assert verify(problem, proof) == bound
    assert bound <= case["best_ns"]
    closer, of_moments = moments_bound(problem, t, idle, proof)
    assert verify(problem, of_moments) == closer
    assert closer <= case["best_ns"]
    best = searched(problem, budget).best
    if best is not None:
        time, peak = time_and_peak(problem, steps_of(t, map(Compute, best.sequence.tolist())), budget)
        assert (time, peak) == (best.time_ns, best.peak_bytes)
        assert case["best_ns"] <= time


def chained(seed: int, ops: int = 12) -> Instance:
    """A random step: a chain of ops with in-place writes, a few outputs each, and a way back that reads them."""
    draw = random.Random(seed)
    storages: list[InstanceStorage] = []
    made: list[InstanceOp] = []
    for number in range(ops):
        known = list(range(len(storages)))
        reads = draw.sample(known, min(len(known), draw.randint(0, 2)))
        if known and number < ops // 2:
            reads.append(known[-1])
        if number >= ops // 2:
            reads.append(draw.choice(known))
        writes = [s for s in reads if draw.random() < 0.15]
        fresh = list(range(len(storages), len(storages) + draw.randint(1, 2)))
        storages += [InstanceStorage(draw.randint(0, 9)) for _ in fresh]
        made.append(
            InstanceOp(
                f"op{number}",
                draw.randint(0, 20),
                tuple(sorted(set(reads) - set(writes))),
                tuple(sorted(set(writes))),
                tuple(fresh),
                workspace=draw.choice((0, 0, 3)),
                once=draw.random() < 0.1,
            )
        )
    storages[-1] = InstanceStorage(4, kept=True)
    return Instance(tuple(made), tuple(storages))


@pytest.mark.parametrize("seed", some_slow(range(30), range(15, 30)))
def test_plans_of_random_steps_are_legal_fit_and_respect_the_bound(seed: int) -> None:
    problem = chained(seed)
    t = tables(problem)
    idle = idle_intervals(problem, t)
    peak = int(idle.need.max())
    assert evaluate(problem, t, range(len(problem.ops))).peak_bytes == peak
    for budget in range(least(problem, t, idle).nbytes + seed % 3, peak, 3):
        bound, proof = idle_cover(problem, t, idle, budget)
        assert verify(problem, proof) == bound
        best = searched(problem, budget).best
        if best is not None:
            assert best.time_ns >= bound
            time, found = time_and_peak(problem, steps_of(t, map(Compute, best.sequence.tolist())), budget)
            assert (time, found) == (best.time_ns, best.peak_bytes)


def test_any_weights_prove_a_bound_and_none_prove_too_much() -> None:
    problem = chained(3)
    t = tables(problem)
    idle = idle_intervals(problem, t)
    budget = (least(problem, t, idle).nbytes + int(idle.need.max())) // 2
    best = searched(problem, budget, effort=1).best
    assert best is not None
    draw = random.Random(1)
    for _ in range(200):
        weights = tuple((op, draw.randint(0, 1 << 42)) for op in range(len(problem.ops)))
        bound = verify(problem, IdleCover(budget, weights))
        assert bound is not None
        assert bound <= best.time_ns
        moments = tuple(sorted(draw.sample(range(len(problem.ops)), 4)))
        weights = tuple((number, draw.randint(0, 1 << 42)) for number in range(20))
        bound = verify(problem, Moments(budget, moments, weights))
        assert bound is not None
        assert bound <= best.time_ns


@pytest.mark.parametrize(("moments", "weights"), [((4, 2), ()), ((12,), ()), ((2,), ((999, 1),)), ((2,), ((0, -1),))])
def test_a_proof_that_is_none_is_refused(moments: tuple[int, ...], weights: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(PlanError, match="proof"):
        verify(chained(3), Moments(20, moments, weights))


def test_a_chain_whose_recomputation_reads_what_is_away_takes_as_long_as_the_bound_over_moments_says() -> None:
    storages = (*(InstanceStorage(4) for _ in range(5)), InstanceStorage(1, kept=True))
    forward = (
        InstanceOp("f0", 9, makes=(0,)),
        *(InstanceOp(f"f{k}", 9, reads=(k - 1,), makes=(k,)) for k in range(1, 5)),
    )
    backward = (InstanceOp("b4", 1, reads=(4,), makes=(5,)), *(InstanceOp("b", 1, (k,), (5,)) for k in (3, 2, 1, 0)))
    problem = Instance((*forward, *backward), storages)
    t = tables(problem)
    idle = idle_intervals(problem, t)
    exact = optimum(problem, 9, free=False)
    weak, cover = idle_cover(problem, t, idle, 9)
    close, _ = moments_bound(problem, t, idle, cover)
    assert exact.bound_ns is not None
    assert weak < close <= exact.bound_ns


def test_the_search_repeats_itself() -> None:
    problem = chained(5)
    t = tables(problem)
    idle = idle_intervals(problem, t)
    budget = (least(problem, t, idle).nbytes + int(idle.need.max())) // 2
    found: list[Evaluated | None] = [searched(problem, budget).best for _ in range(2)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].sequence.tolist() == found[1].sequence.tolist()


@pytest.mark.parametrize("case", SMALL, ids=name_of)
@pytest.mark.slow
def test_small_steps_are_solved_to_the_known_optimum(case: dict[str, Any]) -> None:
    problem, budget, free = instance_of(raw(case)), case["budget_bytes"], case["order"] == "free"
    found = optimum(problem, budget, free=free)
    if case["status"] == "infeasible":
        assert found[:2] == (None, None)
        assert verify(problem, Exhausted(budget, free, None)) is None
        return
    assert found.bound_ns == case["best_ns"]
    assert found.sequence is not None
    played = evaluate(problem, tables(problem), found.sequence, free=free)
    assert played.time_ns == case["best_ns"]
    assert played.peak_bytes <= budget


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize(("budget", "best_ns"), [(13, 16), (12, 21), (9, None)])
def test_what_only_a_first_run_updates_counts_as_updated(budget: int, best_ns: int | None, free: bool) -> None:
    storages = (InstanceStorage(1, given=True, persistent=True, pinned=True), *map(InstanceStorage, (4, 4, 4)))
    ops = (
        InstanceOp("input", 5, makes=(1,)),
        InstanceOp("batch_norm", 3, reads=(1,), writes=(0,), makes=(2,), blind=(0,)),
        InstanceOp("backward", 4, reads=(2,), makes=(3,)),
        InstanceOp("gradient", 4, reads=(1, 3), makes=(4,)),
    )
    problem = Instance(ops, (*storages, InstanceStorage(2, kept=True)))
    found = optimum(problem, budget, free=free)
    assert found.bound_ns == best_ns
    assert (found.sequence is None) == (best_ns is None)


@pytest.mark.parametrize("seed", range(12))
def test_no_bound_is_above_the_optimum(seed: int) -> None:
    problem = chained(seed, 9)
    t = tables(problem)
    idle = idle_intervals(problem, t)
    low, peak = least(problem, t, idle).nbytes, int(idle.need.max())
    for budget in sorted({low, (low + peak) // 2, (low + 3 * peak) // 4, peak - 1}):
        if not low <= budget < peak:
            continue
        bound, cover = idle_cover(problem, t, idle, budget)
        closer, proof = moments_bound(problem, t, idle, cover)
        assert verify(problem, proof) == closer
        bound = max(bound, closer)
        exact = optimum(problem, budget, free=False)
        best = searched(problem, budget).best
        if exact.sequence is None:
            assert best is None
            continue
        time = evaluate(problem, t, exact.sequence, free=False).time_ns
        assert bound <= time
        assert best is None or best.time_ns >= time
        assert optimum(problem, budget, free=True, below_ns=time + 1).bound_ns is not None


def test_a_search_that_is_claimed_to_be_exhaustive_is_repeated() -> None:
    problem = chained(3, 9)
    t = tables(problem)
    idle = idle_intervals(problem, t)
    budget = (least(problem, t, idle).nbytes + int(idle.need.max())) // 2
    best = optimum(problem, budget, free=False)
    assert best.sequence is not None
    assert verify(problem, Exhausted(budget, False, best.bound_ns)) == best.bound_ns
    with pytest.raises(PlanError, match="not exhaustive"):
        verify(problem, Exhausted(budget, False, (best.bound_ns or 0) + 1))


def test_long_steps_are_searched_as_short_ones_are_but_attended(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_dag(3, 60)
    step = recorded(graph, [1 + number % 7 for number in range(len(graph))])
    problem = Problem(recording=step, device="cpu", budget_bytes=0)

    def find() -> Evaluated:
        best = searched(problem.instance, int(problem.recorded_peak_bytes * 0.8)).best
        assert best is not None
        return best

    found = find()
    monkeypatch.setattr(local_search, "_QUICK", 0)
    again = find()
    assert again.sequence.tolist() == found.sequence.tolist()
    assert (again.time_ns, again.peak_bytes) == (found.time_ns, found.peak_bytes)


def test_functions_of_long_steps_end_when_they_are_told_to() -> None:
    graph = random_dag(3, 60)
    problem = Problem(recording=recorded(graph, [1] * len(graph)), device="cpu", budget_bytes=0)
    tight = int(problem.recorded_peak_bytes * 0.8)
    search, ops = Search(problem.instance, problem.tables, tight, free=False), np.arange(len(graph))
    search.repair(ops)
    assert search.best is not None
    best, room, away = search.best.sequence, search.local.room, np.zeros(len(ops), np.int64)
    room.counts[STOP] = 1
    dice, ones, none = np.array([20], np.int64), np.ones(len(problem.tables.nbytes)), search.local.prices
    assert rounds(problem.tables, room, best, best, tight, dice, 10**9, 0.0, none)[0].tolist() == best.tolist()
    assert repair(problem.tables, room, ops, away, tight, ones, 1.0, none, 10**9)[0] == MORE
    assert prune(problem.tables, room, best, np.zeros(len(best), np.int64), 1 << 60)[0].tolist() == best.tolist()


def weight_gradients(layers: int) -> Instance:
    """A step whose peak is at its end: products of small sources, which run once, wait there for their updates."""
    ops = [InstanceOp(f"source{n}", 5, makes=(n,), once=True) for n in range(layers)]
    ops += [InstanceOp(f"product{n}", 1, reads=(n,), makes=(layers + n,)) for n in reversed(range(layers))]
    ops += [InstanceOp(f"update{n}", 1, reads=(layers + n,), writes=(2 * layers,)) for n in range(layers)]
    sizes = [*[InstanceStorage(2)] * layers, *[InstanceStorage(9)] * layers]
    return Instance(tuple(ops), (*sizes, InstanceStorage(1, given=True, persistent=True)))


def test_small_sources_stay_in_exchange_for_the_gradients_that_they_restore() -> None:
    problem = weight_gradients(6)
    t, budget = tables(problem), 40
    assert searched(problem, budget).best is None
    search = Search(problem, t, budget, free=False)
    search.repair_by_exchange(np.arange(len(problem.ops)))
    assert search.best is not None
    assert optimum(problem, budget, free=False).bound_ns == search.best.time_ns
    played = time_and_peak(problem, steps_of(t, map(Compute, search.best.sequence.tolist())), budget)
    assert played == (search.best.time_ns, search.best.peak_bytes)
