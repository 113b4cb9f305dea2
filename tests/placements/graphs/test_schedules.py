"""Schedules of pipelines against their closed forms."""

from __future__ import annotations

import pytest

from tensortide.errors import PlanError
from tensortide.graph import Graph
from tensortide.placements.graphs import Grouping, MicroBatchSchedule, units_of
from tensortide.placements.graphs.micro_batches import micro_batched
from tensortide.placements.graphs.schedules import ScheduleName
from tensortide.placements.graphs.simulate import Simulated, Simulator
from tensortide.placements.graphs.tables import step_of
from tensortide.placements.graphs.units import repeated
from tests.placements.graphs.steps import FREE, assert_legal, cluster, pipeline, pipeline_ns

FORWARD, BACKWARD = 100_000, 200_000
ACTIVATION = 10_000


def run(
    name: ScheduleName, devices: int, micro_batches: int, chunks: int = 1, in_flight: int | None = None
) -> Simulated:
    """A pipeline of equal stages, ``chunks`` of them on each device in turn, with transfers of 1 ns."""
    graph: Graph = pipeline(devices * chunks, nbytes=ACTIVATION)
    several = micro_batched(graph, micro_batches)
    units = repeated(units_of(graph, Grouping("closure")), several)
    times = pipeline_ns(several.graph, FORWARD, BACKWARD)
    step = step_of(units, cluster(devices, FREE), [times] * devices)
    schedule = MicroBatchSchedule(name, micro_batches, several.micro, in_flight=in_flight)
    return Simulator(step, schedule).run([unit % devices for unit in range(devices * chunks)])


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("devices", "micro_batches"), [(1, 3), (2, 2), (3, 7), (4, 4)])
def test_equal_stages_take_the_time_of_the_closed_form(name: ScheduleName, devices: int, micro_batches: int) -> None:
    found = run(name, devices, micro_batches)
    expected = (micro_batches + devices - 1) * (FORWARD + BACKWARD)
    assert expected <= found.makespan_ns <= expected + 4 * (micro_batches + devices)
    assert_legal(found) if devices == 1 else None


@pytest.mark.parametrize(("devices", "micro_batches", "chunks"), [(2, 4, 2), (2, 2, 3), (4, 8, 2)])
def test_interleaving_divides_the_bubble_by_the_stages_of_a_device(
    devices: int, micro_batches: int, chunks: int
) -> None:
    found = run("interleaved", devices, micro_batches, chunks)
    one = FORWARD + BACKWARD
    expected = (micro_batches * chunks + devices - 1) * one
    assert expected <= found.makespan_ns <= expected + 8 * micro_batches * chunks * devices


def test_activations_in_flight_are_those_of_the_schedule() -> None:
    devices, micro_batches = 4, 8
    filled, steady = (run(name, devices, micro_batches).peak_bytes for name in ("gpipe", "1f1b"))
    saved = (micro_batches - devices) * ACTIVATION
    assert saved <= filled[0] - steady[0] <= saved + 2 * ACTIVATION  # and gradients that wait
    assert filled[-1] - steady[-1] >= (micro_batches - 2) * ACTIVATION


def test_a_limit_in_flight_saves_memory_and_takes_time() -> None:
    free, limited = run("gpipe", 2, 6), run("gpipe", 2, 6, in_flight=2)
    assert limited.peak_bytes[0] < free.peak_bytes[0]
    assert limited.makespan_ns >= free.makespan_ns
    assert run("gpipe", 2, 6, in_flight=1).makespan_ns >= 6 * 2 * (FORWARD + BACKWARD)


def test_the_longest_path_first_is_no_slower_where_one_op_is_long() -> None:
    graph = pipeline(3)
    units = units_of(graph, Grouping("closure"))
    step = step_of(units, cluster(1), [pipeline_ns(graph, 5, 7)])
    found = Simulator(step, MicroBatchSchedule(priority="critical_path")).run([0, 0, 0])
    assert_legal(found)
    assert found.makespan_ns == 3 * 12


def test_what_no_schedule_can_do_is_refused() -> None:
    with pytest.raises(PlanError, match=r"no schedule is called 'async'.* asynchronous pipelines are not supported"):
        MicroBatchSchedule("async")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="0 micro-batches in flight"):
        MicroBatchSchedule(in_flight=0)
    with pytest.raises(PlanError, match="'interleaved' has no limit"):
        MicroBatchSchedule("interleaved", in_flight=2)
    with pytest.raises(PlanError, match="not 'shortest'"):
        MicroBatchSchedule(priority="shortest")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"3/2 is no whole number .*: the stages are on 0, 1, 0, 1"):
        run("interleaved", 2, 3, 2)
