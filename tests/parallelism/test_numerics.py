"""The ranks of a divided step compute together what the whole step computes: parameters, states and gradients."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.examples.decoders import gpt2, llama
from tests.marks import some_slow
from tests.parallelism.divided import Divided

TINY_GPT2 = {"layers": 2, "hidden": 32, "heads": 4, "vocab": 64, "seq": 8, "batch": 4, "positions": 16}
TINY_LLAMA = {
    "layers": 2,
    "hidden": 32,
    "heads": 8,
    "kv_heads": 4,
    "vocab": 64,
    "seq": 8,
    "batch": 4,
    "intermediate": 64,
}


@pytest.mark.parametrize("tensor", some_slow([2, 4], [4]))
def test_tensor_parallel_transformers_are_exact(tensor: int) -> None:
    Divided(capture(gpt2, hyperparameters=TINY_GPT2), tensor=tensor).assert_equal()
    Divided(capture(llama, hyperparameters=TINY_LLAMA), tensor=tensor).assert_equal()
    few = {**TINY_LLAMA, "kv_heads": 2}  # at 4 ranks keys and values are computed by all
    Divided(capture(llama, hyperparameters=few), tensor=tensor).assert_equal()


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_data_parallel_transformers_are_exact(zero: int) -> None:
    Divided(capture(gpt2, hyperparameters=TINY_GPT2), data=2, zero=zero).assert_equal()


@pytest.mark.parametrize("stages", some_slow([2, 3], [2]))
def test_pipelines_are_exact(stages: int) -> None:
    Divided(capture(gpt2, hyperparameters=TINY_GPT2), pipeline=stages).assert_equal()
    Divided(capture(llama, hyperparameters=TINY_LLAMA), pipeline=stages).assert_equal()


@pytest.mark.parametrize("zero", some_slow([0, 1, 2, 3], [0, 2]))
def test_all_together_are_exact(zero: int) -> None:
    Divided(capture(llama, hyperparameters=TINY_LLAMA), data=2, tensor=2, pipeline=2, zero=zero).assert_equal()


@pytest.mark.slow
def test_products_of_convolutions_are_shared_exactly() -> None:
    graph = capture("resnet18_cifar", hyperparameters={"batch": 2}, real=False)
    Divided(graph, tensor=2).assert_equal()


@pytest.mark.parametrize("seed", some_slow(range(8), range(3, 8)))
def test_random_perceptrons_are_exact_however_they_are_divided(seed: int) -> None:
    generator = random.Random(seed)
    widths = [*(generator.choice([4, 8, 12, 16]) for _ in range(generator.randint(2, 5))), generator.choice([8, 16])]
    nonlinear = generator.choice([nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU])
    optimizers: list[Any] = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW]
    kind, bias = generator.choice(optimizers), generator.random() < 0.5

    def workload() -> Any:
        layers = [
            layer
            for inside, outside in pairwise(widths)
            for layer in (nn.Linear(inside, outside, bias=bias), nonlinear())
        ]
        model = nn.Sequential(*layers[:-1])
        optimizer = kind(model.parameters(), lr=0.01)
        x, target = torch.randn(8, widths[0]), torch.randint(0, widths[-1], (8,))

        def step() -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), target).backward()
            optimizer.step()

        return step

    graph = capture(workload, real=False)
    stages = min(2, len(widths) - 1)
    for degrees in ({"tensor": 2}, {"tensor": 4}, {"data": 4}, {"data": 2, "zero": 3}, {"pipeline": stages}):
        Divided(graph, **degrees).assert_equal()
    Divided(graph, data=2, tensor=2, pipeline=stages, zero=1).assert_equal()
