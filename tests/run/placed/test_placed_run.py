"""Placed Plans run in processes from their workload: bits of one process, bytes of the Plan, and what is refused."""

from __future__ import annotations

import dataclasses
import multiprocessing
import sys
import time
from collections.abc import Callable

import pytest
import torch
from torch import nn

import tensortide
from tensortide.errors import RunError
from tensortide.graph import Role
from tensortide.parallelism.shards import Shard
from tensortide.placements.graphs import placed, ready
from tensortide.plans import Compute, Lane, Plan, Receive, Send
from tensortide.run.placed.lane import LaneProgram, Span
from tensortide.run.placed.measured import measured_timeline
from tensortide.run.placed.placed_run import (
    AloneRun,
    LaneRun,
    MeasuredPlacement,
    check_placed,
    run_placed,
)
from tensortide.run.placed.processes import PATIENCE_S, check_ranks, run_ranks
from tensortide.run.placed.seeded import SeededWorkload
from tensortide.timelines.events import Kind
from tests.graphs import Builder
from tests.placements.graphs.steps import cluster
from tests.run.placed import workloads
from tests.run.placed.workloads import captured, placement, residual, with_shards

TARGET = f"{workloads.__file__}:residual"


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 1), (4, 1), (2, 3)])
def test_losses_state_and_bytes_are_those_of_one_process_and_of_the_plan(ranks: int, micro_batches: int) -> None:
    found = placement(tensortide.capture(TARGET), ranks, micro_batches)
    ran = run_placed(SeededWorkload(TARGET, {}, 2), found)
    assert ran.verified
    assert len(ran.losses) == 2
    assert len({loss for step in ran.losses for loss in step}) == 2
    assert all(len(step) == micro_batches for step in ran.losses)
    named = {(f"gpu{source}", f"gpu{target}"): nbytes for (source, target), nbytes in ran.sent_bytes.items()}
    assert {f"{a} > {b}": nbytes for (a, b), nbytes in named.items()} == {
        k: v for k, v in found.link_bytes.items() if v
    }
    updated = sum(1 for _ in nn.Sequential(nn.Linear(6, 8), *(workloads.Block(8) for _ in range(4))).parameters())
    assert len(ran.state) > 2 * updated  # with momenta
    line = ran.timeline
    assert line.lanes[:ranks] == tuple(f"gpu{rank}" for rank in range(ranks))
    assert sorted(line.run_op.tolist()) == list(range(len(found.ready.graph)))
    assert int((line.events.kind == Kind.SEND).sum()) == sum(
        isinstance(step, Send) for lane in found.plan.lanes for step in lane.steps
    )


SHARDS = (Shard("1.up", "output", 2), Shard("2", "batch", 2), Shard("3.down", "reduction", 3), Shard("6", "output", 3))


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 1), (4, 1), (2, 3)])
def test_shards_run_to_the_losses_of_one_process_within_the_tolerance(ranks: int, micro_batches: int) -> None:
    found = placement(tensortide.capture(TARGET), ranks, micro_batches, SHARDS)
    made = found.ready
    ran = run_placed(SeededWorkload(TARGET, {}, 3), found)
    assert ran.verified
    assert len({loss for step in ran.alone.losses for loss in step}) == 3
    assert ran.furthest < ran.tolerance == 1e-5
    homes = {made.graph.storages[storage].name for _, storage in ran.state}
    assert {"1.up.weight.shard0", "1.up.weight.shard1"} < homes
    assert ran.state.keys() == ran.alone.state.keys()
    assert {made.graph.storages[storage].name for storage in ran.alone.apart} <= set(ran.changed)
    # not of momenta: the gradient of a bias before batch normalization is 0 but for rounding
    storages = made.graph.storages
    assert all(share < 1e-5 for s, share in ran.alone.apart.items() if storages[s].role is Role.PARAMETER)
    # what no shard has a part in is compared with the step that has none
    assert len(made.whole) < len(made.graph)
    unsharded = placement(tensortide.capture(TARGET), ranks, micro_batches).ready
    assert made.whole.index.digest == unsharded.graph.index.digest


