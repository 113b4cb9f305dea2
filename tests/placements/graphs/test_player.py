"""Placed steps as tasks against the simulator that they had before: every time, byte and transfer of random steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tensortide.graph import Graph
from tensortide.placements.graphs import Grouping, units_of
from tensortide.placements.graphs.hosts import HostTimes
from tensortide.placements.graphs.micro_batches import micro_batched
from tensortide.placements.graphs.schedules import MicroBatchSchedule, Priority, ScheduleName, strict_order
from tensortide.placements.graphs.simulate import Simulated, Simulator
from tensortide.placements.graphs.tables import Step, step_of
from tensortide.placements.graphs.units import repeated
from tensortide.timing.clusters import Cluster
from tests.graphs import SIZES, Builder, graphs
from tests.oracles import placed_kernel
from tests.oracles.placed_kernel.records import Run
from tests.placements.graphs.steps import cluster, clusters, line, pipeline
from tests.placements.graphs.test_channels import steps as exchanging

_priorities: st.SearchStrategy[Priority] = st.sampled_from(("recorded", "critical_path"))
_names: st.SearchStrategy[ScheduleName] = st.sampled_from(("recorded", "gpipe", "1f1b"))
Drawn = tuple[Step, MicroBatchSchedule, list[int]]


def _hosts(draw: st.DrawFn, devices: int, ops: int) -> HostTimes | None:
    """Hosts that take any time for each op, or none."""
    if draw(st.booleans()):
        return None
    times = np.random.default_rng(draw(st.integers(0, 10**6)))
    columns = [tuple(map(tuple, times.integers(0, 99, (devices, ops)).tolist())) for _ in range(2)]
    waits = tuple(map(tuple, (times.random((devices, ops)) < 0.2).tolist()))
    launch = tuple(times.integers(0, 300, devices).tolist())
    return HostTimes(columns[0], columns[1], waits, launch, tuple(times.integers(-1, 2, ops).tolist()))


def _on(draw: st.DrawFn, graph: Graph, machine: Cluster) -> dict[str, object]:
    times = np.random.default_rng(draw(st.integers(0, 10**6)))
    longest = draw(st.sampled_from((3, 900)))  # many ends at one instant, or few
    return {
        "durations_ns": times.integers(0, longest, (len(machine), len(graph))).tolist(),
        "rule": draw(st.sampled_from(("last_use", "eager"))),
        "staging": draw(st.booleans()),
        "workspace": times.integers(0, 99, len(graph)).tolist() if draw(st.booleans()) else True,
        "hosts": _hosts(draw, len(machine), len(graph)),
    }


@st.composite
def plain(draw: st.DrawFn) -> Drawn:
    """Any graph on any cluster."""
    graph, machine = draw(graphs()), draw(clusters())
    assume(len(graph) > 0)
    step = step_of(units_of(graph, Grouping("closure")), machine, **_on(draw, graph, machine))  # type: ignore[arg-type]
    priority = draw(_priorities)
    return step, MicroBatchSchedule(priority=priority), _place(draw, step)


@st.composite
def overwritten(draw: st.DrawFn) -> Drawn:
    """Values that ops make, read together, and overwrite alone: a late reader is often beside one that overwrites."""
    builder, values = Builder(), list[int]()
    for op in range(draw(st.integers(4, 12))):
        kind = draw(st.sampled_from(("make", "read", "overwrite"))) if len(values) > 1 else "make"
        if kind == "make":
            values.append(builder.storage(draw(SIZES), birth=op))
            builder.op([], values[-1:])
        elif kind == "read":
            builder.op(draw(st.lists(st.sampled_from(values), min_size=2, max_size=3)))
        else:
            builder.op([draw(st.sampled_from(values))], mutated=(0,))
    graph, machine = builder.graph(), draw(clusters())
    step = step_of(units_of(graph, Grouping("closure")), machine, **_on(draw, graph, machine))  # type: ignore[arg-type]
    return step, MicroBatchSchedule(priority=draw(_priorities)), _place(draw, step)


@st.composite
def divided(draw: st.DrawFn) -> Drawn:
    """A pipeline of micro-batches under any schedule in which what is ready decides."""
    stages, count, devices = draw(st.integers(1, 5)), draw(st.integers(2, 5)), draw(st.integers(1, 4))
    graph = pipeline(stages, nbytes=draw(st.integers(1, 500)))
    several = micro_batched(graph, count)
    units = repeated(units_of(graph, Grouping("closure")), several)
    machine = draw(st.sampled_from((cluster(devices), line(devices))))
    step = step_of(units, machine, **_on(draw, several.graph, machine))  # type: ignore[arg-type]
    name = draw(_names)
    limit = None if name == "recorded" else draw(st.one_of(st.none(), st.integers(1, count)))
    priority = draw(_priorities)
    return step, MicroBatchSchedule(name, count, several.micro, priority, limit), _place(draw, step)


@st.composite
def beside(draw: st.DrawFn) -> Drawn:
    """Collectives beside compute, on channels that others share, with hosts or without."""
    step, place = draw(exchanging())
    hosts = _hosts(draw, step.devices, len(step.graph))
    times = step.ns.T.tolist()
    again = step_of(step.units, step.cluster, times, beside=step.beside, hosts=hosts, staging=draw(st.booleans()))
    priority = draw(_priorities)
    return again, MicroBatchSchedule(priority=priority), place


def _place(draw: st.DrawFn, step: Step) -> list[int]:
    return [draw(st.integers(0, step.devices - 1)) for _ in range(len(step.units))]


DRAWN = st.one_of(plain(), overwritten(), divided(), beside())


def assert_as_before(drawn: Drawn) -> None:
    """The player and the simulator before it agree, in the order of ranks and then strictly in the order found."""
    step, schedule, place = drawn
    simulator = Simulator(step, schedule)
    found = simulator.run(place)
    ordering, rules = simulator._ordering, simulator._rules
    limit = np.array([limit if (found.device == d).any() else 1 for d, limit in enumerate(rules.critical.limit)])
    _assert_same(found, placed_kernel.played(step, place, placed_kernel.order_of(ordering, ordering.critical, limit)))
    key = np.lexsort((np.arange(len(step.graph)), found.end_ns, found.start_ns))
    strictly = strict_order(step, [key.tolist()])
    if not step.tables.exchanges.ops.size and schedule.micro_batches == 1:
        run = placed_kernel.played(step, place, placed_kernel.strict(strictly))
        if run.totals[1] == len(step.graph):
            _assert_same(simulator.run(place, strictly), run)


def _assert_same(found: Simulated, run: Run) -> None:
    assert run.totals[1] == len(found.step.graph)
    count = int(run.totals[0])
    for name in ("start", "end", "issued", "issuing", "device"):
        own = getattr(found, name if name == "device" else f"{name}_ns")
        assert own.tolist() == getattr(run, name).tolist(), name
    for name, own in (("sent", found.sent), ("send_lane", found.send_lane), ("send_target", found.send_target)):
        assert own.tolist() == getattr(run, name)[:count].tolist(), name
    assert found.send_start_ns.tolist() == run.send_start[:count].tolist()
    assert found.send_end_ns.tolist() == run.send_end[:count].tolist()
    assert found.peak_bytes == tuple(run.peak.tolist())
    assert found.moved_bytes == tuple(run.moved.tolist())
    assert (found.makespan_ns, found.free_copies) == (run.totals[2], run.totals[3])
    buckets = run.bucket_turn[run.bucket[: len(found.bucket)]]
    assert found.bucket.tolist() == buckets.tolist()


@pytest.mark.property
@settings(max_examples=8)
@given(DRAWN)
def test_steps_run_as_before(drawn: Drawn) -> None:
    assert_as_before(drawn)


@pytest.mark.slow
@pytest.mark.property
@settings(max_examples=2000)
@given(DRAWN)
def test_many_steps_run_as_before(drawn: Drawn) -> None:
    assert_as_before(drawn)
