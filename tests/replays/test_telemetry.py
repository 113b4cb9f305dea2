"""Telemetry against what it must add up to: the run's own counters, its plan replayed, and its trace read once more."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensortide.errors import PlanError
from tensortide.graph import Graph
from tensortide.importers.dtrlog.read import read_recording
from tensortide.plans import Compute
from tensortide.plans.remat.recording import Recording
from tensortide.plans.remat.schedule import NONE, Schedule, recorded
from tensortide.replays.executed import executed
from tensortide.replays.remat import Deallocation, Simulation, Simulator
from tensortide.replays.remat.smallest import least_bytes, smallest_budget
from tensortide.replays.remat.telemetry import Telemetry, telemetry
from tensortide.timelines.events import Kind
from tests.graphs import graphs
from tests.marks import some_slow
from tests.reference import dtr_log
from tests.reports.graphs import tower

RULES: tuple[Deallocation, ...] = ("eager", "none", "banish", "ignore")
LOGS = {"resnet32-56": (539510784, 35584920), "transformer-10": (671088640, 263197248), "syn09": (325, 240)}
"""Bottleneck and constants, in bytes, as published."""


def timed(graph: Graph) -> Recording:
    return recorded(graph, [7 * (i % 5) + 3 for i in range(len(graph))])


def outputs_of(schedule: Schedule) -> list[range]:
    return [range(a, b) for a, b in pairwise(schedule.output_ends.tolist())]


def inputs_of(schedule: Schedule) -> list[list[int]]:
    flat = schedule.inputs.tolist()
    return [flat[a:b] for a, b in pairwise(schedule.input_ends.tolist())]


def assert_adds_up(simulator: Simulator, run: Simulation, told: Telemetry) -> None:
    """Whatever two ways lead to is the same by both."""
    moments = told.moments
    assert sum(op.recomputations for op in told.ops) == run.recomputations == told.counters.direct_remats
    assert sum(storage.evictions for storage in told.storages) == run.evictions == told.counters.evictions
    assert sum(op.compute_ns * (op.runs + op.recomputations) for op in told.ops) + simulator.compat == run.clock_ns
    assert sum(op.compute_ns * op.recomputations for op in told.ops) == run.remat_ns
    assert max(moments.total_bytes.tolist(), default=0) == run.peak_bytes
    assert sum(tensor.collateral_remats for tensor in told.tensors) == told.counters.collateral_remats
    assert all(storage.forced <= storage.evictions for storage in told.storages)
    assert moments.clock_ns.tolist() == sorted(moments.clock_ns.tolist())
    for column in (moments.pinned_bytes, moments.locked_bytes, moments.evictable_bytes, moments.pressure_bytes):
        assert min(column.tolist(), default=0) >= 0
    if run.budget_bytes is not None:
        assert max(moments.total_bytes.tolist(), default=0) <= run.budget_bytes
    assert (told.stop is None) == (run.status == "ok")
    if run.shortage is not None and told.stop is not None:
        assert told.stop.asked_bytes == run.shortage.asked_bytes
        assert sum(held.nbytes for held in told.stop.held) == run.shortage.held_bytes


def assert_agrees_with_its_plan(simulator: Simulator, run: Simulation, told: Telemetry) -> None:
    """What the plan of the run, replayed, does to memory, and when its storages come and go."""
    plan, schedule, moments = run.plan(), run.schedule, told.moments
    rows = [row for row in moments.ran.tolist() if schedule.origin[moments.indexes[row]] != NONE]
    assert moments.total_bytes[rows].tolist() == run.timeline().resident.tolist()
    computed = Counter(step.op for step in plan.lanes[0].steps if isinstance(step, Compute))
    assert computed == {op.graph_op: op.runs + op.recomputations for op in told.ops if op.graph_op is not None}
    played = executed(simulator.recording.graph, plan)
    for storage in told.storages:
        lived = played.storages[storage.graph_storage]
        if lived.birth is not None:
            assert rows.index(storage.birth) == lived.birth
        if storage.death is not None and not storage.remats:
            assert sum(row < storage.death for row in rows) == lived.death


@settings(max_examples=40)
@given(graphs(), st.sampled_from(RULES), st.sampled_from(["dtr-eq", "lru", "size"]), st.integers(30, 100))
def test_a_run_is_told_in_full(graph: Graph, rule: Deallocation, policy: str, percent: int) -> None:
    simulator = Simulator(timed(graph), deallocation=rule)
    peak = simulator.run(policy, compiled=False).peak_bytes
    run = simulator.run(policy, peak * percent // 100, overhead_limit=3.0, compiled=False)
    told = telemetry(simulator, run)
    assert_adds_up(simulator, run, told)
    if run.status == "ok":
        assert_agrees_with_its_plan(simulator, run, told)


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("log", some_slow(LOGS, {"transformer-10"}))
def test_real_logs(reference: Path, log: str, rule: Deallocation, compat: bool) -> None:
    recording = read_recording(dtr_log(reference, log), copy_on_write=compat)
    simulator = Simulator(recording, compat=compat, deallocation=rule)
    policy = "dtr-local" if rule == "banish" else "dtr-eq"
    for ratio in (0.6, 0.1) if log == "resnet32-56" else (0.6,):
        run = simulator.run(policy, int(simulator.baseline_bytes * ratio), overhead_limit=2.0)
        told = telemetry(simulator, run)
        assert_adds_up(simulator, run, told)
        if run.status == "ok":
            assert (told.counters.bottleneck_bytes, told.counters.constant_bytes) == LOGS[log]
            assert_agrees_with_its_plan(simulator, run, told)


@pytest.mark.parametrize("log", ["resnet32-56", "syn09"])
def test_uses_are_those_of_the_readers_that_ran(reference: Path, log: str) -> None:
    simulator = Simulator(read_recording(dtr_log(reference, log)))
    told = telemetry(simulator, simulator.run("dtr-eq", int(0.3 * simulator.baseline_bytes)))
    model: Counter[int] = Counter()
    remat: Counter[int] = Counter()
    for op, read in zip(told.ops, inputs_of(simulator.schedule), strict=True):
        model.update(dict.fromkeys(read, op.runs))
        remat.update(dict.fromkeys(read, op.recomputations))
    for tensor in told.tensors:
        assert (tensor.model_uses, tensor.remat_uses) == (model[tensor.id], remat[tensor.id])
        assert tensor.pinned_model_uses <= tensor.model_uses
        assert tensor.pinned_remat_uses <= tensor.remat_uses
    assert sum(remat.values()) > 0


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize(
    ("log", "rule", "ratio"),
    [
        *(
            pytest.param("transformer-10", rule, 0.35 if rule == "banish" else 0.3, marks=pytest.mark.slow)
            for rule in RULES
        ),
        *(("syn09", rule, 0.4) for rule in RULES if rule != "banish"),
    ],
)
def test_moments_are_those_of_the_trace(
    reference: Path, log: str, rule: Deallocation, ratio: float, compat: bool
) -> None:
    """The trace read once more, by a reader that knows nothing of locks, references and policies."""
    recording = read_recording(dtr_log(reference, log), copy_on_write=compat)
    simulator = Simulator(recording, compat=compat, deallocation=rule)
    run = simulator.run("dtr-local" if rule == "banish" else "dtr-eq", int(ratio * simulator.baseline_bytes))
    told, read = telemetry(simulator, run), Reader(simulator.schedule)
    moments, entries = told.moments, iter(zip(run.outcome.kinds, run.outcome.indexes, strict=True))
    for row, (kind, index) in enumerate(zip(moments.kinds.tolist(), moments.indexes.tolist(), strict=True)):
        if kind == Kind.PIN:
            read.pinned[index] = row
        else:
            read.follow(row, *map(int, next(entries)))
        assert moments.pinned_bytes[row] == read.pinned_bytes(before=kind in (Kind.RUN, Kind.RECOMPUTE))
        if kind in (Kind.RUN, Kind.RECOMPUTE):
            assert moments.locked_bytes[row] >= read.in_use(index)
        else:
            assert moments.total_bytes[row] == sum(read.size[s] for s in read.resident)
    assert next(entries, None) is None
    assert moments.locked_bytes[-1] == 0
    assert sum(read.beside.values()) > 0
    for tensor in told.tensors:
        assert (tensor.birth, tensor.death) == (read.births.get(tensor.id), read.deaths.get(tensor.id))
        assert (tensor.direct_remats, tensor.collateral_remats) == (read.direct[tensor.id], read.beside[tensor.id])
    for storage in told.storages:
        assert (storage.birth, storage.death) == (read.came.get(storage.id), read.left.get(storage.id))
        assert storage.remats == max(0, read.comings[storage.id] - 1)
        assert storage.pinned == read.pinned.get(storage.id)
        assert (storage.banished is not None) == (storage.id in read.banished)


class Reader:
    """Who is resident, and since when, after each entry of a trace."""

    def __init__(self, schedule: Schedule) -> None:
        self.outputs, self.inputs = outputs_of(schedule), inputs_of(schedule)
        self.owner: list[int] = schedule.storage.tolist()
        self.root = schedule.root.tolist()
        self.replaces = schedule.replaces.tolist()
        self.size: list[int] = schedule.storage_bytes.tolist()
        self.nbytes: list[int] = schedule.nbytes.tolist()
        self.op_of = [op for op, made in enumerate(self.outputs) for _ in made]
        self.defined: set[int] = set()
        self.resident: set[int] = set()
        self.earlier: set[int] = set()
        self.dropped: set[int] = set()
        self.banished: set[int] = set()
        self.births: dict[int, int] = {}
        self.deaths: dict[int, int] = {}
        self.came: dict[int, int] = {}
        self.left: dict[int, int] = {}
        self.pinned: dict[int, int] = {}
        self.comings: Counter[int] = Counter()
        self.direct: Counter[int] = Counter()
        self.beside: Counter[int] = Counter()

    def pinned_bytes(self, before: bool) -> int:
        here = self.earlier if before else self.resident
        return sum(self.size[storage] for storage in here if storage in self.pinned)

    def in_use(self, op: int) -> int:
        """Bytes of what ``op`` reads, unless that is pinned, and of what it makes."""
        read = {self.owner[value] for value in self.inputs[op]} - {*self.pinned}
        made = sum(self.nbytes[value] for value in self.outputs[op])
        return made + sum(self.size[storage] for storage in read)

    def follow(self, row: int, kind: int, index: int) -> None:
        self.earlier = set(self.resident)
        if kind in (Kind.EVICT, Kind.BANISH, Kind.DEAD):
            if kind != Kind.DEAD:
                self.resident.remove(index)
                self.left[index] = row
            for value in [value for value in self.defined if self.owner[value] == index]:
                self.lose(value, row)
            if kind != Kind.EVICT:
                self.dropped.add(index)
            if kind == Kind.BANISH:
                self.banished.add(index)
            return
        if kind == Kind.RECOMPUTE:
            self.direct[index] += 1
        for value in self.outputs[index if kind == Kind.RUN else self.op_of[index]]:
            self.make(value, row, beside=kind == Kind.RECOMPUTE and value != index)

    def make(self, value: int, row: int, beside: bool) -> None:
        storage = self.owner[value]
        there = storage in self.resident and self.root[storage] == value
        if value in self.defined or there or (storage in self.dropped and self.replaces[value] < 0):
            return
        if self.replaces[value] in self.defined:
            self.lose(self.replaces[value], row)
        self.defined.add(value)
        self.births.setdefault(value, row)
        self.deaths.pop(value, None)
        self.beside[value] += int(beside)
        if storage not in self.resident:
            self.resident.add(storage)
            self.comings[storage] += 1
            self.came.setdefault(storage, row)
            self.left.pop(storage, None)

    def lose(self, value: int, row: int) -> None:
        self.defined.remove(value)
        self.deaths[value] = row


def test_pressure_falls_until_what_is_to_run_fits() -> None:
    simulator = Simulator(timed(tower()))
    budget = int(0.8 * simulator.baseline_bytes)
    run = simulator.run("dtr-eq", budget, compiled=False)
    moments = telemetry(simulator, run).moments
    forced = [row for row in range(len(moments)) if moments.kinds[row] == Kind.EVICT and moments.pressure_bytes[row]]
    assert all(moments.kinds[row + 1] == Kind.EVICT for row in forced)
    for row in moments.ran.tolist():
        assert moments.pressure_bytes[row] == 0
        assert moments.total_bytes[row] <= budget


def test_moments_of_most() -> None:
    simulator = Simulator(timed(tower()))
    moments = telemetry(simulator, simulator.run("lru", compiled=False)).moments
    assert moments.locked_bytes[moments.most_locked] == max(moments.locked_bytes.tolist())
    assert moments.pinned_bytes[moments.most_pinned] == max(moments.pinned_bytes.tolist())


def test_a_run_of_another_step_is_refused() -> None:
    small, large = Simulator(timed(tower(2))), Simulator(timed(tower(6)))
    run = large.run("dtr-eq", int(0.8 * large.baseline_bytes), compiled=False)
    with pytest.raises(PlanError, match="not one of this simulator"):
        telemetry(small, as_of(run, small))


def as_of(run: Simulation, simulator: Simulator) -> Simulation:
    """``run`` as if ``simulator`` had made it."""
    return Simulation(simulator.schedule, run.policy, run.budget_bytes, None, run.workspace, run.rules, run.outcome)


@pytest.mark.parametrize("policy", ["dtr-eq", "msps", "lru"])
@pytest.mark.parametrize("log", ["resnet32-56", "syn09"])
def test_the_smallest_budget_works_and_the_step_below_it_was_tried(reference: Path, log: str, policy: str) -> None:
    simulator = Simulator(read_recording(dtr_log(reference, log)))
    tried: list[int] = []
    found = smallest_budget(simulator, policy, overhead_limit=2.0, watch=tried.append)
    assert found.status == "ok"
    assert found.budget_bytes in tried
    below = max(budget for budget in tried if budget < (found.budget_bytes or 0))
    assert simulator.run(policy, below, overhead_limit=2.0).status != "ok"
    assert len(tried) <= 12


@settings(max_examples=40)
@given(graphs(), st.integers(5, 100))
def test_no_policy_ends_with_less_than_the_least(graph: Graph, percent: int) -> None:
    simulator = Simulator(timed(graph))
    least, op = least_bytes(simulator.schedule)
    budget = simulator.run("lru", compiled=False).peak_bytes * percent // 100
    if any(simulator.run(name, budget, compiled=False).status == "ok" for name in ("dtr-eq", "size", "lru")):
        assert budget >= least
    assert (op < 0) == (least == 0)
