"""The ranks of a divided step compute together what the whole step computes: parameters, states and gradients."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.examples.decoders import gpt2, llama
from tensortide.graph import Phase
from tensortide.parallelism.pipeline import pipelined
from tests.marks import some_slow
from tests.parallelism.captures import captured
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
    Divided(captured(gpt2, TINY_GPT2), tensor=tensor).assert_equal()
    Divided(captured(llama, TINY_LLAMA), tensor=tensor).assert_equal()
    few = {**TINY_LLAMA, "kv_heads": 2}  # at 4 ranks keys and values are computed by all
    Divided(captured(llama, few), tensor=tensor).assert_equal()


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_data_parallel_transformers_are_exact(zero: int) -> None:
    Divided(captured(gpt2, TINY_GPT2), data=2, zero=zero).assert_equal()


@pytest.mark.parametrize("stages", some_slow([2, 3], [2]))
def test_pipelines_are_exact(stages: int) -> None:
    Divided(captured(gpt2, TINY_GPT2), pipeline=stages).assert_equal()
    Divided(captured(llama, TINY_LLAMA), pipeline=stages).assert_equal()


class Repeats(nn.Module):
    """A block whose results the next one reads expanded, and as windows that overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, given: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        x, mean = given
        x = x + torch.tanh(self.inner(x)) * mean.expand_as(x)
        x = x + x.detach().unfold(1, 4, 1).sum((1, 2))[:, None]
        return x, x.sigmoid().mean(1, keepdim=True)


def test_pipelines_send_what_a_later_stage_repeats_once() -> None:
    def workload() -> Any:
        blocks, head = nn.Sequential(*(Repeats() for _ in range(4))), nn.Linear(16, 8)
        optimizer = torch.optim.SGD([*blocks.parameters(), *head.parameters()], lr=0.1)
        x, target = torch.randn(4, 16), torch.randint(0, 8, (4,))

        def step() -> None:
            optimizer.zero_grad()
            made, mean = blocks((x, x.mean(1, keepdim=True)))
            nn.functional.cross_entropy(head(made) * mean, target).backward()
            optimizer.step()

        return step

    graph = capture(workload, real=True)
    Divided(graph, pipeline=4).assert_equal()
    forward = [each.nbytes for each in pipelined(graph, 2).transfers if each.phase is Phase.FORWARD]
    assert sorted(forward) == [4 * 4, 4 * 16 * 4]  # a mean of each row, and the rows


class Rotated(nn.Module):
    """Features of which a part is rotated, here all: the slice that is not has no elements."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.inner(x)
        return x + torch.cat([torch.tanh(made[..., :16]), made[..., 16:]], dim=-1)


@pytest.mark.parametrize("degrees", [{"data": 2}, {"context": 2}, {"data": 2, "zero": 3, "context": 2}])
def test_steps_with_empty_slices_are_exact(degrees: dict[str, int]) -> None:
    def workload() -> Any:
        model = nn.Sequential(Rotated(), Rotated(), nn.Linear(16, 8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, target = torch.randn(4, 8, 16), torch.randint(0, 8, (4, 8))

        def step() -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x).flatten(0, 1), target.flatten()).backward()
            optimizer.step()

        return step

    Divided(capture(workload, real=True), **degrees).assert_equal()


class ComplexRotation(nn.Module):
    """Pairs of features turned as complex numbers, by angles that depend on the place, as in Llama 4."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(x.shape[1], dtype=torch.float32)[:, None, None] * torch.tensor([1.0, 0.1, 0.2, 0.3])
        pairs = self.inner(x).unflatten(-1, (4, 4, 2))
        turned = torch.view_as_complex(pairs) * torch.polar(torch.ones_like(angles), angles)
        made: torch.Tensor = x + self.outer(torch.view_as_real(turned).flatten(2))
        return made


@pytest.mark.parametrize(
    "degrees",
    [{"data": 2}, {"tensor": 2}, {"pipeline": 2}, {"data": 2, "zero": 3, "tensor": 4, "pipeline": 2}],
)
def test_complex_views_are_divided_exactly(degrees: dict[str, int]) -> None:
    def workload() -> Any:
        model = nn.Sequential(ComplexRotation(), ComplexRotation(), nn.Linear(16, 8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, target = torch.randn(4, 8, 16), torch.randint(0, 8, (4, 8))

        def step() -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x).flatten(0, 1), target.flatten()).backward()
            optimizer.step()

        return step

    Divided(capture(workload, real=True), **degrees).assert_equal()


@pytest.mark.parametrize("zero", some_slow([0, 1, 2, 3], [0, 2]))
def test_all_together_are_exact(zero: int) -> None:
    Divided(captured(llama, TINY_LLAMA), data=2, tensor=2, pipeline=2, zero=zero).assert_equal()


@pytest.mark.slow
def test_products_of_convolutions_are_shared_exactly() -> None:
    graph = capture("resnet18_cifar", hyperparameters={"batch": 2, "width": 16}, real=True)
    Divided(graph, tensor=2).assert_equal()


@pytest.mark.parametrize("seed", some_slow(range(6), range(3, 6)))
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

    graph = capture(workload, real=True)
    stages = min(2, len(widths) - 1)
    for degrees in ({"tensor": 2}, {"tensor": 4}, {"data": 4}, {"data": 2, "zero": 3}, {"pipeline": stages}):
        Divided(graph, **degrees).assert_equal()
    Divided(graph, data=2, tensor=2, pipeline=stages, zero=1).assert_equal()


class Experts(nn.Module):
    """A mixture of experts: products of permuted tensors, which no stage makes contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.up, self.down = (nn.Parameter(torch.randn(shape)) for shape in ((4, 16, 32), (4, 32, 16)))
        self.out = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.gelu(torch.einsum("bth,ehf->betf", x, self.up))
        made = torch.einsum("betf,efh->beth", hidden, self.down)
        return self.out((made * self.gate(x).softmax(-1).transpose(1, 2)[..., None]).sum(1))  # type: ignore[no-any-return]


class Shifted(nn.Module):
    """Batched products to which a parameter is added."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = (nn.Parameter(torch.randn(shape)) for shape in ((4, 16, 32), (4, 32, 16)))
        self.shift = nn.Parameter(torch.randn(4, 1, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(self.shift, torch.tanh(torch.bmm(x, self.up)), self.down)


def biased_convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(4, 8, 3), nn.Tanh(), nn.Conv2d(8, 16, 3), nn.Tanh(), nn.ConvTranspose2d(16, 4, 2))


@pytest.mark.parametrize(
    ("make", "shape", "degrees"),
    [
        (biased_convolutions, (4, 4, 8, 8), {"tensor": 2}),
        (biased_convolutions, (4, 4, 8, 8), {"data": 2, "tensor": 2, "pipeline": 2}),
        (Shifted, (4, 6, 16), {"tensor": 2}),
        (Experts, (4, 6, 16), {"pipeline": 2}),
        (Experts, (4, 6, 16), {"data": 2, "tensor": 2, "pipeline": 2}),
    ],
)
def test_biases_of_partial_sums_and_permuted_values_are_exact(
    make: Callable[[], nn.Module], shape: tuple[int, ...], degrees: dict[str, int]
) -> None:
    def workload() -> Callable[[], None]:
        model = make().double()
        x, optimizer = torch.randn(shape, dtype=torch.float64), torch.optim.SGD(model.parameters(), lr=0.1)
        target = torch.zeros_like(model(x))

        def step() -> None:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), target).backward()
            optimizer.step()

        return step

    Divided(capture(workload, real=True), **degrees).assert_equal()
