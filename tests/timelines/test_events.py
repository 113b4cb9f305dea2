"""Timelines with times: events of what is recorded, replayed, simulated and measured, and the difference of two."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import GraphError
from tensortide.graph import Graph
from tensortide.plans import Compute, Evict, Lane, Plan, in_order
from tensortide.plans.remat.schedule import recorded
from tensortide.replays import replay
from tensortide.replays.remat import Simulator
from tensortide.timelines import Kind, Timeline, diff, timeline
from tensortide.timing import LINKS
from tests.graphs import Builder, graphs


def three_ops() -> Graph:
    """Op 0 makes 8 B, op 1 makes 4 B of it, op 2 reads both."""
    builder = Builder()
    first = builder.storage(8, birth=0, death=3)
    second = builder.storage(4, birth=1, death=3)
    builder.op((), (first,))
    builder.op((first,), (second,))
    builder.op((first, second), (builder.storage(2, birth=2, death=3),))
    return builder.graph()


RECOMPUTING = (Compute(0), Compute(1), Evict(0), Compute(0), Compute(2))


def recomputing(graph: Graph) -> Plan:
    """A plan that runs op 0 of ``three_ops`` twice."""
    return Plan(graph.index.digest, (Lane("cpu", RECOMPUTING),))


@given(st.data(), graphs(devices=("cpu", "cuda:0")))
def test_ops_follow_one_another_and_the_makespan_is_the_sum_of_durations(data: st.DataObject, graph: Graph) -> None:
    durations = data.draw(st.lists(st.integers(0, 10**6), min_size=len(graph), max_size=len(graph)))
    line = timeline(graph, durations_ns=durations)
    assert (line.run_start_ns + line.run_ns).tolist() == list(accumulate(durations))
    assert line.makespan_ns == line.figures.base_ns == sum(durations)
    assert line.run_op.tolist() == list(range(len(graph)))
    assert line.events.resident_bytes.tolist() == line.resident.tolist()
    assert line.timed == any(durations)


def test_a_replayed_plan_shows_recomputation_and_evictions_at_their_times() -> None:
    graph = three_ops()
    line = replay(graph, recomputing(graph), durations_ns=[10, 20, 30])
    events = line.events
    assert events.kind.tolist() == [Kind.RUN, Kind.RUN, Kind.EVICT, Kind.RECOMPUTE, Kind.RUN]
    assert events.index.tolist() == [0, 1, 0, 0, 2]
    assert events.start_ns.tolist() == [0, 10, 30, 30, 40]
    assert events.end_ns.tolist() == [10, 30, 30, 40, 70]
    assert events.resident_bytes.tolist() == [8, 12, 4, 12, 14]
    figures = line.figures
    assert (figures.evictions, figures.recomputations, figures.base_ns, figures.recompute_ns) == (1, 1, 60, 10)
    assert figures.slowdown_factor == pytest.approx(70 / 60)


@given(graphs())
def test_a_timeline_does_not_differ_from_itself(graph: Graph) -> None:
    line = timeline(graph, durations_ns=[3] * len(graph))
    found = diff(line, line)
    assert found.a_run.tolist() == found.b_run.tolist() == list(range(len(graph)))
    assert not found.duration_ns.any()
    assert not found.resident_bytes.any()
    assert (found.peak_bytes, found.makespan_ns, len(found.only_a), len(found.only_b)) == (0, 0, 0, 0)


def test_a_difference_matches_runs_of_one_op_in_their_order() -> None:
    graph = three_ops()
    plain = timeline(graph, durations_ns=[10, 20, 30])
    again = replay(graph, recomputing(graph), durations_ns=[11, 20, 33])
    found = diff(plain, again)
    assert found.a_run.tolist() == [0, 1, 2]
    assert found.b_run.tolist() == [0, 1, 3]
    assert found.only_b.tolist() == [2]
    assert found.duration_ns.tolist() == [1, 0, 3]
    assert found.makespan_ns == 15
    back = diff(again, plain)
    assert back.only_a.tolist() == [2]
    assert back.makespan_ns == -15


def test_timelines_of_different_steps_are_not_compared() -> None:
    other = Builder()
    other.op((), (other.storage(1, birth=0),))
    with pytest.raises(GraphError, match="different steps"):
        diff(timeline(three_ops()), timeline(other.graph()))


@given(graphs(max_ops=15), st.sampled_from(["lru", "dtr-eq"]), st.floats(0.5, 1))
def test_a_simulated_run_and_its_timeline_state_the_same_figures(graph: Graph, policy: str, share: float) -> None:
    simulator = Simulator(recorded(graph, [7] * len(graph)))
    run = simulator.run(policy, int(share * simulator.baseline_bytes), compiled=False)
    if run.status == "ok":
        line: Timeline = run.timeline()
        figures = line.figures
        assert (figures.peak_bytes, figures.recomputations) == (run.peak_bytes, run.recomputations)
        assert (figures.base_ns, figures.recompute_ns) == (run.model_ns, run.remat_ns)
        assert line.makespan_ns == run.model_ns + run.remat_ns


def test_each_link_has_a_lane_in_each_direction() -> None:
    graph = three_ops()
    line = replay(graph, in_order(graph, range(3), "cpu"), links=(LINKS["pcie5"], LINKS["nvme"]))
    assert line.lanes == ("cpu", "pcie5 out", "pcie5 in", "nvme out", "nvme in")
    assert not line.timed


def test_wrong_durations_are_refused() -> None:
    graph = three_ops()
    with pytest.raises(GraphError, match="2 durations for 3 ops"):
        timeline(graph, durations_ns=[1, 2])
    with pytest.raises(GraphError, match="2 durations for 3 ops"):
        replay(graph, recomputing(graph), durations_ns=[1, 2])
    with pytest.raises(GraphError, match="less than 0 ns"):
        timeline(graph, durations_ns=[1, -2, 3])
