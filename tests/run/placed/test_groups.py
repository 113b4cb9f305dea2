"""Groups of lanes in processes: bits of the documented order, bytes of the Plan, exchanges beside computation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import tensortide
from tensortide.errors import RunError
from tensortide.parallelism.shards import Shard
from tensortide.placements.graphs import Grouping, PlacedStep, PlaceOptions, placed, ready
from tensortide.plans import Plan, Receive, Send
from tensortide.plans.lanes import check_lanes
from tensortide.run.placed.in_order import ReplicasInOrder
from tensortide.run.placed.lane import LaneProgram
from tensortide.run.placed.placed_run import MeasuredPlacement, check_placed, run_placed
from tensortide.run.placed.seeded import SeededWorkload
from tests.placements.graphs.steps import cluster
from tests.run.placed import divided_workloads, workloads
from tests.run.placed.divided_workloads import in_order, layers

LAYERS, RESIDUAL = f"{divided_workloads.__file__}:layers", f"{__file__}:residual"
MIXED = f"{__file__}:mixed"


def residual() -> Callable[[], torch.Tensor]:
    """A step of residual blocks and a batch normalization, of a batch of 8."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 8), *(workloads.Block(8) for _ in range(2)), nn.BatchNorm1d(8), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, fused=True)
    x, target = torch.randn(8, 6), torch.randn(8, 3)

    def step() -> torch.Tensor:
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    step()
    return step


def mixed() -> Callable[[], torch.Tensor]:
    """A step of layers in float32 and in bfloat16 in turn."""
    torch.manual_seed(5)
    layers = nn.ModuleList(nn.Linear(8, 8, dtype=(torch.float32, torch.bfloat16)[i % 2]) for i in range(4))
    optimizer, x = torch.optim.SGD(layers.parameters(), lr=0.05), torch.randn(8, 8)

    def step() -> torch.Tensor:
        y = x
        for layer in layers:
            y = layer(y.to(next(layer.parameters()).dtype))
        loss = y.float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    step()
    return step


def on_groups(target: str, data: int, size: int = 1, **options: object) -> PlacedStep:
    """``data`` groups of ``size`` devices, modules in stretches on them."""
    graph = tensortide.capture(target)
    given = PlaceOptions(Grouping(depth=1), data=data, **options)  # type: ignore[arg-type]
    prepared = ready(graph, cluster(data * size), given)
    names = prepared.problem.names
    place = [unit * size // len(names) for unit in range(len(names))]
    for unit, name in enumerate(names):
        if ".shard" in name:
            place[unit] = int(name[-1]) % size
    return placed(prepared, place)


def run(found: PlacedStep, target: str, steps: int = 2, **settings: object) -> MeasuredPlacement:
    workload = SeededWorkload(target, settings, steps)  # type: ignore[arg-type]
    return run_placed(workload, found)


def assert_as_planned(found: PlacedStep, ran: MeasuredPlacement) -> None:
    """Check the bytes of links inside of groups, and that gradients are sent twice but for each rank's own part."""
    names = [lane.device for lane in found.all_lanes.lanes]
    inside = {f"{names[a]} > {names[b]}": nbytes for (a, b), nbytes in ran.sent_bytes.items() if nbytes}
    assert inside.items() <= found.link_bytes.items()
    size, count = len(found.plan.lanes), found.groups.count
    for device, own in enumerate(found.averages):
        ranks = ran.lanes[device::size]
        assert all(sum(each.nbytes for each in lane.exchanges) == own.gradients_bytes for lane in ranks)
        assert [lane.buffer_bytes for lane in ranks] == [own.buffers_bytes] * count
        assert sum(sum(lane.exchanged_bytes.values()) for lane in ranks) == 2 * (count - 1) * own.gradients_bytes
    assert ran.as_planned


@pytest.mark.slow
@pytest.mark.parametrize(("data", "size", "options"), [(2, 1, {}), (4, 1, {"bucket_bytes": 300}), (2, 2, {})])
def test_groups_run_to_the_bits_of_the_documented_order(data: int, size: int, options: dict[str, object]) -> None:
    """Those of a loop over the replicas that PyTorch runs, without any Graph."""
    found = on_groups(LAYERS, data, size, **options)
    ran = run(found, LAYERS, 3)
    expected = in_order(3, data, 1)
    assert [[loss.hex() for loss in step] for step in ran.losses] == expected
    assert ran.verified
    assert len(ran.state) == len(ran.alone.state) == data * 4 * 4 * 2  # four tensors of a block and their momenta
    assert_as_planned(found, ran)
    groups = [{s: text for (g, s), text in ran.state.items() if g == group} for group in range(data)]
    assert all(group == groups[0] for group in groups)


@pytest.mark.slow
def test_means_that_autograd_divides_are_those_of_a_part_of_the_batch() -> None:
    found = placed_mean()
    ran = run(found, LAYERS, 2, mean=True)
    assert [[loss.hex() for loss in step] for step in ran.losses] == in_order(2, 2, 1, mean=True)
    assert ran.verified


@pytest.mark.slow
def test_a_bucket_of_each_dtype_runs_to_the_bits_of_the_documented_order() -> None:
    found = on_groups(MIXED, 2, bucket_bytes=300)
    assert found.averages[0].exchanges == 3
    ran = run(found, MIXED, 2)
    assert ran.verified
    assert_as_planned(found, ran)
    assert [one.buffers_bytes for one in found.averages] == [2 * 9 * 8 * (4 + 2)]


def placed_mean() -> PlacedStep:
    graph = tensortide.capture(LAYERS, hyperparameters={"mean": True})
    prepared = ready(graph, cluster(2), PlaceOptions(data=2))
    return placed(prepared, [0] * len(prepared.problem.names))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"micro_batches": 2, "schedule": "1f1b"}, {"overlap": False}])
