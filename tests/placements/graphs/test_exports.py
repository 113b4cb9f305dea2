"""Device maps and split points."""

from __future__ import annotations

import pytest
import torch
from accelerate import dispatch_model  # type: ignore[import-untyped]
from torch import nn

from tensortide import capture
from tensortide.errors import PlanError
from tensortide.placements.graphs import Grouping, PlacedStep, PlaceOptions, placed, ready
from tensortide.placements.graphs.exports import device_map, split_points
from tests.placements.graphs.steps import captured, cluster


def halves(first: tuple[str, ...], second: tuple[str, ...]) -> PlacedStep:
    """GPT-2 with its units named in ``second`` on the second device, and back on the first after that."""
    prepared = ready(captured("gpt2"), cluster(2), PlaceOptions(Grouping(depth=2)))
    assert {*first, *second} <= {*prepared.problem.names}
    return placed(prepared, [int(name in second) for name in prepared.problem.names])


def test_a_device_map_has_the_outermost_modules() -> None:
    found = halves(("blocks.0",), ("blocks.1", "norm"))
    expected = {"blocks.0": "gpu0", "blocks.1": "gpu1", "norm": "gpu1", "positions": "gpu0", "tokens": "gpu0"}
    assert device_map(found.simulated) == expected
    whole = halves(("norm",), ("blocks.0", "blocks.1"))
    assert device_map(whole.simulated) == {"blocks": "gpu1", "norm": "gpu0", "positions": "gpu0", "tokens": "gpu0"}
    assert device_map(halves((), ()).simulated) == {"": "gpu0"}


class Tied(nn.Module):
    """A language model whose head has the weight of its embedding, and a layer that no step uses."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.body = nn.Embedding(12, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head, self.unused = nn.Linear(8, 12, bias=False), nn.Linear(8, 2)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.body(self.embedding(ids)))
        return result


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_accelerate_takes_a_device_map_of_tied_weights(micro_batches: int) -> None:
    model, ids = Tied(), torch.arange(6)
    graph = capture(model, ids, loss="sum", optimizer="sgd")
    prepared = ready(graph, cluster(2), PlaceOptions(Grouping(), micro_batches=micro_batches, schedule="1f1b"))
    found = placed(prepared, [int(name == "body.2") for name in prepared.problem.names])
    devices = device_map(found.simulated)
    assert devices["embedding"] == devices["head"] == "gpu0"
    assert devices["body.2"] == "gpu1"
    expected = model(ids)
    moved = dispatch_model(model, dict.fromkeys(devices, "cpu"), main_device="cpu", force_hooks=True)
    assert torch.equal(moved(ids), expected)


def test_split_points_are_the_modules_that_begin_a_stage() -> None:
    prepared = ready(captured("resnet18_cifar"), cluster(3), PlaceOptions(Grouping(depth=2)))
    where = {"stem": 0, "groups.0": 0, "groups.1": 1, "groups.2": 2, "groups.3": 2, "pool": 2, "classifier": 2}
    found = placed(prepared, [where.get(name, 2) for name in prepared.problem.names])
    assert split_points(found.simulated) == ("groups.1", "groups.2")
    with pytest.raises(PlanError, match="a device has several stages"):
        split_points(halves(("blocks.0",), ("blocks.1",)).simulated)