@pytest.mark.slow
def test_an_update_of_shards_that_goes_wrong_is_seen() -> None:
    """Pieces that have swapped places are no longer the parts of the model's tensors."""
    found = placement(tensortide.capture(TARGET), 2, 1, SHARDS)
    pieces = dict(found.ready.sharded.pieces)
    one, other = (("1.up.weight.shard0", Role.PARAMETER), ("1.up.weight.shard1", Role.PARAMETER))
    pieces[one], pieces[other] = pieces[other], pieces[one]
    swapped = dataclasses.replace(found.ready, sharded=found.ready.sharded._replace(pieces=pieces))
    ran = run_placed(SeededWorkload(TARGET, {}, 2), dataclasses.replace(found, ready=swapped))
    assert not ran.agrees
    assert ran.furthest > 1e-3


def dropped() -> Callable[[], torch.Tensor]:
    """A step with dropout, as it is written without a thought of seeds."""
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 6)

    def step() -> torch.Tensor:
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@pytest.mark.slow
def test_random_ops_that_share_a_device_draw_what_one_process_draws() -> None:
    from tensortide.placements.graphs import Grouping, PlaceOptions

    target = f"{__file__}:dropped"
    prepared = ready(tensortide.capture(target), cluster(2), PlaceOptions(Grouping(keep_random=True)))
    names = prepared.problem.names
    found = placed(prepared, [int(name == "4") for name in names])
    assert set(found.device_of.values()) == {"gpu0", "gpu1"}
    check_placed(found.ready.graph, 2, keep_random=True)
    ran = run_placed(SeededWorkload(target, {}), found)
    assert ran.verified
    assert len({loss for step in ran.losses for loss in step}) == 3


@pytest.mark.slow
def test_a_step_that_fails_in_a_rank_is_one_message_and_leaves_no_process() -> None:
    found = placement(tensortide.capture(TARGET), 2)
    other = f"{__file__}:failing"
    began = time.monotonic()
    with pytest.raises(RunError, match=r"^rank \d of 2: a step of .*failing failed: OSError: the disk is full$"):
        run_placed(SeededWorkload(other, {}), found)
    assert time.monotonic() - began < PATIENCE_S
    assert multiprocessing.active_children() == []


def failing() -> Callable[[], torch.Tensor]:
    def step() -> torch.Tensor:
        raise OSError("the disk is full")

    return step


def printing(rank: int) -> int:
    sys.stdout.write("not of the report")
    sys.stdout.flush()
    return rank


@pytest.mark.slow
def test_what_ranks_print_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_ranks(printing, 1) == [0]
    assert capfd.readouterr().out == ""


def test_what_cannot_run_is_known_before_any_search() -> None:
    with pytest.raises(RunError, match="10,000 devices would be as many processes"):
        check_ranks(10_000)
    graph = tensortide.capture(f"{__file__}:dropped")
    check_placed(graph, 1, keep_random=False)
    check_placed(graph, 2, keep_random=True)
    with pytest.raises(RunError, match=r"draws random numbers, .* \(--keep-random\)"):
        check_placed(graph, 2, keep_random=False)
    check_placed(captured(residual()), 2, keep_random=False)


def test_random_ops_in_another_order_are_refused() -> None:
    def two() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.rand(3), torch.rand(3)

    graph = captured(two)
    for steps, right in (((Compute(0), Compute(1)), True), ((Compute(1), Compute(0)), False)):
        plan = Plan(graph.index.digest, (Lane("a", steps),))
        if right:
            LaneProgram(two, graph, plan, 0)
            continue
        with pytest.raises(RunError, match=r"op 1 .* draws random numbers before an earlier op does"):
            LaneProgram(two, graph, plan, 0)


def test_outputs_are_those_of_their_storages_in_order() -> None:
    """The dict of a lane: storages ascend, which is the order of births; their names are the order of the return."""
    x = torch.arange(6.0).reshape(2, 3)

    def step() -> dict[str, torch.Tensor]:
        doubled = x * 2
        return {"loss": doubled.sum(), "doubled": doubled.t()}

    graph = captured(step)
    plan = Plan(graph.index.digest, (Lane("a", tuple(Compute(op) for op in range(len(graph)))),))
    found = LaneProgram(step, graph, plan, 0)()
    assert list(found) == sorted(found)
    expected = step()
    assert {graph.storages[storage].name: value.tolist() for storage, value in found.items()} == {
        "output[1]": expected["doubled"].tolist(),
        "output[0]": expected["loss"].tolist(),
    }
    assert [graph.storages[storage].name for storage in found] == ["output[1]", "output[0]"]