def test_pipelines_in_groups_run_to_the_bits_of_the_documented_order(options: dict[str, object]) -> None:
    found = on_groups(RESIDUAL, 2, 2, **options)
    many = found.ready.problem.batches
    ran = run(found, RESIDUAL, 2)
    assert ran.verified
    assert all(len(step) == 2 * many for step in ran.losses)
    assert_as_planned(found, ran)
    assert len({loss for step in ran.losses for loss in step}) >= 4  # of other rows, and in other steps
    line = ran.timeline
    devices = tuple(f"gpu{rank}" for rank in range(4))
    assert line.lanes[:4] == devices
    assert {"gpu0 > gpu2", "gpu1 > gpu3", "gpu2 > gpu0", "gpu3 > gpu1"} <= {*line.lanes[4:]}
    assert sorted(line.run_op.tolist()) == sorted(2 * [*range(len(found.ready.graph))])


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_shards_in_groups_run_to_the_losses_of_one_process_within_the_tolerance(size: int) -> None:
    shards = (Shard("1.up", "output", 2), Shard("4", "output", 3))
    found = on_groups(RESIDUAL, 2, size, shards=shards)
    ran = run(found, RESIDUAL, 3)
    assert ran.verified
    assert ran.furthest < 1e-5
    assert len(ran.losses[0]) == 2
    assert_as_planned(found, ran)


def test_one_group_in_order_is_the_step_itself() -> None:
    torch.manual_seed(0)
    ours = layers()
    ours()
    torch.manual_seed(0)
    theirs = layers()
    theirs()
    program = ReplicasInOrder([ours], tensortide.capture(ours))
    for _ in range(2):
        (made,) = program()
        (loss,) = (value for value in made.values() if value.numel() == 1)
        assert float(loss).hex() == float(theirs()).hex()


def test_parts_of_the_batch_have_the_mean_of_the_whole() -> None:
    """The mean of the losses of replicas is that of the user's own step but for rounding, step after step."""
    steps = []
    for _ in range(3):
        torch.manual_seed(0)
        steps.append(layers())
        steps[-1]()
    found = ready(tensortide.capture(steps[0]), cluster(2), PlaceOptions(data=2))
    program = ReplicasInOrder(steps[:2], found.graph)
    for _ in range(4):
        losses = [float(value) for made in program() for value in made.values() if value.numel() == 1]
        assert sum(losses) / 2 == pytest.approx(float(steps[2]()), rel=1e-5)


def test_all_lanes_of_the_plan_are_those_of_each_group() -> None:
    found = on_groups(LAYERS, 2, 2)
    plan = found.all_lanes
    assert [lane.device for lane in plan.lanes] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    second = Plan(plan.graph, plan.lanes[2:])
    assert [len(lane.steps) for lane in second.lanes] == [len(lane.steps) for lane in found.plan.lanes]
    assert {s.lane for lane in second.lanes for s in lane.steps if isinstance(s, Send | Receive)} == {2, 3}
    check_lanes(found.plan, found.ready.graph)
    alone = on_groups(LAYERS, 1)
    assert alone.all_lanes is alone.plan


def test_a_step_of_groups_that_are_not_said_and_random_ops_are_refused() -> None:
    found = on_groups(LAYERS, 2)
    with pytest.raises(RunError, match="exchanges gradients with other groups"):
        LaneProgram(layers(), found.ready.graph, found.plan, 0)
    from tests.run.placed.test_placed_run import dropped

    graph = tensortide.capture(dropped())
    with pytest.raises(RunError, match="draws random numbers, and 2 groups would draw others"):
        check_placed(graph, 1, keep_random=True, groups=2)
