"""Placed steps as they are simulated: the checks that hold for every placement."""

from __future__ import annotations

import itertools
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tensortide.graph import Graph
from tensortide.placements.graphs import Grouping, units_of
from tensortide.placements.graphs.placed_plan import plan_of
from tensortide.placements.graphs.placed_timeline import PlacedTimeline
from tensortide.placements.graphs.problem import GraphProblem
from tensortide.placements.graphs.schedules import strict_order
from tensortide.placements.graphs.simulate import Simulated, Simulator
from tensortide.placements.graphs.tables import Step, step_of
from tensortide.plans import Compute, Send
from tensortide.plans.lanes import check_lanes
from tensortide.timelines import timeline
from tensortide.timing import estimate
from tensortide.timing.clusters import Cluster
from tests.graphs import graphs
from tests.marks import some_slow
from tests.placements.graphs.steps import GPU, assert_legal, captured, cluster, clusters

MODELS = ["gpt2", "resnet18_cifar"]
pytestmark = pytest.mark.property


def placed_step(graph: Graph, machine: Cluster, *, rule: str = "last_use", staging: bool = False) -> Step:
    units = units_of(graph)
    times = [estimate(graph, device.row).ns for device in machine.devices]
    assert rule in ("last_use", "eager")
    return step_of(units, machine, times, rule="eager" if rule == "eager" else "last_use", staging=staging)


