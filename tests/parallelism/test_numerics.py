"""The ranks of a divided step compute together what the whole step computes: parameters, states and gradients."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.examples.decoders import gpt2, llama, mixtral
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

TINY_MIXTRAL = {
    "layers": 1,
    "hidden": 16,
    "heads": 4,
    "kv_heads": 2,
    "vocab": 32,
    "seq": 8,
    "batch": 4,
    "intermediate": 24,
    "experts": 4,
    "top": 2,
    "capacity": 2.0,
    "balance": 0.0,
}
"""With so much capacity no token is passed over, and without balance no term of the loss mixes replicas."""


def one_layer(sizes: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    """Smaller sizes: a layer, and an optimizer without state."""
    return {**sizes, "layers": 1, "optimizer": "sgd", **others}


STEPS: dict[str, tuple[str | Callable[..., Any], dict[str, Any]]] = {
    "gpt2": (gpt2, one_layer(TINY_GPT2)),
    "gpt2 with states": (gpt2, one_layer(TINY_GPT2, optimizer="adamw")),
    "gpt2 of two layers": (gpt2, {**TINY_GPT2, "optimizer": "sgd"}),
    "llama with states": (llama, one_layer(TINY_LLAMA, optimizer="adamw")),
    "llama of two layers": (llama, TINY_LLAMA),
    "llama, eager": (llama, one_layer(TINY_LLAMA, attention="eager")),
    "llama, two heads of keys": (llama, one_layer(TINY_LLAMA, kv_heads=2)),
    "llama, one head of keys, eager": (llama, one_layer(TINY_LLAMA, kv_heads=1, attention="eager")),
    "llama, six heads of keys": (llama, one_layer(TINY_LLAMA, heads=12, kv_heads=6, hidden=48)),
    "llama of transformers": ("hf_llama", one_layer(TINY_LLAMA)),
    "mixtral": (mixtral, TINY_MIXTRAL),
    "mixtral, dense": (mixtral, {**TINY_MIXTRAL, "optimizer": "sgd", "dispatch": "dense"}),
}
EXACT: list[tuple[str, dict[str, int]]] = [
    ("gpt2 with states", {"data": 2}),
    ("gpt2 with states", {"data": 2, "zero": 1}),
    ("gpt2 with states", {"data": 2, "zero": 2}),
    ("gpt2 with states", {"data": 2, "zero": 3}),
    ("gpt2 with states", {"data": 4, "zero": 1, "zero_group": 2}),
    ("llama with states", {"data": 2, "context": 2, "zero": 3, "zero_group": 2}),
    ("gpt2", {"tensor": 2}),
    ("llama, two heads of keys", {"tensor": 4}),  # which all ranks compute
    ("llama, two heads of keys", {"tensor": 4, "kv_group": 2}),
    ("llama, six heads of keys", {"tensor": 2}),
    ("gpt2", {"tensor": 2, "sequence": 1}),
    ("llama with states", {"data": 2, "tensor": 2, "sequence": 1, "zero": 1}),
    ("llama, one head of keys, eager", {"tensor": 2, "sequence": 1}),  # made of parts and gathered
    ("gpt2", {"context": 2}),
    ("llama, two heads of keys", {"context": 2, "tensor": 2}),
    ("llama of transformers", {"context": 2}),  # -100 of the last rank is no target: their number is combined
    ("llama, eager", {"context": 2}),
    ("llama of two layers", {"pipeline": 3}),
    ("llama of two layers", {"data": 2, "pipeline": 2, "zero": 3}),
    ("gpt2 of two layers", {"data": 2, "tensor": 2, "pipeline": 2, "zero": 1}),  # with a table that is tied
    ("gpt2 of two layers", {"tensor": 2, "pipeline": 2, "sequence": 1}),
    ("gpt2 of two layers", {"context": 2, "pipeline": 2}),
    ("mixtral", {"data": 2, "expert": 2, "pipeline": 2}),
    ("mixtral", {"data": 2, "context": 2, "expert": 4}),
    ("mixtral", {"data": 4, "expert": 2, "zero": 1}),
    ("mixtral, dense", {"data": 2, "expert": 2, "tensor": 2}),
]
"""Every way to divide a step, each two that meet at least once, and every step."""
ALIKE = [
    ("gpt2 with states", {"data": 2, "zero": 1}),
    ("gpt2 with states", {"data": 2, "zero": 2}),
    ("llama with states", {"data": 2, "tensor": 2, "sequence": 1, "zero": 1}),
    ("llama, two heads of keys", {"context": 2, "tensor": 2}),
    ("gpt2 of two layers", {"data": 2, "tensor": 2, "pipeline": 2, "zero": 1}),
    ("gpt2 of two layers", {"context": 2, "pipeline": 2}),
    ("mixtral", {"data": 2, "context": 2, "expert": 4}),
    ("mixtral", {"data": 4, "expert": 2, "zero": 1}),
]
"""Those of which others have each way, and each step."""
MANY_RANKS: list[tuple[str, dict[str, int]]] = [
    ("llama, six heads of keys", {"tensor": 4, "kv_group": 2}),  # three for each pair of ranks
    ("llama, eager", {"data": 2, "context": 2, "tensor": 2}),
    ("llama, eager", {"context": 2, "tensor": 2, "sequence": 1}),
    ("llama with states", {"context": 4, "tensor": 2, "sequence": 1, "zero": 3}),
    ("gpt2 of two layers", {"context": 2, "tensor": 2, "pipeline": 2, "sequence": 1, "zero": 1}),
    ("mixtral", {"data": 2, "expert": 2, "tensor": 2}),
    ("gpt2 with states", {"data": 4, "zero": 3, "zero_group": 2}),
    ("llama of two layers", {"data": 4, "tensor": 2, "pipeline": 2, "zero": 1, "zero_group": 2}),
    ("llama, two heads of keys", {"tensor": 8, "kv_group": 4}),
    ("llama, two heads of keys", {"tensor": 4, "kv_group": 2, "context": 2}),
    ("llama, two heads of keys", {"tensor": 4, "kv_group": 2, "pipeline": 2}),
    ("llama of two layers", {"data": 2, "tensor": 2, "pipeline": 2, "sequence": 1, "zero": 3}),
    ("llama of two layers", {"data": 2, "context": 2, "tensor": 2, "pipeline": 2, "zero": 3}),
    ("llama, eager", {"context": 2, "tensor": 2, "pipeline": 2, "zero": 1}),
    ("gpt2 of two layers", {"data": 4, "pipeline": 2, "zero": 2, "zero_group": 2}),
    ("mixtral", {"data": 4, "expert": 4}),
    ("mixtral", {"data": 4, "expert": 2, "zero": 2, "tensor": 2}),
    ("mixtral", {"data": 4, "expert": 2, "zero": 3, "pipeline": 2}),
]


def assert_exact(name: str, degrees: dict[str, int]) -> None:
    Divided(captured(*STEPS[name]), **degrees).assert_equal()


@pytest.mark.parametrize(("name", "degrees"), some_slow(EXACT, ALIKE), ids=str)
def test_ranks_compute_together_what_the_whole_step_computes(name: str, degrees: dict[str, int]) -> None:
    assert_exact(name, degrees)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "degrees"), MANY_RANKS, ids=str)
def test_many_ranks_compute_together_what_the_whole_step_computes(name: str, degrees: dict[str, int]) -> None:
    assert_exact(name, degrees)


def test_every_step_is_divided() -> None:
    assert {name for name, _ in EXACT} == STEPS.keys()


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


@pytest.mark.slow
def test_products_of_convolutions_are_shared_exactly() -> None:
    graph = capture("resnet18_cifar", hyperparameters={"batch": 2, "width": 16}, real=True)
    Divided(graph, tensor=2).assert_equal()


@pytest.mark.parametrize("seed", some_slow(range(6), range(1, 6)))
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


@pytest.mark.parametrize("degrees", [{"tensor": 2}, {"data": 2, "tensor": 2}], ids=str)
def test_classes_of_pixels_are_divided(degrees: dict[str, int]) -> None:
    def workload() -> Callable[[], None]:
        model = nn.Conv2d(8, 4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        images, labels = torch.randn(2, 8, 6, 6), torch.randint(0, 4, (2, 6, 6))

        def step() -> None:
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    graph = capture(workload, real=True)
    labels = {e.name: torch.randint(0, 4, (2, 6, 6)) for e in graph.named if graph.tensors[e.tensor].dtype == "int64"}
    divided = Divided(graph, labels, **degrees)
    divided.assert_equal()
    assert any(op.name == "c10d.allreduce_.default" for op in divided.ranks[0].graph)  # of statistics of each pixel
