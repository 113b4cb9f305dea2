"""Hosts that issue the ops of placed steps: one device is the step that is predicted for it, several have one each."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch
from torch import nn

import tensortide
from tensortide.errors import RequestError
from tensortide.graph import Graph
from tensortide.placements.graphs import GraphProblem, Grouping, PlaceOptions, placed, ready
from tensortide.placements.graphs.hosts import HostTimes, Launch, no_hosts
from tensortide.placements.graphs.simulate import Simulator
from tensortide.placements.graphs.tables import step_of
from tensortide.placements.graphs.units import units_of
from tensortide.timelines.events import Kind
from tensortide.timelines.step import ISSUE_NS, step_timeline
from tensortide.timing import estimate
from tensortide.timing.catalogue import device
from tensortide.timing.clusters import joined
from tests.placements.graphs.steps import FREE, captured, cluster, pipeline, pipeline_ns

A100, CPU = device("A100-SXM-80GB"), device("Intel i7-5930K (6c)")


def reads_its_loss() -> Graph:
    """A step that waits for its loss before it updates."""
    model, x = nn.Linear(8, 8), torch.randn(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        loss = model(x).sum()
        loss.backward()
        if loss.item() < 1e9:
            optimizer.step()
        optimizer.zero_grad()

    return tensortide.capture(step)


@pytest.mark.parametrize("launch", ["eager", "graph"])
@pytest.mark.parametrize("row", [A100, CPU], ids=["gpu", "cpu"])
@pytest.mark.parametrize("name", ["mlp", "gpt2", "loss"])
def test_one_device_has_the_timeline_of_the_predicted_step(name: str, row: object, launch: Launch) -> None:
    graph = reads_its_loss() if name == "loss" else captured(name)
    made = ready(graph, joined([row], FREE), PlaceOptions(launch=launch))  # type: ignore[list-item]
    found = placed(made, [0] * len(made.problem.names))
    durations = estimate(made.graph, row)  # type: ignore[arg-type]
    line = step_timeline(made.graph, durations, row, launch)  # type: ignore[arg-type]
    runs = line.events.kind == Kind.RUN
    listed = np.array(made.times.hosts.listed if made.times.hosts is not None else ())
    assert found.step_ns <= line.end_ns()  # the line issues each entry of a list
    if (listed < 0).all():
        assert found.step_ns == line.end_ns()
        assert found.simulated.start_ns.tolist() == line.events.start_ns[runs].tolist()
        assert found.simulated.end_ns.tolist() == line.events.end_ns[runs].tolist()
        shown = found.timeline.events
        issues, issued = shown.kind == Kind.ISSUE, line.events.kind == Kind.ISSUE
        takes = line.events.end_ns[issued] > line.events.start_ns[issued]
        assert shown.end_ns[issues].tolist() == line.events.end_ns[issued][takes].tolist()
    if name == "loss":
        assert line.syncs == (row is A100)


def test_the_entries_of_an_op_over_a_list_are_issued_together() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), torch.randn(2, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    recorded = tensortide.capture(step)
    lists = sum("_foreach_" in op.name for op in recorded)
    views = sum(op.is_view for op in recorded)
    made = ready(recorded, cluster(2, FREE), PlaceOptions(Grouping(by="closure")))
    assert len(made.graph) == len(recorded) + 3 * lists
    for split in ([0] * 4, [0, 0, 1, 1]):
        place = np.zeros(len(made.problem.names), np.int64)
        weights = [i for i, storage in enumerate(made.graph.storages) if storage.role == "parameter"]
        for weight, at in zip(weights, split, strict=True):
            place[made.problem.step.units.home[weight]] = at
        run = made.problem.simulator.run(place)
        issued = [int(run.issuing_ns[run.device == d].sum()) for d in (0, 1)]
        alone = ISSUE_NS * (len(recorded) - views)
        assert sum(issued) >= alone
        entries = [op.index for op in made.graph if "_foreach_" in op.name]
        assert sum(run.issuing_ns[entries]) == lists * ISSUE_NS * (1 + max(split))


def played(place: list[int], hosts: HostTimes, graph: Graph, ns: list[int]) -> list[tuple[int, int]]:
    devices = len(hosts.launch)
    step = step_of(units_of(graph, Grouping("closure")), cluster(devices, FREE), [ns] * devices, hosts=hosts)
    run = Simulator(step).run(place)
    return list(zip(run.start_ns.tolist(), run.end_ns.tolist(), strict=True))


def test_every_device_has_a_host_that_issues_in_order_and_ahead() -> None:
    """Two stages: forward f0 f1, backward b1 b0, updates u0 u1; issuing takes 10, forward 3, backward 100."""
    graph = pipeline(2)
    ns = pipeline_ns(graph, 3, 100)
    hosts = no_hosts(2, 6)._replace(issue=((10,) * 6,) * 2)
    one = played([0, 0], hosts, graph, ns)
    assert one == [(10, 13), (20, 23), (30, 130), (130, 230), (230, 230), (230, 230)]
    two = played([0, 1], hosts, graph, ns)
    # f1 was issued at 10 by its own host and waits for f0, whose value takes 1 ns; so do b1 and b0.
    assert two == [(10, 13), (14, 17), (20, 120), (121, 221), (221, 221), (120, 120)]


def test_a_host_waits_for_the_result_that_it_reads() -> None:
    graph = pipeline(2)
    ns = pipeline_ns(graph, 3, 100)
    waits = ((False, False, True, False, False, False),)
    hosts = no_hosts(1, 6)._replace(issue=((10,) * 6,), waits=waits)
    assert played([0, 0], hosts, graph, ns)[2:] == [(30, 130), (140, 240), (240, 240), (240, 240)]
    again = hosts._replace(issue=((0,) * 6,), launch=(7,))
    assert played([0, 0], again, graph, ns)[2:] == [(13, 113), (120, 220), (220, 220), (220, 220)]


def test_a_cpu_works_between_its_ops_and_after_the_last() -> None:
    graph = pipeline(1)
    hosts = no_hosts(1, 3)._replace(after=((5, 6, 7),))
    step = step_of(units_of(graph, Grouping("closure")), cluster(1, FREE), [[10, 20, 30]], hosts=hosts)
    run = Simulator(step).run([0])
    assert run.start_ns.tolist() == [0, 15, 41]
    assert run.makespan_ns == 71 + 7


@pytest.mark.parametrize("launch", get_args(Launch))
def test_bounds_hold_and_a_step_of_small_ops_is_bound_by_its_hosts(launch: Launch) -> None:
    problem = ready(captured("mlp"), cluster(2), PlaceOptions(Grouping(by="closure"), launch=launch)).problem
    rows = np.random.default_rng(0).integers(0, 2, (60, len(problem.names)))
    rows[0] = 0
    scores = problem.evaluate(rows)[0]
    assert problem.bounds.best_ms <= scores.min() * (1 + 1e-12)
    issuing = problem.step.issue_ns.sum(axis=0)
    assert (problem.work.sum(axis=0) * 1e6 == pytest.approx(issuing)) == (launch == "eager")
    if launch == "eager":
        assert problem.bounds.work_ms == pytest.approx(issuing[0] / 2 / 1e6, rel=0.02)


def test_memory_is_taken_when_an_op_starts_and_not_when_it_is_chosen() -> None:
    made = ready(captured("gpt2"), cluster(2))
    half = np.arange(len(made.problem.names)) * 2 // len(made.problem.names)
    found = placed(made, half.tolist())
    assert [int(level.level.max()) for level in found.timeline.levels] == list(found.simulated.peak_bytes)


def test_plans_repeat_with_their_hosts_and_problems_of_other_hosts_differ() -> None:
    by_launch = {launch: ready(captured("mlp"), cluster(2), PlaceOptions(launch=launch)) for launch in get_args(Launch)}
    assert len({each.problem.digest for each in by_launch.values()}) == 3
    copied = GraphProblem(by_launch["eager"].problem.step)
    row = np.zeros((1, len(copied.names)), np.int64)
    assert copied.evaluate(row)[0] == by_launch["eager"].problem.evaluate(row)[0]
    with pytest.raises(RequestError, match="--launch takes eager, graph or none, not lazy"):
        PlaceOptions(launch="lazy")  # type: ignore[arg-type]
