"""Context parallelism: ranks with parts of each sequence compute together what the whole step computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.errors import DegreesError
from tensortide.examples.decoders import gpt2, llama
from tensortide.graph import Graph
from tensortide.parallelism import Degrees, per_rank, product_flops
from tests.parallelism.captures import captured
from tests.parallelism.test_numerics import TINY_GPT2, TINY_LLAMA


def exchanged(graph: Graph, degrees: Degrees) -> dict[tuple[str, str, str], int]:
    found: dict[tuple[str, str, str], int] = {}
    for each in per_rank(graph, degrees).collectives:
        key = each.group, each.kind, each.phase
        found[key] = found.get(key, 0) + each.nbytes
    return found


@pytest.mark.parametrize("context", [2, 4])
def test_keys_and_values_travel_as_much_as_in_a_ring(context: int) -> None:
    graph = captured(llama, TINY_LLAMA)
    found = exchanged(graph, Degrees(context=context))
    layers, batch, seq, width = 2, TINY_LLAMA["batch"], TINY_LLAMA["seq"], 4 * 32 // 8
    whole = layers * 2 * batch * seq * width * 4  # keys and values of all tokens, of each layer
    ring = layers * (context - 1) * 2 * batch * (seq // context) * width * 4  # what a rank receives, chunk by chunk
    for phase in ("forward", "backward"):
        assert found["context", "all_gather", phase] == whole
        assert whole * (context - 1) // context == ring
    assert found["context", "reduce_scatter", "backward"] == whole
    gradients = found["data", "all_reduce", "backward"]
    assert gradients == exchanged(graph, Degrees(data=context))["data", "all_reduce", "backward"]


@pytest.mark.parametrize("degrees", [{"context": 4}, {"context": 2, "tensor": 2}, {"data": 2, "context": 2}])
def test_products_of_all_ranks_are_those_of_the_step(degrees: dict[str, Any]) -> None:
    graph = captured(gpt2, TINY_GPT2)
    ranks = per_rank(graph, Degrees(**degrees))
    assert not ranks.replicated
    assert product_flops(ranks.graph) * ranks.degrees.devices == product_flops(graph)


def test_activations_are_divided_and_parameters_are_not() -> None:
    sizes = {**TINY_GPT2, "seq": 64, "positions": 64, "batch": 8}
    graph = capture(gpt2, hyperparameters=sizes, real=True)
    whole, half = (per_rank(graph, Degrees(context=context)).peak_bytes[0] for context in (1, 2))
    given = sum(int(s.nbytes) for s in graph.storages if s.birth is None)
    assert half - given < 0.6 * (whole - given)


def step_of(make: Any, *shape: int) -> Any:
    def workload() -> Any:
        model, x = make(), torch.randn(shape)

        def step() -> None:
            model(x).square().mean().backward()

        return step

    return workload


class Summed(nn.Module):
    """Sums over time before a product."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.linear, self.how = nn.Linear(8, 8), how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(x)
        if self.how == "cumsum":
            return hidden.cumsum(1)  # type: ignore[no-any-return]
        return hidden.mean(1) if self.how == "mean" else hidden[:, 1:]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("cumsum", r"aten\.cumsum\.default in .*test_context\.py:\d+\) needs the whole of dimension 1 of \(4, 6, 8\)"),
        ("mean", r"aten\.mean\.dim in .* reduces each sequence"),
        ("shift", r"aten\.slice\.Tensor in .*: a view"),
    ],
)
def test_what_needs_whole_sequences_is_named_with_op_line_and_dimension(how: str, message: str) -> None:
    with pytest.raises(DegreesError, match=message):
        per_rank(capture(step_of(lambda: Summed(how), 4, 6, 8), real=True), Degrees(context=2))


def test_statistics_over_a_batch_are_not_those_of_parts_of_sequences() -> None:
    class Normalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x.flatten(0, 1)).view_as(x)  # type: ignore[no-any-return]

    with pytest.raises(DegreesError, match=r"aten\.\w*batch_norm\w*\.default in norm .*needs the whole of"):
        per_rank(capture(step_of(Normalized, 4, 6, 8), real=True), Degrees(context=2))


def test_recurrence_over_time_is_refused() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.GRU(8, 8, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)[0]  # type: ignore[no-any-return]

    with pytest.raises(DegreesError, match="context=2 does not divide this step: aten"):
        per_rank(capture(step_of(Last, 4, 6, 8), real=True), Degrees(context=2))


def test_a_parameter_with_a_row_for_each_position_is_named() -> None:
    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places = nn.Parameter(torch.zeros(6, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.places

    with pytest.raises(DegreesError, match=r"the parameter places \(6, 8\) has the sequence as an axis"):
        per_rank(capture(step_of(Placed, 4, 6, 8), real=True), Degrees(context=2))


def test_a_window_of_kept_keys_and_values_is_refused_with_what_to_do() -> None:
    def step(*, use_cache: bool) -> Graph:
        from transformers import MistralConfig, MistralForCausalLM

        config = MistralConfig(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            sliding_window=4,
            use_cache=use_cache,
        )
        model, ids = MistralForCausalLM(config), torch.zeros(2, 8, dtype=torch.int64)

        def train() -> torch.Tensor:
            loss: torch.Tensor = model(input_ids=ids, labels=ids).loss
            loss.backward()
            return loss

        return capture(train, real=True)

    per_rank(step(use_cache=False), Degrees(context=2))
    with pytest.raises(DegreesError, match=r"cache_utils\.py:.*: build it with use_cache=False$"):
        per_rank(step(use_cache=True), Degrees(context=2))
