"""The same model in JAX and in PyTorch: equal products, forward and backward, and equal parameters."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import tensortide
from tensortide.cost import count
from tensortide.examples.decoders import MixtureOfExperts
from tensortide.graph import Graph, Role

pytestmark = pytest.mark.frameworks

pytest.importorskip("flax")
models: Any = pytest.importorskip("tests.importers.jax.models")


def parameters(graph: Graph) -> int:
    named = {entry.tensor for entry in graph.named if entry.role is Role.PARAMETER}
    return sum(math.prod(graph.tensors[i].shape) for i in named)


def macs(graph: Graph) -> dict[str, int]:
    totals = count(graph).by_phase
    return {phase: totals[phase].cost.macs for phase in ("forward", "backward")}


def surplus(graph: Graph) -> int:
    """MACs of last iterations that nobody reads, as the import states them."""
    notes = [text for text in graph.meta.assumptions if text.startswith("surplus")]
    return sum(int(text.split()[1].replace(",", "")) for text in notes)


CASES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "gpt2": (
        lambda: models.gpt2(2, 16, 32, 2, 4, 100, 24),
        "gpt2", {"batch": 2, "seq": 16, "hidden": 32, "layers": 2, "heads": 4, "vocab": 100, "positions": 24},
    ),
    "resnet50": (
        lambda: models.resnet50(2, 64, 10, 8), "resnet50", {"batch": 2, "image": 64, "classes": 10, "width": 8},
    ),
    "vit": (
        lambda: models.vit(2, 32, 8, 24, 2, 3, 48, 10),
        "vit", {"batch": 2, "image": 32, "patch": 8, "hidden": 24, "layers": 2, "heads": 3, "intermediate": 48,
                "classes": 10},
    ),
    "lstm": (
        lambda: models.lstm(3, 7, 12, 16, 2, 5),
        "lstm", {"batch": 3, "seq": 7, "inputs": 12, "hidden": 16, "layers": 2, "classes": 5},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_twins_multiply_as_often_and_have_as_many_parameters(name: str) -> None:
    make, workload, settings = CASES[name]
    theirs = tensortide.open(make()).graph
    ours = tensortide.open(workload, hyperparameters=settings).graph
    found, want = macs(theirs), macs(ours)
    found["backward"] -= surplus(theirs)
    assert found == want
    assert parameters(theirs) == parameters(ours)


def test_gpt2_small_has_the_published_products_and_parameters() -> None:
    graph = tensortide.open(models.gpt2(1, 128, 768, 12, 12, 50257, 1024)).graph
    assert macs(graph)["forward"] == 16_114_089_984
    assert parameters(graph) == 124_439_808


def test_resnet50_has_the_published_products_and_parameters() -> None:
    graph = tensortide.open(models.resnet50(1, 224, 1000, 64)).graph
    assert macs(graph) == {"forward": 4_089_184_256, "backward": 24_299_077_632 // 2 - 4_089_184_256}
    assert parameters(graph) == 25_557_032


def test_vit_b16_has_the_published_products_and_parameters() -> None:
    graph = tensortide.open(models.vit(1, 224, 16, 768, 12, 12, 3072, 1000)).graph
    assert macs(graph) == {"forward": 17_563_828_224, "backward": 105_151_758_336 // 2 - 17_563_828_224}
    assert parameters(graph) == 86_567_656


def test_mlps_are_twins() -> None:
    def workload() -> Any:
        layers = torch.nn.Sequential(
            torch.nn.Linear(20, 48), torch.nn.ReLU(), torch.nn.Linear(48, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
        )
        x, y = torch.randn(16, 20), torch.randint(10, (16,))
        return lambda: torch.nn.functional.cross_entropy(layers(x), y).backward()

    theirs, ours = tensortide.open(models.mlp(16, 20, (48, 32, 10))).graph, tensortide.capture(workload)
    assert macs(theirs) == macs(ours)
    assert parameters(theirs) == parameters(ours)


def test_experts_are_twins() -> None:
    def workload() -> Any:
        layer = MixtureOfExperts(12, 20, 4, 2, 1.25, "capacity")
        x = torch.randn(10, 12)

        def step() -> None:
            (layer(x) ** 2).sum().backward()
            layer.balance = None

        return step

    theirs, ours = tensortide.open(models.experts(10, 12, 20, 4, 2, 1.25)).graph, tensortide.capture(workload)
    assert macs(theirs) == macs(ours)
    assert parameters(theirs) == parameters(ours)
