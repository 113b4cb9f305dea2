"""Placed Plans that run on several processes: losses bit for bit those of one, and the bytes of the Plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.spawn import spawn

from tensortide.errors import PlanError, RunError
from tensortide.parallelism.shards import Shard
from tensortide.plans import Compute, Lane, Plan, Receive, Send
from tensortide.run.placed.lane import LaneProgram
from tensortide.run.placed.measured import measured_timeline, shares
from tensortide.timelines import diff
from tests.run.placed.workloads import STEPS, accumulated, captured, first, placement, residual, run_rank


def run_ranks(ranks: int, folder: Path, micro_batches: int) -> list[dict[str, Any]]:
    spawn(run_rank, (ranks, str(folder), micro_batches), nprocs=ranks)
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(ranks)]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 1), (4, 1), (2, 3)])
def test_losses_and_bytes_are_those_of_one_process_and_of_the_plan(
    ranks: int, micro_batches: int, tmp_path: Path
) -> None:
    found = placement(captured(residual()), ranks, micro_batches)
    alone = accumulated(micro_batches)
    expected = [[first(loss) for loss in alone()] for _ in range(STEPS)]
    assert len({loss for losses in expected for loss in losses}) >= STEPS
    seen = run_ranks(ranks, tmp_path, micro_batches)
    assert [[loss for each in seen for loss in each["losses"][turn]] for turn in range(STEPS)] == expected
    sent = {f"gpu{rank} > gpu{lane}": nbytes for rank, each in enumerate(seen) for lane, nbytes in each["sent"].items()}
    assert sent == {name: nbytes for name, nbytes in found.link_bytes.items() if nbytes}
    assert sum(each["free"] for each in seen) == found.simulated.free_copies


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_one_lane_is_the_step_itself(micro_batches: int) -> None:
    step, same = residual(), accumulated(micro_batches)
    found = placement(captured(step), 1, micro_batches)
    program = LaneProgram(step, found.ready.graph, found.plan, 0)
    for _ in range(STEPS):
        assert [first(loss) for loss in program().values()] == [first(loss) for loss in same()]
    assert len(program.spans) == len(found.ready.graph)


SHARDS = (Shard("1.up", "output", 2), Shard("2", "batch", 2), Shard("3.down", "reduction", 3), Shard("6", "output", 3))


def test_one_lane_of_shards_is_the_step_up_to_the_order_of_sums() -> None:
    step, same = residual(), residual()
    found = placement(captured(step), 1, shards=SHARDS)
    program = LaneProgram(step, found.ready.graph, found.plan, 0, found.ready.sharded.pieces)
    losses = [[float(loss) for loss in program().values()] for _ in range(STEPS)]
    assert losses == [[pytest.approx(float(same()), rel=1e-5)] for _ in range(STEPS)]
    assert losses[0] != losses[-1]  # parts of parameters are updated


@pytest.mark.slow
def test_shards_on_two_ranks_send_the_bytes_of_the_plan(tmp_path: Path) -> None:
    found = placement(captured(residual()), 2, shards=SHARDS)
    alone = residual()
    expected = [pytest.approx(float(alone()), rel=1e-5) for _ in range(STEPS)]
    spawn(run_rank, (2, str(tmp_path), 1, SHARDS), nprocs=2)
    seen = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    losses = [float.fromhex(loss) for turn in range(STEPS) for each in seen for loss in each["losses"][turn]]
    assert losses == expected
    sent = {f"gpu{rank} > gpu{lane}": nbytes for rank, each in enumerate(seen) for lane, nbytes in each["sent"].items()}
    assert sent == found.link_bytes


def test_a_run_is_a_timeline_beside_the_predicted_one() -> None:
    step = residual()
    found = placement(captured(step), 1)
    program = LaneProgram(step, found.ready.graph, found.plan, 0)
    program()
    measured = measured_timeline(found.ready.graph, found.plan, [program.spans])
    assert measured.run_op.tolist() == found.timeline.run_op.tolist()
    assert measured.makespan_ns > 0
    assert len(diff(found.timeline, measured).a_run) == len(found.ready.graph)
    ((predicted, ran),) = shares(found.timeline, measured, 1)
    assert predicted == pytest.approx(1)
    assert 0 < ran <= 1
    with pytest.raises(PlanError, match="other lanes"):
        measured_timeline(found.ready.graph, found.plan, [])


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
