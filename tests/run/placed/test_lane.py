"""Placed Plans that run on several processes: losses bit for bit those of one, and the bytes of the Plan."""

from __future__ import annotations

import pytest
import torch

from tensortide.errors import PlanError, RunError
from tensortide.parallelism.shards import Shard
from tensortide.placements.graphs import PlaceOptions, ready
from tensortide.plans import Compute, Lane, Plan, Receive, Send
from tensortide.run.placed.lane import LaneProgram
from tensortide.run.placed.measured import busy_shares, measured_timeline
from tensortide.timelines import diff
from tests.placements.graphs.steps import cluster
from tests.run.placed import divided_workloads
from tests.run.placed.workloads import (
    STEPS,
    Seen,
    accumulated,
    captured,
    first,
    placement,
    residual,
    run_lanes,
    spectral,
)


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 1), (4, 1), (2, 3)])
def test_losses_and_bytes_are_those_of_one_process_and_of_the_plan(ranks: int, micro_batches: int) -> None:
    found = placement(captured(residual()), ranks, micro_batches)
    alone = accumulated(micro_batches)
    expected = [[first(loss) for loss in alone()] for _ in range(STEPS)]
    assert len({loss for losses in expected for loss in losses}) >= STEPS
    seen = run_lanes(found)
    assert [[loss for each in seen for loss in each.losses[turn]] for turn in range(STEPS)] == expected
    assert sent_bytes(seen) == {name: nbytes for name, nbytes in found.link_bytes.items() if nbytes}
    assert sum(each.free_sends for each in seen) == found.simulated.free_copies


def sent_bytes(seen: list[Seen]) -> dict[str, int]:
    """Bytes of each link."""
    return {f"gpu{rank} > gpu{to}": count for rank, each in enumerate(seen) for to, count in each.sent_bytes.items()}


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_one_lane_is_the_step_itself(micro_batches: int) -> None:
    step, same = residual(), accumulated(micro_batches)
    found = placement(captured(step), 1, micro_batches)
    program = LaneProgram(step, found.ready.graph, found.plan, 0)
    for _ in range(STEPS):
        assert [first(loss) for loss in program().values()] == [first(loss) for loss in same()]
    assert len(program.spans) == len(found.ready.graph)


def test_a_step_that_reads_conjugated_views_is_refused() -> None:
    step = spectral()
    found = placement(captured(step), 1)
    with pytest.raises(RunError, match=r"aten\._conj\.default at .*workloads\.py:\d+ makes a view that is conjugated"):
        LaneProgram(step, found.ready.graph, found.plan, 0)


def test_a_tied_gradient_is_added_up_by_unit_over_micro_batches_in_the_documented_order() -> None:
    """The Graph of two devices, run as one lane; all micro-batches have the same inputs. In float64."""
    torch.manual_seed(0)
    step = divided_workloads.tied()
    step()
    graph = ready(captured(step), cluster(2), PlaceOptions(micro_batches=3)).graph
    program = LaneProgram(
        step, graph, Plan(graph.index.digest, (Lane("cpu", tuple(map(Compute, range(len(graph))))),)), 0
    )
    seen = [[first(loss) for loss in program().values()] for _ in range(STEPS)]
    assert seen == divided_workloads.tied_again(STEPS, 3, apart=True)
    together = divided_workloads.tied_again(STEPS, 3, apart=False)
    for losses, others in zip(seen, together, strict=True):
        assert [float.fromhex(x) for x in losses] == pytest.approx([float.fromhex(x) for x in others], rel=1e-13)


SHARDS = (Shard("1.up", "output", 2), Shard("2", "batch", 2), Shard("3.down", "reduction", 3), Shard("6", "output", 3))


def test_one_lane_of_shards_is_the_step_up_to_the_order_of_sums() -> None:
    step, same = residual(), residual()
    found = placement(captured(step), 1, shards=SHARDS)
    program = LaneProgram(step, found.ready.graph, found.plan, 0, found.ready.sharded.pieces)
    losses = [[float(loss) for loss in program().values()] for _ in range(STEPS)]
    assert losses == [[pytest.approx(float(same()), rel=1e-5)] for _ in range(STEPS)]
    assert losses[0] != losses[-1]  # parts of parameters are updated


@pytest.mark.slow
def test_shards_on_two_ranks_send_the_bytes_of_the_plan() -> None:
    found = placement(captured(residual()), 2, shards=SHARDS)
    alone = residual()
    expected = [pytest.approx(float(alone()), rel=1e-5) for _ in range(STEPS)]
    seen = run_lanes(found)
    losses = [float.fromhex(loss) for turn in range(STEPS) for each in seen for loss in each.losses[turn]]
    assert losses == expected
    assert sent_bytes(seen) == found.link_bytes


def test_a_run_is_a_timeline_beside_the_predicted_one() -> None:
    step = residual()
    found = placement(captured(step), 1, launch="none")
    program = LaneProgram(step, found.ready.graph, found.plan, 0)
    program()
    measured = measured_timeline(found.ready.graph, found.plan, [program.spans])
    assert measured.run_op.tolist() == found.timeline.run_op.tolist()
    assert measured.makespan_ns > 0
    assert len(diff(found.timeline, measured).a_run) == len(found.ready.graph)
    (ran,) = busy_shares(measured, 1)
    assert 0 < ran <= 1
    with pytest.raises(PlanError, match="other lanes"):
        measured_timeline(found.ready.graph, found.plan, [])


def test_shares_are_those_of_each_device() -> None:
    found = placement(captured(residual()), 2)
    line, busy = found.timeline, found.simulated.busy_ns
    expected = [ns / line.makespan_ns for ns in busy]
    assert busy[0] != busy[1]
    assert busy_shares(line, 2) == expected


def noisy() -> torch.Tensor:
    return torch.rand(3) + torch.rand(3)


def test_what_cannot_run_is_refused() -> None:
    step = residual()
    found = placement(captured(step), 1)
    with pytest.raises(PlanError, match="lane 1 of 1"):
        LaneProgram(step, found.ready.graph, found.plan, 1)
    with pytest.raises(RunError, match=r"the step uses .* which is not there outside of it"):
        LaneProgram(lambda: None, found.ready.graph, found.plan, 0)
    graph = captured(noisy)
    lanes = (Lane("a", (Compute(0), Send(0, 1))), Lane("b", (Receive(0, 0), Compute(1), Compute(2))))
    with pytest.raises(RunError, match="ops of lanes 0, 1 draw random numbers"):
        LaneProgram(noisy, graph, Plan(graph.index.digest, lanes), 0)
