"""The predicted step: host and device clocks, captured graphs, synchronizing ops, intervals, and differences."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensortide
from tensortide.graph import Graph, GraphBuilder, Role
from tensortide.graph.model import Tensor
from tensortide.timelines import diff, timeline
from tensortide.timelines.events import Kind
from tensortide.timelines.step import CPU_OVERHEAD, ISSUE_NS, HostModel, OpTimes, step_timeline, walk, walk_end
from tensortide.timing import Device, Durations, device, estimate, identity
from tensortide.timing.estimates import Provenance
from tensortide.timing.forecast import Forecast, ForecastRow
from tests.graphs import Builder

H100 = device("H100-SXM-80GB")
CPU = Device(name="some cpu", kind="cpu", fp32_tflops=1.0, memory_gbytes_per_s=40.0)

times = st.integers(0, 50)
clocks = st.lists(st.tuples(times, times, st.booleans()), min_size=1, max_size=40).map(
    lambda rows: OpTimes([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows], [0] * len(rows))
)
EAGER = HostModel(issue_ns=1)


def played(clocks: OpTimes) -> int:
    """The end of the step, nanosecond by nanosecond: the host works off its list, the device what has been issued."""
    now = issued = done = 0
    host_left, device_left = clocks.host[0], clocks.device[0]
    count = len(clocks.host)
    while issued < count or done < count:
        while True:  # whatever takes no time happens at once
            if issued < count and not host_left and not (issued and clocks.waits[issued - 1] and done < issued):
                issued += 1
                host_left = clocks.host[issued] if issued < count else 0
            elif done < issued and not device_left:
                done += 1
                device_left = clocks.device[done] if done < count else 0
            else:
                break
        if issued == done == count:
            break
        blocked = issued and clocks.waits[issued - 1] and done < issued
        if issued < count and not blocked:
            host_left -= 1
        if done < issued:
            device_left -= 1
        now += 1
    return now


@given(clocks)
def test_the_step_ends_when_host_and_device_played_by_the_nanosecond_end(clocks: OpTimes) -> None:
    assert walk_end(clocks, EAGER) == played(clocks)


@given(clocks)
def test_a_step_takes_as_long_as_its_ops_and_its_host_and_no_longer_than_both(clocks: OpTimes) -> None:
    end = walk_end(clocks, EAGER)
    assert max(sum(clocks.host), sum(clocks.device)) <= end <= sum(clocks.host) + sum(clocks.device)
    _, started, ended = walk(clocks, EAGER)
    assert all(a <= b for a, b in zip(ended, started[1:], strict=False))


def chain(count: int, on: str = "cuda:0", tags: Sequence[tuple[str, ...]] = ()) -> Graph:
    builder = Builder()
    tensor = builder.storage(4096, Role.INPUT, device=on)
    for index in range(count):
        result = builder.storage(4096, birth=index, device=on)
        builder.op([tensor], [result], name="aten.relu.default", tags=tags[index] if tags else ())
        tensor = result
    return builder.graph()


def predicted(graph: Graph, ns: int, provenance: Provenance = Provenance.INTERPOLATED) -> Durations:
    row = ForecastRow("pointwise", 0.1, 0.2, provenance, "model", "memory")
    count = len(graph)
    return Durations((ns,) * count, "test", "estimated", 0, identity(graph), forecast=Forecast((row,), (0,) * count))


def test_small_ops_take_the_time_of_the_host_and_large_ones_that_of_the_device() -> None:
    graph = chain(100)
    small, large = (step_timeline(graph, predicted(graph, ns), H100) for ns in (1000, 10**6))
    assert small.makespan_ns == 100 * ISSUE_NS + 1000
    assert large.makespan_ns == ISSUE_NS + 100 * 10**6
    assert small.estimate.provenance is Provenance.EXTRAPOLATED  # the host is not that of this device
    assert large.estimate.provenance is Provenance.INTERPOLATED


def test_a_captured_graph_has_one_launch() -> None:
    graph = chain(100)
    line = step_timeline(graph, predicted(graph, 1000), H100, "graph")
    assert line.makespan_ns == ISSUE_NS + 100 * 1000


def test_an_op_whose_value_the_host_reads_ends_a_captured_graph_and_what_the_host_is_ahead() -> None:
    graph = chain(10, tags=[()] * 4 + [("data_dependent",)] + [()] * 5)
    line = step_timeline(graph, predicted(graph, 10**6), H100, "graph")
    assert line.syncs == 1
    assert line.makespan_ns == 2 * ISSUE_NS + 10 * 10**6


@pytest.mark.parametrize(("dtype", "syncs"), [("int64", 0), ("bool", 1), ("uint8", 1)])
def test_the_host_waits_for_a_mask_and_not_for_integer_indices(dtype: str, syncs: int) -> None:
    builder = Builder()
    data = builder.storage(4096, Role.INPUT, device="cuda:0")
    index = builder.storage(64, Role.INPUT, device="cuda:0")
    builder.tensors[index] = Tensor(builder.tensors[index].storage, dtype, (8,), (1,))
    chosen = builder.storage(64, birth=0, device="cuda:0")
    builder.op([data, index], [chosen], name="aten.index.Tensor", tags=("dynamic_shape",))
    line = step_timeline(builder.graph(), predicted(builder.graph(), 1000), H100)
    assert line.syncs == syncs


def test_on_a_cpu_the_ops_follow_each_other_with_work_between_them() -> None:
    graph = chain(10, "cpu")
    line = step_timeline(graph, predicted(graph, 10**6), CPU)
    assert line.estimate.time_ns == pytest.approx(10 * 10**6 * (1 + CPU_OVERHEAD))
    assert line.lanes == ("cpu",)


def test_the_interval_of_a_step_is_that_of_its_ops_or_of_its_host() -> None:
    graph = chain(1000)
    large, small = (step_timeline(graph, predicted(graph, ns), H100).estimate for ns in (10**6, 1000))
    ops = estimate_of(predicted(graph, 10**6))
    assert large.high_ns / large.time_ns == pytest.approx(ops, rel=0.01)
    assert small.high_ns / small.time_ns == pytest.approx(1.5, rel=0.01)
    assert small.low_ns / small.time_ns == pytest.approx(1 / 1.5, rel=0.01)


def estimate_of(durations: Durations) -> float:
    from tensortide.timing.totals import total

    found = total(durations, range(len(durations)))
    return found.high_ns / found.time_ns


def test_predicted_and_measured_are_two_timelines_with_a_difference() -> None:
    graph = chain(10)
    line = step_timeline(graph, predicted(graph, 1000), H100)
    measured = timeline(graph, durations_ns=[1500] * 10)
    found = diff(line, measured)
    assert found.duration_ns.tolist() == [500] * 10
    assert found.resident_bytes.tolist() == [0] * 10
    assert found.makespan_ns == 15_000 - line.makespan_ns
    assert (line.events.kind == Kind.ISSUE).sum() == 10


def test_a_captured_step_runs_its_views_on_the_host_alone() -> None:
    graph = tensortide.capture("mlp", machine=H100.name)
    durations = estimate(graph, H100)
    line = step_timeline(graph, durations, H100)
    views = [op.index for op in graph if op.is_view]
    assert views
    assert not line.run_ns[views].any()
    assert line.busy_ns == sum(ns for i, ns in enumerate(durations.ns) if i not in set(views))


def test_predictions_take_time_in_proportion_to_the_ops() -> None:
    def cpu_s(count: int) -> float:
        builder = Builder()
        for index in range(count):  # a tenth of them distinct, as in no real step
            given = builder.storage(4096 + index % (count // 10), Role.INPUT, device="cuda:0")
            builder.op(
                [given],
                [builder.storage(4096 + index % (count // 10), birth=index, device="cuda:0")],
                name="aten.relu.default",
            )
        graph = builder.graph()
        begun = time.process_time()
        step_timeline(graph, estimate(graph, H100), H100)
        return time.process_time() - begun

    cpu_s(10)  # imports, and models of the package
    few, many = (min(cpu_s(count) for _ in range(tries)) for count, tries in ((1_000, 3), (8_000, 2)))
    assert many < 3 * 8 * few  # 64 times where each op is compared with all others


def test_a_step_of_jax_is_issued_as_one_executable() -> None:
    def chain(op: str) -> Graph:
        b = GraphBuilder("chain")
        x = b.input("x", (1000,))
        for _ in range(50):
            x = b.op(op, x, out=x)
        b.output(x)
        return b.build()

    jax, torch = (step_timeline(graph, estimate(graph, H100), H100) for graph in (chain("jax.neg"), chain("aten.neg")))
    assert torch.end_ns() > 50 * ISSUE_NS
    ops = sum(estimate(chain("jax.neg"), H100).ns)
    assert jax.end_ns() <= ops + 2 * ISSUE_NS
