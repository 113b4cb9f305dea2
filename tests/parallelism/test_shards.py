"""Modules in shards compute what the whole step does, with the same products, parameters and state, each once."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import tensortide
from tensortide.errors import DegreesError
from tensortide.graph import Graph, Phase, Role
from tensortide.graph.validate import validate
from tensortide.parallelism import product_flops
from tensortide.parallelism.shards import Shard, Sharded, sharded
from tensortide.parallelism.shards.regions import Along, sizes_of
from tensortide.placements.graphs.placeable import placeable
from tests.examples.tiny import TINY
from tests.parallelism.sharded_steps import assert_computes_the_same, executed, given_values, in_double, parts_given

ALONG: tuple[Along, ...] = ("batch", "output", "reduction")


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, width = x.shape
        parts = self.qkv(x).view(batch, seq, 3, self.heads, width // self.heads).unbind(2)
        query, key, value = (part.transpose(1, 2) for part in parts)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        result: torch.Tensor = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, width))
        return result


class Perceptron(nn.Module):
    def __init__(self, width: int, inner: int, bias: bool = True) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(width, inner, bias), nn.GELU(), nn.Linear(inner, width, bias)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.down(self.act(self.up(self.norm(x))))
        return result


class Flat(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)


def step_of(model: nn.Module, x: torch.Tensor, optimizer: str) -> Graph:
    """A training step, as it is placed."""
    return placeable(tensortide.capture(model, x, loss="sum", optimizer=optimizer, real=True))


@st.composite
def steps(draw: st.DrawFn) -> tuple[Graph, list[str]]:
    """A step of a small model of dense, attention or convolution layers, and the paths of its modules."""
    width, batch = 2 * draw(st.integers(1, 3)), draw(st.integers(1, 5))
    layers: list[nn.Module] = []
    if draw(st.booleans()):
        x = torch.randn(batch, draw(st.integers(1, 4)), width)
        for _ in range(draw(st.integers(1, 3))):
            inner = draw(st.integers(2, 7))
            kinds: list[Callable[[], nn.Module]] = [
                lambda: Attention(width, 2),
                lambda: Perceptron(width, inner, draw(st.booleans())),  # noqa: B023
                lambda: nn.Linear(width, width),
                nn.Tanh,
            ]
            layers.append(draw(st.sampled_from(kinds))())
        layers.append(nn.Linear(width, 3))
    else:
        x = torch.randn(batch, draw(st.integers(1, 3)), 5, 4)
        channels = x.shape[1]
        for _ in range(draw(st.integers(1, 2))):
            wide = draw(st.integers(1, 6))
            layers += [nn.Conv2d(channels, wide, 3, padding=1, bias=draw(st.booleans())), nn.BatchNorm2d(wide)]
            layers.append(nn.ReLU(inplace=draw(st.booleans())))
            channels = wide
        layers += [nn.AvgPool2d((5, 4)), Flat(), nn.Linear(channels, 3)]
    model = nn.Sequential(*layers)
    graph = step_of(model, x, draw(st.sampled_from(["sgd", "adam", "rmsprop"])))
    return graph, [name for name, _ in model.named_modules() if name]


@st.composite
def sharded_steps(draw: st.DrawFn) -> tuple[Graph, Sharded]:
    """A step, and the same with up to three modules in shards, of those that can be."""
    graph, modules = draw(steps())
    shards: list[Shard] = []
    for _ in range(draw(st.integers(1, 3))):
        request = Shard(draw(st.sampled_from(modules)), draw(st.sampled_from(ALONG)), draw(st.integers(2, 4)))
        try:
            sharded(graph, [*shards, request])
        except DegreesError:
            continue
        shards.append(request)
    return graph, sharded(graph, shards)


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(sharded_steps())
def test_shards_compute_what_the_whole_does_with_its_products_parameters_and_state(
    found: tuple[Graph, Sharded],
) -> None:
    graph, step = found
    validate(step.graph)
    assert_shared_out(graph, step)
    wide = in_double(graph)
    shards = [Shard(module.module, module.along, len(module.sizes)) for module in step.modules]
    assert_computes_the_same(wide, sharded(wide, shards))


def assert_shared_out(graph: Graph, step: Sharded) -> None:
    """Products, parameters and state of ``graph`` are in ``step``, each once."""
    assert product_flops(step.graph) == product_flops(graph)
    for role in (Role.PARAMETER, Role.OPTIMIZER_STATE, Role.BUFFER, Role.INPUT):
        before, after = (
            sum(int(held.nbytes) for held in each.storages if held.role is role and held.birth is None)
            for each in (graph, step.graph)
        )
        counts = [held for held in step.graph.storages if held.role is role and held.name.endswith(".step")]
        again = sum(int(held.nbytes) for held in counts if ".shard" in held.name and ".shard0" not in held.name)
        assert after - again == before, role  # every shard counts steps itself
    for module in step.modules:
        assert max(module.sizes) - min(module.sizes) <= 1


def linear(optimizer: str = "sgd", rows: int = 5) -> Graph:
    return step_of(
        nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 7), nn.Tanh()), torch.randn(rows, 6), optimizer
    )


def names(graph: Graph, phase: Phase) -> list[str]:
    return [op.name.split(".")[1] for op in graph if op.phase is phase and not op.is_view]


def test_ops_between_parts() -> None:
    graph = linear()
    output = sharded(graph, [Shard("2", "output", 2)])
    assert names(output.graph, Phase.FORWARD)[2:5] == ["addmm", "addmm", "cat"]
    rows = sharded(graph, [Shard("2", "batch", 3)])
    assert names(rows.graph, Phase.FORWARD)[2:9] == ["clone"] * 3 + ["addmm"] * 3 + ["cat"]
    summed = sharded(graph, [Shard("2", "reduction", 2)])
    assert names(summed.graph, Phase.FORWARD)[2:7] == ["clone", "clone", "addmm", "mm", "add"]
    paired = sharded(graph, [Shard("0", "output", 2), Shard("1", "output", 2), Shard("2", "reduction", 2)])
    assert "cat" not in names(paired.graph, Phase.FORWARD)
    assert names(paired.graph, Phase.FORWARD).count("add") == 2  # of the two partial results, and of the loss


def test_state_of_a_shard_is_its_own() -> None:
    graph = linear("adam")
    step = sharded(graph, [Shard("2", "output", 3)])
    assert_shared_out(graph, step)
    sizes = {held.name: held.nbytes for held in step.graph.storages if held.name.startswith("2.weight")}
    assert [sizes[f"2.weight.shard{part}"] for part in range(3)] == [3 * 16, 2 * 16, 2 * 16]
    assert [sizes[f"2.weight.shard{part}.exp_avg"] for part in range(3)] == [48, 32, 32]
    assert [sizes[f"2.weight.shard{part}.grad"] for part in range(3)] == [48, 32, 32]
    assert "2.weight" not in sizes
    assert step.shards == ("2.shard0", "2.shard1", "2.shard2")


@pytest.mark.parametrize("along", ["output", "batch"])
def test_parts_of_the_output_have_the_bits_of_the_whole(along: Along) -> None:
    graph = in_double(linear(rows=4))
    step = sharded(graph, [Shard("2", along, 2)])
    given = given_values(graph)
    whole, parts = executed(graph, given), executed(step.graph, parts_given(step, given))
    (key,) = [key for key in whole if key[1] is Role.OUTPUT]
    assert torch.equal(whole[key], parts[key])


@pytest.mark.parametrize(
    ("shard", "message"),
    [
        ("3=reduction:2", r"3 cannot be sharded along its reduction: aten.tanh.default in 3 has no dimension"),
        ("2=output:9", r"2 cannot be .* output: aten.addmm.default in 2: an axis of 7 has no 9 parts"),
        ("1.norm=output:2", r"aten.native_layer_norm.default in 1.norm .* needs the whole of dimension 1 of \(5, 7\)"),
        ("nothing.*=batch:2", r"--shard nothing.\*=batch:2: no module of the step is called so; there are 0, 1, "),
    ],
)
def test_what_cannot_be_sharded_is_refused(shard: str, message: str) -> None:
    model = nn.Sequential(nn.Linear(6, 7), Perceptron(7, 5), nn.Linear(7, 7), nn.Tanh())
    with pytest.raises(DegreesError, match=message):
        sharded(step_of(model, torch.randn(5, 6), "sgd"), [Shard.parse(shard)])


def test_requests_that_contradict_each_other_are_refused() -> None:
    model = nn.Sequential(nn.Linear(6, 7), Perceptron(7, 5))
    graph = step_of(model, torch.randn(5, 6), "sgd")
    with pytest.raises(DegreesError, match=r"1\.up lies in 1, which is sharded already, by 1=batch:2"):
        sharded(graph, [Shard("1", "batch", 2), Shard("1.up", "output", 2)])
    with pytest.raises(DegreesError, match=r"--shard \*=output:3: 0 is sharded already, by 0=batch:2"):
        sharded(graph, [Shard("0", "batch", 2), Shard("*", "output", 3)])


@pytest.mark.parametrize("text", ["a", "a=output", "a=output:x", "=output:2", "a=width:2", "a=output:1", "a=output:-2"])
def test_texts_that_are_no_request(text: str) -> None:
    with pytest.raises(DegreesError):
        Shard.parse(text)
    assert str(Shard.parse("h.*.mlp=output:2")) == "h.*.mlp=output:2"


@given(st.integers(1, 100), st.integers(1, 9))
def test_sizes_differ_by_one(size: int, parts: int) -> None:
    sizes = sizes_of(size, parts)
    assert (sum(sizes), len(sizes)) == (size, parts)
    assert sorted(sizes, reverse=True) == list(sizes)
    assert sizes[0] - sizes[-1] <= 1


@functools.cache
def built_in(name: str) -> Graph:
    return placeable(tensortide.capture(name, hyperparameters=TINY[name], real=True))


@pytest.mark.parametrize(
    ("name", "shards"),
    [
        ("gpt2", ["blocks.*.attention=output:2", "blocks.0.down=reduction:3", "blocks.1.up=output:3", "norm=batch:2"]),
        ("gpt2", ["tokens=output:2"]),  # its table is the matrix of the last layer too
        ("llama", ["layers.*.attention=output:3", "layers.1.norm1=batch:2"]),
        pytest.param("mixtral", ["layers.*=batch:2"], marks=pytest.mark.slow),
        pytest.param("resnet18_cifar", ["groups.*=output:3", "stem=batch:2"], marks=pytest.mark.slow),
        pytest.param("unet", ["head=reduction:2", "down.*=output:2"], marks=pytest.mark.slow),
    ],
)
def test_known_models(name: str, shards: list[str]) -> None:
    graph = in_double(built_in(name))
    assert_computes_the_same(graph, sharded(graph, [Shard.parse(text) for text in shards]), tolerance=1e-7)