def doctored() -> MeasuredPlacement:
    """A run of two micro-batches on two lanes: the accuracy is made before the loss, which is returned first."""
    builder = Builder()
    from tensortide.graph import Role

    given = builder.storage(8, Role.PARAMETER, name="weight")
    outs = [
        builder.storage(4, Role.OUTPUT, birth=op, name=name)
        for op, name in enumerate(("output[10]", "output[2]", "output[10]", "output[2]"))
    ]
    for out in outs:
        builder.op([given], [out])
    builder.op([given], [given], mutated=(0,), name="test.update_.default")
    graph = builder.graph()
    lanes = (
        Lane("a", (Send(given, 1), Compute(0), Compute(1), Compute(4))),
        Lane("b", (Receive(given, 0), Compute(2), Compute(3))),
    )
    first = [Span(0, 0, 1), Span(1, 1, 10), Span(2, 10, 20), Span(3, 20, 30)]
    second = [Span(0, 0, 5), Span(1, 5, 15), Span(2, 15, 25)]
    runs = [
        LaneRun([{outs[0]: 0.5, outs[1]: 2.0}], {given: "aa"}, [30], 1000, first, {1: 8}),
        LaneRun([{outs[2]: 0.25, outs[3]: 3.0}], {}, [25], 1002, second, {}),
    ]
    alone = AloneRun([[2.0, 3.0]], {(0, given): "aa"})
    prepared = ready(graph, cluster(2))
    found = placed(prepared, [0] * len(prepared.problem.names))
    step = dataclasses.replace(found, given=Plan(graph.index.digest, lanes))
    return MeasuredPlacement(SeededWorkload("mlp", {}, 1), step, runs, alone)


def test_the_loss_is_the_first_number_that_the_step_returns() -> None:
    ran = doctored()
    assert ran.losses == [(2.0, 3.0)]
    assert ran.verified
    assert ran.planned_bytes == ran.sent_bytes == {(0, 1): 8}


def test_what_differs_is_named() -> None:
    ran = doctored()
    almost = dataclasses.replace(ran, alone=AloneRun([[2.0, 3.0000000000000004]], {(0, 0): "aa"}))
    assert not almost.same_losses
    assert not almost.verified
    other = dataclasses.replace(ran, alone=AloneRun([[2.0, 3.0]], {(0, 0): "ab"}))
    assert other.changed == ["weight"]
    assert not other.verified
    lanes = [dataclasses.replace(ran.lanes[0], sent_bytes={1: 4}), ran.lanes[1]]
    assert not dataclasses.replace(ran, lanes=lanes).as_planned


def test_losses_of_shards_may_differ_within_the_tolerance() -> None:
    exact = doctored()
    shards = with_shards(exact.placed)
    assert dataclasses.replace(exact, placed=shards).same_losses
    for loss, agrees in ((3.00002, True), (3.00004, False), (float("nan"), False), (float("inf"), False)):
        near = dataclasses.replace(exact, placed=shards, alone=AloneRun([[2.0, loss]], {(0, 0): "ab"}))
        assert not near.same_losses
        assert near.agrees is near.verified is agrees
    missing = dataclasses.replace(exact, placed=shards, alone=AloneRun([[2.0]], {(0, 0): "aa"}))
    assert not missing.agrees
    silent = [dataclasses.replace(lane, outputs=[{}]) for lane in exact.lanes]
    without = dataclasses.replace(exact, placed=shards, lanes=silent, alone=AloneRun([[]], {(0, 0): "ab"}))
    assert not without.agrees  # no loss to judge by: updates have to be bit-identical


def test_the_measured_timeline_has_the_lanes_of_the_predicted_one() -> None:
    ran = doctored()
    line = ran.timeline
    assert line.lanes == ("a", "b", "a > b")
    events = line.events
    rows = zip(events.lane.tolist(), events.start_ns.tolist(), events.end_ns.tolist(), strict=True)
    # The second lane began 2 ns later: its receive waited from 2 on and ended at 7.
    assert sorted(rows) == [(0, 1, 10), (0, 10, 20), (0, 20, 30), (1, 7, 17), (1, 17, 27), (2, 2, 7)]
    assert (
        measured_timeline(ran.placed.ready.graph, ran.placed.plan, [lane.spans for lane in ran.lanes]).lanes
        == line.lanes
    )