def spread(step: Step, stride: int = 1) -> list[int]:
    """A placement in stretches that go round the devices."""
    count = len(step.units)
    return [unit * step.devices * stride // count % step.devices for unit in range(count)]


@pytest.mark.parametrize("rule", ["last_use", "eager"])
@pytest.mark.parametrize("name", MODELS)
def test_one_device_is_the_trivial_timeline(name: str, rule: str) -> None:
    graph = captured(name)
    step = placed_step(graph, cluster(1), rule=rule)
    run = Simulator(step).run([0] * len(step.units))
    times = step.ns[:, 0].tolist()
    trivial = timeline(graph, lifetimes=step.rule, durations_ns=times)
    assert run.start_ns.tolist() == trivial.run_start_ns.tolist()
    assert run.makespan_ns == trivial.makespan_ns
    assert run.peak_bytes == (trivial.peak_bytes,)
    events = PlacedTimeline(run)
    assert events.run_op.tolist() == trivial.run_op.tolist()
    assert events.resident.tolist() == trivial.resident.tolist()


@pytest.mark.parametrize(
    ("name", "devices"),
    some_slow(itertools.product(MODELS, (1, 2, 4)), [("resnet18_cifar", 1), ("gpt2", 2), ("resnet18_cifar", 4)]),
)
def test_models_run_as_they_must_and_their_plans_are_legal(name: str, devices: int) -> None:
    step = placed_step(captured(name), cluster(devices))
    for stride in (1, 3):
        run = Simulator(step).run(spread(step, stride))
        assert_run(run)


@given(graphs(), clusters(), st.data())
def test_any_placement_of_any_step_runs_as_it_must(graph: Graph, machine: Cluster, data: st.DataObject) -> None:
    times = [
        data.draw(st.lists(st.integers(1, 900), min_size=len(graph), max_size=len(graph))) for _ in machine.devices
    ]
    assume(len(graph) > 0)
    units = units_of(graph, Grouping("closure"))
    rule = data.draw(st.sampled_from(("last_use", "eager")))
    step = step_of(
        units, machine, times, rule="eager" if rule == "eager" else "last_use", staging=data.draw(st.booleans())
    )
    place = [data.draw(st.integers(0, len(machine) - 1)) for _ in range(len(units))]
    assert_run(Simulator(step).run(place))


def assert_run(run: Simulated) -> None:
    """The run is legal, its bytes add up, the bounds hold, and its Plan gives the same run again."""
    step = run.step
    assert_legal(run)
    levels = PlacedTimeline(run).levels
    assert run.peak_bytes == tuple(int(max(0, level.level.max(initial=0))) for level in levels)
    bounds = GraphProblem(step).bounds
    assert run.makespan_ns / 1e6 >= bounds.best_ms * (1 - 1e-9)
    assert bounds.work_ms >= int(step.ns.min(axis=1).sum()) / step.devices / 1e6 * (1 - 1e-9)
    plan = plan_of(run)
    check_lanes(plan, step.graph)
    sequences = [[each.op for each in lane.steps if isinstance(each, Compute)] for lane in plan.lanes]
    again = Simulator(step).run(run.place, strict_order(step, sequences))
    assert again.makespan_ns == run.makespan_ns
    assert again.peak_bytes == run.peak_bytes
    sent = sum(isinstance(each, Send) for lane in plan.lanes for each in lane.steps)
    direct = len({(value, target) for value, target in zip(run.sent.tolist(), run.send_target.tolist(), strict=True)})
    assert sent == direct + run.free_copies


@pytest.mark.parametrize("name", MODELS)
def test_bytes_of_a_link_are_those_of_the_sends_in_the_plan(name: str) -> None:
    step = placed_step(captured(name), cluster(4))
    run = Simulator(step).run(spread(step))
    state = {(value.storage, value.writer): value.nbytes for value in step.values.values}
    expected = dict.fromkeys(range(len(step.cluster.wires)), 0)
    lanes = {(lane.source, lane.target): number for number, lane in enumerate(step.cluster.wires)}
    for source, lane in enumerate(plan_of(run).lanes):
        latest: dict[int, int] = {}
        for each in lane.steps:
            if isinstance(each, Compute):
                latest.update(dict.fromkeys(step.graph.index.writes[each.op], each.op))
            elif isinstance(each, Send):
                expected[lanes[source, each.lane]] += state[each.storage, latest.get(each.storage, -1)]
    assert run.moved_bytes == tuple(expected.values())
    assert sum(run.moved_bytes) > 0


@given(graphs(), st.data())
def test_equal_devices_may_be_exchanged(graph: Graph, data: st.DataObject) -> None:
    units = units_of(graph, Grouping("closure"))
    times = data.draw(st.lists(st.integers(1, 900), min_size=len(graph), max_size=len(graph)))
    step = step_of(units, cluster(3), [times] * 3)
    place = [data.draw(st.integers(0, 2)) for _ in range(len(units))]
    names = data.draw(st.permutations(range(3)))
    one, other = Simulator(step).run(place), Simulator(step).run([names[device] for device in place])
    assert one.makespan_ns == other.makespan_ns
    assert one.start_ns.tolist() == other.start_ns.tolist()
    assert one.peak_bytes == tuple(other.peak_bytes[names[device]] for device in range(3))


@given(graphs(), clusters(), st.data())
def test_twice_the_bandwidth_never_takes_more_time_for_transfers(
    graph: Graph, machine: Cluster, data: st.DataObject
) -> None:
    units = units_of(graph, Grouping("closure"))
    place = [data.draw(st.integers(0, len(machine) - 1)) for _ in range(len(units))]
    totals = []
    quick = [
        msgspec.structs.replace(each, link=replace(each.link, bytes_per_s=2 * each.link.bytes_per_s))
        for each in machine.channels
    ]
    for each in (machine, msgspec.structs.replace(machine, channels=tuple(quick))):
        run = Simulator(step_of(units, each, [[100] * len(graph)] * len(each))).run(place)
        totals.append(int((run.send_end_ns - run.send_start_ns).sum()))
    assert totals[1] <= totals[0]


def test_devices_of_different_types_have_times_of_their_own() -> None:
    graph = captured("resnet18_cifar")
    units = units_of(graph)
    slow, quick = [10] * len(graph), [1] * len(graph)
    step = step_of(units, cluster(2), [slow, quick])
    assert Simulator(step).run([0] * len(units)).makespan_ns == 10 * len(graph)
    assert Simulator(step).run([1] * len(units)).makespan_ns == len(graph)


def test_moving_a_unit_rebuilds_nothing() -> None:
    step = placed_step(captured("gpt2"), cluster(2))
    simulator = Simulator(step)
    before = [np.copy(array) for array in step.tables if isinstance(array, np.ndarray)]
    place = [0] * len(step.units)
    first = simulator.run(place)
    place[3] = 1
    assert simulator.run(place).makespan_ns != first.makespan_ns
    place[3] = 0
    assert simulator.run(place).start_ns.tolist() == first.start_ns.tolist()
    arrays = [array for array in step.tables if isinstance(array, np.ndarray)]
    assert all((one == other).all() for one, other in zip(before, arrays, strict=True))
    assert estimate(step.graph, GPU).ns
