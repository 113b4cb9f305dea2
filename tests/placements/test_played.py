"""A run as Graph, Plan and Timelines: the same times and bytes, and a Plan whose devices find what they read."""

from __future__ import annotations

import numpy as np
import pytest

from tensortide.graph import Graph, validate
from tensortide.placements import Settings, Simulation, graph_of, plan_of, simulate, timelines_of
from tensortide.plans.model import Compute, Plan, Receive, Send
from tensortide.timelines.events import Kind
from tests.placements.cases import PUBLISHED, cluster, net

RUN = Settings(batch_size=128, batches=4, pipeline_batches=2, comp_penalization=0.9, comm_penalization=0.25)


@pytest.fixture(scope="module")
def found() -> Simulation:
    return simulate(net("resnet50"), cluster("malvik"), [i % 3 for i in range(74)], PUBLISHED, batches=3)


def test_timelines_have_the_times_of_the_run_on_a_lane_for_each_device_and_channel(found: Simulation) -> None:
    for number, line in enumerate(timelines_of(found)):
        assert line.device == line.lanes[number]
        assert len(line.lanes) == 3 + 2
        assert line.makespan_ns == round(found.makespan * 1e6)
        assert line.peak_bytes == found.peaks[number]
        events = line.events
        assert (events.kind == Kind.RUN).sum() == found.ops
        assert (events.kind == Kind.SEND).sum() == found.transfers
        assert (events.lane[events.kind == Kind.SEND] >= 3).all()
        for lane in range(5):
            own = events.lane == lane
            assert (np.diff(events.start_ns[own]) >= 0).all()
            assert (events.start_ns[own][1:] >= events.end_ns[own][:-1]).all()
        assert np.bincount(line.batch).tolist() == [len(events) // 3] * 3


def test_the_graph_is_a_step_with_the_bytes_of_the_net(found: Simulation) -> None:
    graph = graph_of(found)
    validate(graph)
    assert len(graph) == 2 * 74
    weights = sum(layer.params for layer in found.net.layers(128)) * 4
    roles = {"parameter": 0, "activation": 0}
    for storage in graph.storages:
        if storage.role in roles:
            roles[storage.role] += storage.nbytes
    assert roles == {"parameter": weights, "activation": sum(found.tables.nbytes[:-1])}


@pytest.mark.parametrize("batches", [1, 3])
def test_every_device_of_the_plan_finds_what_it_reads(batches: int) -> None:
    place = [(i * 7) % 3 for i in range(15)]
    run = simulate(net("alex_v2"), cluster("malvik"), place, RUN, batches=batches, pipeline_batches=batches)
    graph, plan = graph_of(run), plan_of(run)
    assert plan.graph == graph.index.digest
    ran = assert_plays(plan, graph)
    assert sorted(ran) == list(range(len(graph)))


def assert_plays(plan: Plan, graph: Graph) -> list[int]:
    """Play the lanes side by side: a receive waits for its send. Returns the ops in the order in which they ran."""
    made: dict[int, set[int]] = {}
    given = {i for i, storage in enumerate(graph.storages) if storage.birth is None}
    for i in given:
        made.setdefault([lane.device for lane in plan.lanes].index(graph.storages[i].device), set()).add(i)
    sent: set[tuple[int, int, int]] = set()
    at, ran = [0] * len(plan.lanes), list[int]()
    moved = True
    while moved:
        moved = False
        for number, lane in enumerate(plan.lanes):
            here = made.setdefault(number, set())
            while at[number] < len(lane.steps):
                step = lane.steps[at[number]]
                if isinstance(step, Receive):
                    if (step.storage, step.lane, number) not in sent:
                        break
                    here.add(step.storage)
                elif isinstance(step, Send):
                    assert step.storage in here
                    sent.add((step.storage, number, step.lane))
                else:
                    assert isinstance(step, Compute)
                    op = graph[step.op]
                    assert {tensor.storage for tensor in op.inputs} <= here
                    here |= {tensor.storage for tensor in op.outputs}
                    ran.append(step.op)
                at[number] += 1
                moved = True
    assert at == [len(lane.steps) for lane in plan.lanes]
    return ran
