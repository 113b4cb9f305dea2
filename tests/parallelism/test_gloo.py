"""Divided steps, executed in a process for each rank over gloo, compute what the whole step computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tensortide.examples.decoders import gpt2, llama, mixtral
from tests.parallelism.captures import captured
from tests.parallelism.gloo_ranks import Spread
from tests.parallelism.test_numerics import TINY_GPT2, TINY_LLAMA, TINY_MIXTRAL
from tests.run.ranks import Ranks


def convnet(batch: int = 8, width: int = 8, classes: int = 8) -> Callable[[], None]:
    """Two convolutions and a head, on images of 8 x 8."""
    layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3, padding=1)]
    model = nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.Linear(32 * width, classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.randn(batch, 3, 8, 8), torch.randint(0, classes, (batch,))

    def step() -> None:
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


STEPS: dict[str, tuple[Any, dict[str, Any]]] = {
    "gpt2": (gpt2, {**TINY_GPT2, "optimizer": "adamw"}),
    "llama": (llama, TINY_LLAMA),
    "hf_llama": ("hf_llama", TINY_LLAMA),
    "mixtral": (mixtral, TINY_MIXTRAL),
    "convnet": (convnet, {}),
}
EIGHT: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {"data": 2, "tensor": 2, "pipeline": 2, "zero": 1}),
    ("gpt2", {"data": 4, "tensor": 2, "zero": 3, "zero_group": 2}),
    ("gpt2", {"data": 4, "tensor": 2, "sequence": 1}),
    ("llama", {"data": 2, "context": 2, "tensor": 2}),
    ("hf_llama", {"data": 2, "context": 2, "tensor": 2, "sequence": 1}),
    ("llama", {"data": 4, "context": 2, "zero": 2, "zero_group": 4}),
    ("hf_llama", {"data": 2, "tensor": 4}),
    ("mixtral", {"data": 4, "tensor": 2, "expert": 4}),
    ("llama", {"data": 2, "context": 4, "keys": "zigzag"}),
    ("llama", {"data": 4, "tensor": 2, "zero": 2, "zero_group": 2}),
    ("hf_llama", {"pipeline": 2, "context": 2, "tensor": 2, "keys": "ring"}),
    ("hf_llama", {"data": 2, "tensor": 4, "kv_group": 2}),
    ("mixtral", {"data": 4, "context": 2, "expert": 4}),
    ("mixtral", {"data": 4, "pipeline": 2, "expert": 2}),
    ("convnet", {"data": 8, "zero": 3, "zero_group": 4}),
    ("convnet", {"data": 2, "tensor": 2, "pipeline": 2}),
]


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    ranks = Ranks(8, tmp_path_factory.mktemp("eight"))
    yield ranks
    ranks.close()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "degrees"), EIGHT, ids=str)
def test_eight_processes_compute_what_the_whole_step_computes(
    eight: Ranks, tmp_path: Path, name: str, degrees: dict[str, Any]
) -> None:
    Spread(eight, tmp_path, captured(*STEPS[name]), **degrees).assert_equal()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    ranks = Ranks(2, tmp_path_factory.mktemp("two"))
    yield ranks
    ranks.close()


def test_two_processes_compute_what_the_whole_step_computes(two: Ranks, tmp_path: Path) -> None:
    small = {**TINY_GPT2, "layers": 1, "optimizer": "sgd"}
    Spread(two, tmp_path, captured(gpt2, small), data=2).assert_equal()
