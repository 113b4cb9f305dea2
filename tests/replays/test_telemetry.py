"""Telemetry against what it must add up to: the run's own counters, its plan replayed, and its trace read once more."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensortide.errors import PlanError
from tensortide.graph import Graph
from tensortide.importers.dtrlog.read import read_recording
from tensortide.plans import Compute
from tensortide.plans.remat.schedule import NONE, Recording, Schedule, recorded
from tensortide.replays.executed import executed
from tensortide.replays.remat import Deallocation, Simulation, Simulator
from tensortide.replays.remat.simulator import least_bytes, smallest_budget
from tensortide.replays.remat.telemetry import Telemetry, telemetry
from tensortide.timelines.events import Kind
from tests.graphs import graphs
from tests.reference import dtr_log
from tests.reports.graphs import tower

RULES: tuple[Deallocation, ...] = ("eager", "none", "banish", "ignore")
LOGS = {"resnet32-56": (539510784, 35584920), "transformer-10": (671088640, 263197248), "syn09": (325, 240)}
"""Bottleneck and constants, in bytes, as published."""


def timed(graph: Graph) -> Recording:
    return recorded(graph, [7 * (i % 5) + 3 for i in range(len(graph))])


def rows_of(table: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def assert_adds_up(simulator: Simulator, run: Simulation, told: Telemetry) -> None:
    """Whatever two ways lead to is the same by both."""
    moments = {name: column.tolist() for name, column in told.moments.items()}
    ops, storages, tensors = rows_of(told.ops), rows_of(told.storages), rows_of(told.tensors)
    assert sum(op["recomputations"] for op in ops) == run.recomputations == sum(t["direct_remats"] for t in tensors)
    assert sum(storage["evictions"] for storage in storages) == run.evictions
    assert sum(o["compute_ns"] * (o["runs"] + o["recomputations"]) for o in ops) + simulator.compat == run.clock_ns
    assert sum(op["compute_ns"] * op["recomputations"] for op in ops) == run.remat_ns
    assert max(moments["total_bytes"], default=0) == run.peak_bytes
    assert all(storage["forced"] <= storage["evictions"] for storage in storages)
    assert moments["clock_ns"] == sorted(moments["clock_ns"])
    for name in ("pinned_bytes", "locked_bytes", "evictable_bytes", "pressure_bytes"):
        assert min(moments[name], default=0) >= 0
    parts = zip(*(moments[name] for name in ("pinned_bytes", "locked_bytes", "evictable_bytes")), strict=True)
    assert list(map(sum, parts)) == moments["total_bytes"]
    if run.budget_bytes is not None:
        assert max(moments["total_bytes"], default=0) <= run.budget_bytes
    assert (told.stop is None) == (run.status == "ok")
    if run.shortage is not None and told.stop is not None:
        assert told.stop.asked_bytes == run.shortage.asked_bytes
        assert sum(held.nbytes for held in told.stop.held) == run.shortage.held_bytes


def ran(told: Telemetry) -> list[int]:
    """The moments at which an op runs, or runs again."""
    found: list[int] = (told.moments["kind"] <= Kind.RECOMPUTE).nonzero()[0].tolist()
    return found


def assert_agrees_with_its_plan(simulator: Simulator, run: Simulation, told: Telemetry) -> None:
    """What the plan of the run, replayed, does to memory, and when its storages come and go."""
    plan, schedule, moments = run.plan(), run.schedule, told.moments
    rows = [row for row in ran(told) if schedule.origin[moments["index"][row]] != NONE]
    assert moments["total_bytes"][rows].tolist() == run.timeline().resident.tolist()
    computed = Counter(step.op for step in plan.lanes[0].steps if isinstance(step, Compute))
    ops = [op for op in rows_of(told.ops) if op["graph_op"] is not None]
    assert computed == {op["graph_op"]: op["runs"] + op["recomputations"] for op in ops}
    played = executed(simulator.recording.graph, plan)
    for storage in rows_of(told.storages):
        lived = played.storages[storage["graph_storage"]]
        if lived.birth is not None:
            assert rows.index(storage["birth"]) == lived.birth
        if storage["death"] is not None and not storage["remats"]:
            assert sum(row < storage["death"] for row in rows) == lived.death


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


@pytest.mark.parametrize(
    ("log", "rule", "compat"),
    [
        *(("resnet32-56", rule, place % 2 == 0) for place, rule in enumerate(RULES)),
        *(("syn09", rule, place % 2 == 1) for place, rule in enumerate(RULES)),
        *(
            pytest.param("transformer-10", *rule, marks=pytest.mark.slow)
            for rule in (("eager", False), ("banish", True))
        ),
    ],
)
def test_real_logs(reference: Path, log: str, rule: Deallocation, compat: bool) -> None:
    recording = read_recording(dtr_log(reference, log), copy_on_write=compat)
    simulator = Simulator(recording, compat=compat, deallocation=rule)
    policy = "dtr-local" if rule == "banish" else "dtr-eq"
    for ratio in (0.6, 0.1) if log == "resnet32-56" else (0.6,):
        run = simulator.run(policy, int(simulator.baseline_bytes * ratio), overhead_limit=2.0)
        told = telemetry(simulator, run)
        assert_adds_up(simulator, run, told)
        if run.status == "ok":
            assert (told.bottleneck_bytes, simulator.schedule.constant_bytes) == LOGS[log]
            assert_agrees_with_its_plan(simulator, run, told)


@pytest.mark.parametrize("log", ["resnet32-56", "syn09"])
def test_uses_are_those_of_the_readers_that_ran(reference: Path, log: str) -> None:
    simulator = Simulator(read_recording(dtr_log(reference, log)))
    told = telemetry(simulator, simulator.run("dtr-eq", int(0.3 * simulator.baseline_bytes)))
    model: Counter[int] = Counter()
    remat: Counter[int] = Counter()
    for op, (read, _) in zip(rows_of(told.ops), simulator.schedule.ops(), strict=True):
        model.update(dict.fromkeys(read, op["runs"]))
        remat.update(dict.fromkeys(read, op["recomputations"]))
    for tensor in rows_of(told.tensors):
        assert (tensor["model_uses"], tensor["remat_uses"]) == (model[tensor["id"]], remat[tensor["id"]])
        assert tensor["pinned_model_uses"] <= tensor["model_uses"]
        assert tensor["pinned_remat_uses"] <= tensor["remat_uses"]
    assert sum(remat.values()) > 0


@pytest.mark.parametrize(
    ("log", "rule", "ratio", "compat"),
    [
        pytest.param("transformer-10", "eager", 0.3, True, marks=pytest.mark.slow),
        pytest.param("transformer-10", "banish", 0.35, False, marks=pytest.mark.slow),
        *(("syn09", rule, 0.4, compat) for rule in RULES if rule != "banish" for compat in (False, True)),
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
    moments, entries = rows_of({name: column.tolist() for name, column in told.moments.items()}), run.trace()
    for row, moment in enumerate(moments):
        kind, index = moment["kind"], moment["index"]
        if kind == Kind.PIN:
            read.pinned[index] = row
        else:
            read.follow(row, *next(entries))
        assert moment["pinned_bytes"] == read.pinned_bytes(before=kind in (Kind.RUN, Kind.RECOMPUTE))
        if kind in (Kind.RUN, Kind.RECOMPUTE):
            assert moment["locked_bytes"] >= read.in_use(index)
        else:
            assert moment["total_bytes"] == sum(read.size[s] for s in read.resident)
    assert next(entries, None) is None
    assert moments[-1]["locked_bytes"] == 0
    assert sum(read.beside.values()) > 0
    for tensor in rows_of(told.tensors):
        which = tensor["id"]
        assert (tensor["birth"], tensor["death"]) == (read.births.get(which), read.deaths.get(which))
        assert (tensor["direct_remats"], tensor["collateral_remats"]) == (read.direct[which], read.beside[which])
    for storage in rows_of(told.storages):
        which = storage["id"]
        assert (storage["birth"], storage["death"]) == (read.came.get(which), read.left.get(which))
        assert storage["remats"] == max(0, read.comings[which] - 1)
        assert storage["pinned"] == read.pinned.get(which)
        assert (storage["banished"] is not None) == (which in read.banished)


class Reader:
    """Who is resident, and since when, after each entry of a trace."""

    def __init__(self, schedule: Schedule) -> None:
        self.inputs = [read for read, _ in schedule.ops()]
        self.outputs = [made for _, made in schedule.ops()]
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
    told = telemetry(simulator, run)
    moments = told.moments
    forced = ((moments["kind"] == Kind.EVICT) & (moments["pressure_bytes"] > 0)).nonzero()[0]
    assert all(moments["kind"][forced + 1] == Kind.EVICT)
    runs = ran(told)
    assert not moments["pressure_bytes"][runs].any()
    assert (moments["total_bytes"][runs] <= budget).all()


def test_a_run_of_another_step_is_refused() -> None:
    small, large = Simulator(timed(tower(2))), Simulator(timed(tower(6)))
    run = large.run("dtr-eq", int(0.8 * large.baseline_bytes), compiled=False)
    with pytest.raises(PlanError, match="not one of this simulator"):
        telemetry(small, as_of(run, small))


def as_of(run: Simulation, simulator: Simulator) -> Simulation:
    """``run`` as if ``simulator`` had made it."""
    return dataclasses.replace(run, schedule=simulator.schedule, overhead_limit=None)


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
    assert least > 0 or op < 0
