"""Our plan beside G10's policies: never slower than one, and no slower on a larger machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortide.graph.model import Graph
from tensortide.importers.g10.read import read_trace
from tensortide.plans.events import play
from tensortide.plans.instance import instance
from tensortide.plans.model import Plan
from tensortide.plans.remat.schedule import Recording, recorded
from tensortide.plans.transfers.choosing import Choosing, Setting
from tensortide.plans.transfers.kernels.arrays import HERE
from tensortide.plans.under_budget.search import Stopped
from tensortide.replays.g10 import POLICIES, G10Machine, greedy, pages, trace_of
from tensortide.replays.g10.machine import GIB
from tensortide.replays.g10.paged import _rules, _steps, _world
from tensortide.replays.g10.planner import _ledgers, _table, periods, scheme
from tensortide.reports.sections.policies import section
from tensortide.search_limit import no_look
from tensortide.studies.planning import plan
from tensortide.studies.planning.g10_comparison import LATE, OURS, STOPPED, compare_policies
from tensortide.studies.planning.g10_moves import policies_choices
from tensortide.studies.planning.problem import Problem
from tests.reference import reference_folder

MIB = 1 << 20
LAYERS = 14
BRIEFLY: dict[str, Any] = {"effort": 0.01, "time_limit_s": 3.0}
SMALL = G10Machine(device_bytes=60 * MIB, wire=4_000_000_000, drive=1_000_000_000)


def write(folder: Path) -> Path:
    """A chain of layers of 4 MiB, 1 ms each, with weights of 1 MiB, forward and backward."""
    sizes = [MIB] * LAYERS + [4 * MIB] * (2 * LAYERS + 2)
    lines: list[str] = []

    def tensor(number: int) -> str:
        weight = int(number < LAYERS)
        return f"tensor{number} Is weight (global)?: {weight}, Size in byte: {sizes[number]}, Range:0--{sizes[number]}"

    def kernel(kind: str, inputs: list[int], outputs: list[int]) -> None:
        number = sum(line.startswith("Kernel ID") for line in lines)
        lines.extend([f"Kernel ID: {number}, Name: Layer_{kind}", f"Parent OP ID:{number}; Name:op"])
        lines.extend(["Execution Time: 1200000", "Input Tensors:", *map(tensor, inputs)])
        lines.extend(["Output Tensors:", *map(tensor, outputs), "_" * 68])

    kernel("Forward", [], [LAYERS])
    for layer in range(LAYERS):
        kernel("Forward", [LAYERS + layer, layer], [LAYERS + layer + 1])
    gradient = 2 * LAYERS + 1
    kernel("Backward", [2 * LAYERS], [gradient])
    for layer in reversed(range(LAYERS)):
        kernel("Backward", [LAYERS + layer, layer, gradient], [gradient + 1])
        gradient += 1
    folder.mkdir(exist_ok=True)
    (folder / "kernels.config").write_text("".join(f"{line}\n" for line in lines))
    (folder / "tensors.config").write_text("".join(f"{tensor(number)}\n" for number in range(len(sizes))))
    return folder


def step_of(folder: Path) -> Recording:
    found = read_trace(folder)
    assert found.times is not None
    return recorded(found.graph, found.times.durations(found.graph, "trace").ns, "trace")


@pytest.fixture
def step(tmp_path: Path) -> Recording:
    return step_of(write(tmp_path / "trace"))


def test_ours_is_no_slower_than_any_policy_and_its_parts_add_up(step: Recording) -> None:
    trace = trace_of(step.graph, step.durations_ns)
    found = compare_policies(step, trace, SMALL, tuple(POLICIES), **BRIEFLY)
    ours = found.of(OURS)
    assert [outcome.policy for outcome in found.outcomes] == [*POLICIES, OURS]
    assert found.planned is not None
    assert ours.step_ns == found.planned.step_ns
    assert ours.stall_ns is not None
    assert ours.compute_ns is not None
    assert ours.stall_ns + ours.overlap_ns + ours.compute_ns == ours.step_ns
    assert found.planned.peak_bytes is not None
    assert found.planned.peak_bytes <= SMALL.device_bytes
    assert ours.traffic.total > 0
    assert ours.step_ns is not None
    for outcome in found.outcomes:
        assert outcome.policy == "ideal" or outcome.step_ns is None or ours.step_ns <= outcome.step_ns


def test_the_planner_is_no_slower_than_the_moves_of_the_policies(step: Recording) -> None:
    for links in SMALL.links().values():
        problem = Problem(recording=step, device="cuda", budget_bytes=SMALL.device_bytes, links=links)
        setting = Setting(problem.instance, no_look, lambda ops: None)
        choosing = Choosing(setting, np.arange(len(step.graph)), SMALL.device_bytes)
        choices = [planned(choosing) for planned in policies_choices(problem, no_look)]
        assert any((choice != HERE).any() for choice in choices)
        theirs = min(choosing.made(choosing.covered(choice, 1.0)).time_ns for choice in choices)
        found = plan(step, SMALL.device_bytes, links=links, recompute=False, effort=0.002, time_limit_s=3.0)
        assert found.step_ns is not None
        assert found.step_ns <= theirs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "values"),
    [
        ("host_bytes", [n * 2 * MIB for n in range(8)]),
        ("drive", [200_000_000 * (n + 1) for n in range(8)]),
    ],
)
def test_time_does_not_rise_with_host_memory_or_the_rate_of_the_drive(
    step: Recording, what: str, values: list[int]
) -> None:
    trace = trace_of(step.graph, step.durations_ns)
    known: dict[str, Plan] = {}
    times: list[int] = []
    for value in values:
        machine = G10Machine(**{**{name: getattr(SMALL, name) for name in SMALL.__struct_fields__}, what: value})
        found = compare_policies(step, trace, machine, (), **BRIEFLY, known=known)
        if found.planned is not None and found.planned.plan is not None:
            known = {"the machine before": found.planned.plan}
            times.append(found.planned.step_ns or 0)
        assert bool(times) == (found.planned is not None)
    assert len(times) >= 6
    assert times == sorted(times, reverse=True)


def test_a_machine_with_less_of_everything_is_told_from_one_that_fits(step: Recording) -> None:
    trace = trace_of(step.graph, step.durations_ns)
    none = compare_policies(step, trace, G10Machine(device_bytes=MIB), ("flashneuron",), **BRIEFLY)
    assert none.planned is None
    assert none.of(OURS).reason == "no plan fits 1,048,576 bytes"
    assert none.of("flashneuron").step_ns is None
    shown = section(none).table("policies")
    assert shown["policy"] == ("FlashNeuron", "ours")
    assert shown["step_ns"] == (None, None)


def test_the_section_shows_each_policy_and_draws_what_it_shows(step: Recording) -> None:
    trace = trace_of(step.graph, step.durations_ns)
    found = compare_policies(step, trace, SMALL, ("ideal", "uvm-lru"), **BRIEFLY)
    made = section(found)
    table = made.table("policies")
    assert table["policy"] == ("Ideal", "UVM-LRU", "ours")
    assert table["of_ideal_share"][0] == 1.0
    assert [block.key for block in made.blocks if block.key] == ["policies", "of_ideal", "breakdown", "traffic"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "gib"), [("VIT-512", 16), ("BERT_Base-128", 16), ("Inceptionv3-512", 16), ("BERT_Base-256", 24)]
)
def test_on_recorded_traces_ours_is_no_slower_than_any_policy(reference: Path, name: str, gib: int) -> None:
    folder = reference / "g10" / name
    if not (folder / "profile" / "T00.txt.gz").is_file():
        pytest.skip("the times of kernels whose operands are absent are not committed")
    from tests.replays.g10.traces import recorded_trace

    step, trace = step_of(folder), recorded_trace(reference, name)
    found = compare_policies(step, trace, G10Machine(gib * GIB), tuple(POLICIES), effort=1.0, time_limit_s=120)
    ours = found.of(OURS).step_ns
    assert ours is not None
    assert found.planned is not None
    assert found.planned.plan is not None
    problem = instance(step.graph, "cuda", step.durations_ns, links=found.links)
    steps, home = found.planned.plan.lanes[0].steps, found.planned.plan.home
    assert play(problem, steps, home=home, budget_bytes=gib * GIB).makespan_ns == ours
    for outcome in found.outcomes:
        assert outcome.policy == "ideal" or outcome.step_ns is None or ours <= outcome.step_ns


def test_every_reference_trace_is_a_graph_whose_tensors_are_storages() -> None:
    folder = reference_folder() / "g10" / "BERT_Base-128"
    graph: Graph = read_trace(folder).graph
    trace = trace_of(graph, [1] * len(graph))
    assert len(trace.pages) == len(graph.tensors)
    assert int(trace.lasts.sum()) == 156
    assert trace.loss == 477


def test_policies_are_not_played_once_the_search_is_told_to_end(step: Recording) -> None:
    trace = trace_of(step.graph, step.durations_ns)
    asked: list[int] = []

    def watch(best: int | None, bound: int) -> bool:
        assert best is None
        assert bound == trace.ideal_ns
        asked.append(bound)
        return len(asked) < 3

    found = compare_policies(step, trace, SMALL, ("ideal", "flashneuron", "deepum", "g10"), watch=watch, **BRIEFLY)
    reasons = [one.reason for one in found.outcomes if one.policy != OURS]
    assert reasons[2:] == [STOPPED, STOPPED]
    assert STOPPED not in reasons[:2]


def endless(s: Any, r: Any, w: pages.World, counts: Any) -> None:
    """A policy that takes for ever, unless it is told to end: as a long trace does where nothing is compiled."""
    until = time.monotonic() + 60
    while not w.registers[pages.STOP] and time.monotonic() < until:
        time.sleep(0.01)


def test_a_policy_that_takes_long_ends_when_the_search_is_told_to(
    step: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "play", endless)
    began = time.monotonic()

    def watch(best: int | None, bound: int) -> bool:
        return time.monotonic() < began + 0.5

    trace = trace_of(step.graph, step.durations_ns)
    found = compare_policies(step, trace, SMALL, ("uvm-lru", "deepum"), watch=watch, **BRIEFLY)
    assert [one.reason for one in found.outcomes] == [STOPPED, STOPPED, STOPPED]
    assert time.monotonic() - began < 20


def test_policies_take_half_of_the_time_limit_at_most(step: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "play", endless)
    trace, began = trace_of(step.graph, step.durations_ns), time.monotonic()
    found = compare_policies(step, trace, SMALL, ("uvm-lru", "deepum"), **BRIEFLY)
    assert [found.of(name).reason for name in ("uvm-lru", "deepum")] == [LATE, LATE]
    assert found.planned is not None
    assert time.monotonic() - began < 30


def test_the_choice_of_moves_ends_when_it_is_told_to(step: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    def long(*arguments: Any) -> int:
        until = time.monotonic() + 60
        while not arguments[-1][0] and time.monotonic() < until:
            time.sleep(0.01)
        return 0

    def look() -> None:
        raise Stopped

    monkeypatch.setattr(greedy, "choose", long)
    began = time.monotonic()
    with pytest.raises(Stopped):
        scheme(trace_of(step.graph, step.durations_ns), SMALL, look=look)
    assert time.monotonic() - began < 20


def test_compiled_policies_end_when_they_are_told_to(step: Recording) -> None:
    trace = trace_of(step.graph, step.durations_ns)
    world, counts = _world(trace, SMALL, 0), np.zeros(pages.COUNTS, np.int64)
    world.registers[pages.STOP] = 1
    pages.play(_steps(trace, ()), _rules(SMALL, 0, False), world, counts)
    assert not counts.any()
    table, level = _table(periods(trace), SMALL), np.full(len(trace), 1 << 40)
    over, one = np.zeros(len(trace) + 1, np.int64), np.ones(1, np.int64)
    stated = table, _ledgers(trace, SMALL), level, trace.ns, over, 1, 1 << 40, len(table.begin)
    assert greedy.choose(*stated, one) == 0
    assert greedy.choose(*stated, 0 * one) > 0
