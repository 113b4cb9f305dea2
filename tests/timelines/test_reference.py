"""Memory of three models against what a real allocator measured (``memory.jsonl`` of the reference data).

There the models ran forward in training mode and back from the sum of their outputs, with PyTorch on a CPU; growth
is relative to parameters, buffers and input.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensortide.graph import Graph, Phase, Role
from tensortide.timelines import StorageTimeline, timeline
from tests.marks import some_slow

MIB = 1 << 20
Step = Callable[[], None]


def resnet(groups: tuple[int, ...], bottleneck: bool) -> Callable[[], Step]:
    def workload() -> Step:
        import torch
        from torch import nn

        from tensortide.examples.resnet import ConvNorm, ResNet

        stem = nn.Sequential(ConvNorm(3, 64, 7, stride=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        model = ResNet(groups, bottleneck, stem, 64, 1000)
        return summed(model, torch.randn(4, 3, 224, 224), lambda y: [y])

    return workload


def bert() -> Step:
    import torch
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig())
    model.train()
    return summed(model, torch.randint(0, 30000, (1, 128)), lambda y: [y.last_hidden_state, y.pooler_output])


def summed(model: Any, inputs: Any, parts: Callable[[Any], list[Any]]) -> Step:
    """Forward, the sum of all outputs, backward; gradients dropped."""

    def step() -> None:
        sum(part.sum() for part in parts(model(inputs))).backward()
        model.zero_grad()

    return step


MODELS: dict[str, Callable[[], Step]] = {
    "resnet18": resnet((2, 2, 2, 2), bottleneck=False),
    "resnet50": resnet((3, 4, 6, 3), bottleneck=True),
    "bert_base": bert,
}


@pytest.fixture(scope="module", params=some_slow(MODELS, {"bert_base", "resnet50"}))
def case(request: pytest.FixtureRequest, reference: Path) -> tuple[StorageTimeline, dict[str, float]]:
    """Timeline of a model and its row of the reference data."""
    name = request.param
    for package in ("torch", "transformers") if name == "bert_base" else ("torch",):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    from tensortide.recorder import capture

    lines = (reference / "counters" / "memory.jsonl").read_text().splitlines()
    rows = {row["model"]: row for row in map(json.loads, lines)}
    return timeline(capture(MODELS[name])), rows[name]


def bytes_of(graph: Graph, role: Role) -> int:
    return sum(storage.nbytes for storage in graph.storages if storage.role is role)


def test_parameters_and_buffers(case: tuple[StorageTimeline, dict[str, float]]) -> None:
    line, row = case
    assert bytes_of(line.graph, Role.PARAMETER) == row["params_MiB"] * MIB
    assert bytes_of(line.graph, Role.BUFFER) == row["buffers_MiB"] * MIB


def test_bytes_kept_from_forward_for_backward(case: tuple[StorageTimeline, dict[str, float]]) -> None:
    line, row = case
    boundary = next(i for i, op in enumerate(line.graph.ops) if op.phase is Phase.BACKWARD)
    kept = int(line.before[boundary]) - line.start_bytes
    assert kept == pytest.approx(row["saved_after_forward_MiB"] * MIB, rel=1e-4)
    assert kept == pytest.approx(row["saved_tensors_unique_MiB"] * MIB, rel=1e-4)


def test_peak_of_forward_and_backward(case: tuple[StorageTimeline, dict[str, float]]) -> None:
    line, row = case
    growth = line.peak_bytes - line.start_bytes
    assert growth == pytest.approx(row["fwd_bwd_peak_MiB_excl_params"] * MIB, rel=0.01)
