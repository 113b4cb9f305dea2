"""The ranks of a divided step compute together what the whole step computes: parameters, states and gradients."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.examples.decoders import gpt2, llama
from tensortide.graph import Graph, Named, Role, validate
from tensortide.parallelism.batch import batch_part
from tensortide.parallelism.gradients import average_gradients
from tensortide.parallelism.pipeline import pipelined
from tensortide.parallelism.tensor_graph import TensorParallel, tensor_parallel
from tensortide.parallelism.zero import sharded_state
from tests.marks import some_slow
from tests.parallelism.lockstep import Rank, World, drawn, shard

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
BUCKET = 8192


class Divided:
    """A step divided by degrees, executed in one process beside the whole one."""

    def __init__(self, graph: Graph, data: int = 1, tensor: int = 1, pipeline: int = 1, zero: int = 0) -> None:
        self.graph, self.data, self.tensor, self.zero = graph, data, tensor, zero
        self.local = batch_part(graph, data).graph if data > 1 else graph
        self.sharded: list[TensorParallel] = []
        if tensor > 1:
            self.sharded = [tensor_parallel(self.local, tensor, rank) for rank in range(tensor)]
        values = drawn(graph)
        self.whole = Rank(graph, values)
        given = {(e.name, e.role): self.whole.tensor(e.tensor).clone() for e in graph.named if self.exists(graph, e)}
        World([self.whole]).run()
        self.places = [(s, d, t) for s in range(pipeline) for d in range(data) for t in range(tensor)]
        self.ranks = [self.rank(place, pipeline, given) for place in self.places]
        groups: dict[str, Sequence[Sequence[int]]] = {
            "tensor": [[i for i, q in enumerate(self.places) if q[:2] == p[:2]] for p in self.places],
            "data": [[i for i, q in enumerate(self.places) if q[::2] == p[::2]] for p in self.places],
            "pipeline": [[i for i, q in enumerate(self.places) if q[1:] == p[1:]] for p in self.places],
        }
        World(self.ranks, groups).run()

    @staticmethod
    def exists(graph: Graph, entry: Named) -> bool:
        storage = graph.storages[graph.tensors[entry.tensor].storage]
        return storage.birth is None and storage.death is None

    def rank(self, place: tuple[int, int, int], stages: int, given: dict[Any, torch.Tensor]) -> Rank:
        stage, data, tensor = place
        graph = self.sharded[tensor].graph if self.sharded else self.local
        if stages > 1:
            graph = pipelined(graph, stages).graphs[stage]
        if self.zero:
            graph = sharded_state(graph, self.data, self.zero, BUCKET, rank=data)
        elif self.data > 1:
            graph = average_gradients(graph, BUCKET)
        validate(graph)
        values = {}
        for entry in graph.named:
            if self.exists(graph, entry):
                storage = graph.tensors[entry.tensor].storage
                size = graph.tensors[entry.tensor].shape
                values[storage] = (entry.tensor, self.part(entry, given[entry.name, entry.role], place, size))
        return Rank(graph, values)

    def part(
        self, entry: Named, full: torch.Tensor, place: tuple[int, int, int], shape: tuple[int, ...]
    ) -> torch.Tensor:
        """What the rank at ``place`` has of the values of a named tensor."""
        _, data, tensor = place
        if entry.role is Role.INPUT and self.data > 1:
            full = full.chunk(self.data)[data]
        if self.sharded:
            analysis, chosen = self.sharded[0].analysis, self.sharded[0].choice.axes
            number = {(e.name, e.role): e.tensor for e in self.local.named}[entry.name, entry.role]
            full = shard(full, analysis, number, chosen, tensor, self.tensor)
        if tuple(full.shape) != tuple(shape):
            full = full.reshape(-1)[data * shape[0] : (data + 1) * shape[0]]
        return full

    def assert_equal(self) -> None:
        """Compare every named tensor that outlives the step on every rank."""
        whole = {(e.name, e.role): e.tensor for e in self.graph.named}
        compared = set()
        for place, rank in zip(self.places, self.ranks, strict=True):
            for entry in rank.graph.named:
                storage = rank.graph.storages[rank.graph.tensors[entry.tensor].storage]
                updated = entry.role in (Role.PARAMETER, Role.OPTIMIZER_STATE) or (
                    entry.role is Role.GRADIENT and storage.birth is not None and self.zero != 1
                )
                if updated and storage.death is None:
                    got = rank.tensor(entry.tensor)
                    want = self.part(entry, self.whole.tensor(whole[entry.name, entry.role]), place, tuple(got.shape))
                    scale = float(want.double().abs().max()) if want.numel() else 0.0
                    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4 * scale + 1e-7)
                    compared.add((entry.name, entry.role))
        assert {(e.name, e.role) for e in self.graph.named if e.role is Role.PARAMETER} <= compared


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

    Divided(capture(workload, real=False), **degrees).assert_equal()
