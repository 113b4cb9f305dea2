"""PyTorch's partitioner as a rival: its plans are legal, recompute what it says, and are never faster than ours."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.graph import unrolled
from tensortide.graph.model import Graph
from tensortide.plans import Compute, Lane, Plan, validate
from tensortide.plans.instance import instance
from tensortide.plans.remat.schedule import recorded
from tensortide.plans.under_budget.known import Rival
from tensortide.plans.under_budget.sequence import Evaluated, evaluate, steps_of
from tensortide.plans.under_budget.tables import tables
from tensortide.recorder.partition import Partition, Partitioner
from tensortide.replays import replay
from tensortide.search_limit import SearchLimit
from tensortide.studies.planning.partitioner import NAME, SETTINGS, sequences
from tensortide.studies.planning.planning import fastest
from tensortide.studies.planning.problem import Problem
from tensortide.studies.remat.comparison import compare
from tensortide.studies.remat.subject import Subject
from tensortide.timing import device, estimate
from tests.examples.tiny import LARGE, TINY
from tests.marks import some_slow
from tests.recorder.test_fake_mode import REPEATING
from tests.replays.remat.steps import random_recording

EFFORT = 0.05


def training(model: nn.Module, data: torch.Tensor, labels: torch.Tensor) -> Callable[[], torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(data).flatten(0, -2), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def perceptron() -> Callable[[], torch.Tensor]:
    parts = (part for _ in range(2) for part in (nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1)))
    return training(nn.Sequential(*parts, nn.Linear(64, 10)), torch.randn(256, 64), torch.zeros(256, dtype=torch.long))


def convolutions() -> Callable[[], torch.Tensor]:
    kinds = ((nn.Conv2d(n, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)) for n in (3, 8, 8, 8))
    ends = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    model = nn.Sequential(*(part for parts in kinds for part in parts), *ends)
    return training(model, torch.randn(16, 3, 16, 16), torch.zeros(16, dtype=torch.long))


def transformer() -> Callable[[], torch.Tensor]:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Linear(32, 10))
    return training(model, torch.randn(8, 16, 32), torch.zeros(128, dtype=torch.long))


STEPS = {"perceptron": perceptron, "convolutions": convolutions, "transformer": transformer}


@cache
def graph_of(name: str) -> Graph:
    return capture(STEPS[name]())


def durations_of(graph: Graph) -> tuple[int, ...]:
    return tuple(estimate(graph, device("A100-SXM-80GB")).ns)


@cache
def played_of(name: str) -> list[tuple[str, Evaluated, Plan]]:
    return played(graph_of(name))


def played(graph: Graph, **how: Any) -> list[tuple[str, Evaluated, Plan]]:
    """The plans of the partitioner as replayed."""
    problem = instance(graph, graph.index.main_device, durations_of(graph), **how)
    t, found = tables(problem), []
    for made in sequences(graph, problem, t):
        assert made.sequence is not None
        lane = Lane(graph.index.main_device, steps_of(t, map(Compute, made.sequence)))
        result = evaluate(problem, t, made.sequence, free=False)
        found.append((made.name, result, Plan(graph.index.digest, (lane,))))
    return found


@pytest.mark.parametrize("name", some_slow(STEPS, ["convolutions", "transformer"]))
def test_its_plans_are_legal_and_their_peak_is_that_of_the_replay(name: str) -> None:
    graph, rivals = graph_of(name), played_of(name)
    assert len(rivals) >= 3
    assert any(len(found.sequence) > len(graph) for _, found, _ in rivals)
    for _, found, made in rivals:
        validate(made, graph)
        assert replay(graph, made).peak_bytes == found.peak_bytes


@pytest.mark.parametrize("name", some_slow(["perceptron", "convolutions"], ["convolutions"]))
def test_a_plan_is_never_slower_within_the_same_memory(name: str) -> None:
    graph = graph_of(name)
    assert_never_slower(graph, durations_of(graph), EFFORT, most=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_a_plan_is_never_slower_within_the_memory_of_any_rival(name: str) -> None:
    graph = graph_of(name)
    assert_never_slower(graph, durations_of(graph), EFFORT)


def assert_never_slower(graph: Graph, durations_ns: tuple[int, ...], effort: float, most: int = len(SETTINGS)) -> None:
    """Plan within the peak of each rival, of which all plans know. Raises AssertionError if ours is slower, or does not
    name the rival."""
    asked = 0
    step, main = recorded(graph, durations_ns), graph.index.main_device
    whole = Problem(recording=step, device=main, budget_bytes=0, effort=effort)
    for rival in whole.partitions[:most]:
        assert rival.sequence is not None
        found = evaluate(whole.instance, whole.tables, rival.sequence, free=False)
        ours = fastest(whole.under(found.peak_bytes, began=time.monotonic()))
        assert ours.step_ns is not None
        assert ours.step_ns <= found.time_ns
        if not ours.proved:  # else no rival need be asked
            asked += 1
            assert Rival(rival.name, "partitioner", found.time_ns, found.peak_bytes) in ours.rivals
    assert asked


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), [("resnet50", {"batch": 32}), ("gpt2", {"batch": 8})])
def test_a_plan_of_a_large_step_is_never_slower(name: str, settings: dict[str, Any]) -> None:
    graph = capture(name, hyperparameters=settings)
    assert_never_slower(graph, durations_of(graph), EFFORT, most=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TINY if name not in LARGE | REPEATING])
def test_every_workload_has_a_joint_graph_whose_plan_is_legal(name: str) -> None:
    graph = unrolled(capture(name, hyperparameters=TINY[name]))
    problem = instance(graph, graph.index.main_device, [1] * len(graph))
    t = tables(problem)
    (made,) = sequences(graph, problem, t, (0.2,))
    assert made.sequence is not None, made.reason
    evaluate(problem, t, made.sequence, free=False)


def test_without_time_no_partition_is_looked_for() -> None:
    graph = graph_of("perceptron")
    step = recorded(graph, durations_of(graph))
    problem = Problem(recording=step, device="cpu", budget_bytes=1)
    assert len(problem.under(1, limit=SearchLimit(seconds=60.0)).partitions) > 1
    assert problem.under(1, limit=SearchLimit(seconds=0.0)).partitions == []
    one = SearchLimit(work=2_000 * len(graph))  # a quarter of it is less than a setting takes
    assert len(problem.under(1, limit=one).partitions) == 1


def test_what_draws_random_numbers_stays_where_it_may_run_only_once() -> None:
    graph = graph_of("perceptron")
    once = {number for number, view in enumerate(graph) if "bernoulli" in view.name}
    assert once
    every = played_of("perceptron"), played(graph, keep_random=True)
    free, kept = ([found for _, found, _ in rivals] for rivals in every)
    assert any(list(found.sequence).count(op) > 1 for found in free for op in once)
    assert all(list(found.sequence).count(op) == 1 for found in kept for op in once)


def test_a_step_of_a_log_says_that_there_is_no_joint_graph() -> None:
    recording = random_recording(random.Random(1), 40)
    problem = instance(recording.graph, recording.graph.index.main_device, recording.durations_ns)
    (only,) = sequences(recording.graph, problem, tables(problem))
    assert only.sequence is None
    assert only.reason == "the step was not captured from PyTorch"


def test_a_step_whose_sizes_depend_on_values_has_a_partition() -> None:
    model, data = nn.Linear(16, 16), torch.randn(64, 16)

    def step() -> torch.Tensor:
        rows = model(data).relu()
        loss: torch.Tensor = model(rows[rows.sum(1) > 0]).square().mean()
        loss.backward()
        return loss

    graph = capture(step, real=True)
    assert played(graph)


def test_it_stands_among_the_contenders() -> None:
    graph = graph_of("perceptron")
    subject = Subject("perceptron", recorded(graph, durations_of(graph)))
    peak = replay(graph, played_of("perceptron")[0][2]).peak_bytes
    found = compare(subject, [(peak, 0.5)], (), optimum_time_s=0.0)
    (rival,) = [strategy for strategy in found.strategies if strategy.name == NAME]
    assert rival.kind == "static"
    assert rival.entries[0].verdict == "ok"
    assert rival.entries[0].point is not None
    assert rival.entries[0].point.detail.startswith(NAME)


def test_a_listener_that_has_had_enough_ends_the_partitioner_within_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had found is kept."""
    began: list[float] = []

    def slow(partitioner: Partitioner, setting: float) -> Partition:
        began.append(time.monotonic())
        if setting == SETTINGS[0]:
            return Partition(setting, {}, {})
        for _ in range(100):
            time.sleep(0.1)
        raise AssertionError("nobody ended it")

    def watch(best: int | None, bound: int) -> bool:
        return len(began) < 2

    monkeypatch.setattr(Partitioner, "partition", slow)
    graph = graph_of("perceptron")
    problem = Problem(recording=recorded(graph, durations_of(graph)), device="cpu", budget_bytes=1, watch=watch)
    found = problem.partitions
    assert time.monotonic() - began[1] < 5
    assert [each.name for each in found] == [f"{NAME} at {SETTINGS[0]:g}"]
