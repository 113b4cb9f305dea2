"""Modules in shards as units: transfers counted by hand, memory of each device, pins, micro-batches."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import tensortide
from tensortide.errors import DegreesError
from tensortide.graph import Graph
from tensortide.parallelism.shards import Shard
from tensortide.placements.graphs import Grouping, PlacedStep, PlaceOptions, follow, place, placed, ready
from tensortide.placements.graphs.schedules import ScheduleName
from tests.placements.graphs.steps import BRIEF, assert_legal, cluster

ROWS, WIDE, THIN = 5, 8, 6
F32 = 4


@functools.cache
def step() -> Graph:
    """Three layers in a row: (5, 6) -> (5, 6) -> (5, 8) -> (5, 6)."""
    model = nn.Sequential(nn.Linear(THIN, THIN), nn.Linear(THIN, WIDE), nn.Linear(WIDE, THIN))
    return tensortide.capture(model, torch.randn(ROWS, THIN), loss="sum", optimizer="adam", real=True)


def put(shards: list[str], on: dict[str, int], devices: int = 2, **options: object) -> PlacedStep:
    """The step with shards, each unit on the device of its name, or on the first."""
    asked = PlaceOptions(shards=tuple(map(Shard.parse, shards)), **options)  # type: ignore[arg-type]
    prepared = ready(step(), cluster(devices), asked)
    found = placed(prepared, [on.get(name, 0) for name in prepared.problem.names])
    assert_legal(found.simulated)
    assert found.simulated.makespan_ns == follow(prepared, found.plan).makespan_ns
    return found


def test_transfers_of_a_linear_with_two_shards_of_its_outputs() -> None:
    found = put(["1=output:2"], {"1.shard1": 1})
    there, half = ROWS * THIN * F32, ROWS * WIDE // 2 * F32
    # its input and a slice of the gradient of its output go there; half of the output and a partial gradient come back
    assert found.link_bytes == {"gpu0 > gpu1": there + half, "gpu1 > gpu0": half + there}


def test_transfers_of_a_linear_with_two_shards_of_its_batch() -> None:
    found = put(["1=batch:2"], {"1.shard1": 1})
    rows, weight, bias = 2, WIDE * THIN * F32, WIDE * F32
    given = rows * THIN * F32 + rows * WIDE * F32 + weight + bias
    made = rows * WIDE * F32 + rows * THIN * F32 + weight + bias
    assert found.link_bytes == {"gpu0 > gpu1": given, "gpu1 > gpu0": made}


def test_transfers_of_a_linear_with_two_shards_of_its_inputs() -> None:
    found = put(["1=reduction:2"], {"1.shard1": 1})
    whole, half = ROWS * WIDE * F32, ROWS * THIN // 2 * F32
    assert found.link_bytes == {"gpu0 > gpu1": half + whole, "gpu1 > gpu0": whole + half}


def test_each_shard_has_its_part_of_the_parameters() -> None:
    found = put(["1=output:3"], {"1.shard0": 0, "1.shard1": 1, "1.shard2": 2}, devices=3)
    problem = found.ready.problem
    resident = dict(zip(problem.names, problem.resident.tolist(), strict=True))
    for part, rows in enumerate((3, 3, 2)):  # parameter and two states of each
        assert resident[f"1.shard{part}"] == pytest.approx(3 * rows * (THIN + 1) * F32, abs=3 * F32)
    whole = put([], {}).ready.problem.resident.sum()
    assert problem.resident.sum() == whole + 2 * 2 * F32  # two more counts of steps, of weight and bias


def test_shards_with_a_fused_optimizer_are_units_of_their_own() -> None:
    model = nn.Linear(THIN, WIDE)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    x = torch.randn(ROWS, THIN)

    def update() -> torch.Tensor:
        loss: torch.Tensor = model(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    options = PlaceOptions(shards=(Shard("(root)", "output", 2),))
    prepared = ready(tensortide.capture(update, real=True), cluster(2), options)
    assert {"shard0", "shard1"} < set(prepared.problem.names)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_shards_of_several_micro_batches(schedule: ScheduleName) -> None:
    found = put(["1=batch:2", "2=output:2"], {"1.shard1": 1, "2.shard1": 1}, schedule=schedule, micro_batches=3)
    assert found.link_bytes["gpu0 > gpu1"] > 0
    adds = [
        op
        for op in found.ready.graph
        if op.name == "aten.add_.Tensor" and [t.shape for t in op.inputs] == 2 * [(3, WIDE)]
    ]
    assert len(adds) == 2 * 2  # gradients of each shard are added up


def test_pins_and_groups_of_shards() -> None:
    found = put(["*=output:2"], {}, pins={"1.shard1": "gpu1", "0": "gpu1"})
    assert {name: device for name, device in found.device_of.items() if device == "gpu1"} == {
        "0.shard0": "gpu1",
        "0.shard1": "gpu1",
        "1.shard1": "gpu1",
    }
    finest = put(["1=output:2"], {}, grouping=Grouping("closure"))
    assert len(finest.device_of) > len(found.device_of)
    flat = put(["1=output:2"], {}, grouping=Grouping(depth=0))
    assert {"1.shard0", "1.shard1"} < flat.device_of.keys()


def test_a_unit_too_large_for_any_device_fits_in_shards() -> None:
    model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 2048))
    graph = tensortide.capture(model, torch.randn(2, 512), loss="sum", optimizer="sgd", real=True)
    small = cluster(3, capacity_bytes=6 << 20)
    assert not place(graph, small, by=BRIEF, budget=50).fits
    assert place(graph, small, PlaceOptions(shards=(Shard("1", "output", 2),)), by=BRIEF, budget=50).fits


def test_shards_that_cannot_be_are_refused() -> None:
    with pytest.raises(DegreesError, match="no module of the step is called so"):
        put(["9=output:2"], {})
