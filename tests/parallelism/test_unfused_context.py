"""Attention in several ops (a product, a mask, a softmax, a product) of sequences that context ranks divide."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from tensortide import capture
from tensortide.errors import DegreesError
from tensortide.examples.decoders import gpt2
from tensortide.graph import Graph
from tensortide.parallelism import Degrees, per_rank, product_flops
from tests.marks import some_slow
from tests.parallelism.captures import captured
from tests.parallelism.divided import Divided
from tests.parallelism.test_context import exchanged
from tests.parallelism.test_numerics import TINY_GPT2

BATCH, SEQ, VOCAB = 2, 8, 32
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "vocab_size": VOCAB, "attn_implementation": "eager"}
ROTARY = {
    **SIZES,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8,
}
ENCODER = {**SIZES, "intermediate_size": 24, "num_attention_heads": 4, "type_vocab_size": 8}


def of_library(kind: str, **sizes: Any) -> Graph:
    """A step of a model of ``transformers`` with random weights."""

    def workload() -> Callable[[], None]:
        model: Any = getattr(transformers, kind)
        model = model(model.config_class(**sizes, use_cache=False)).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ids, labels = (torch.randint(0, VOCAB, (BATCH, SEQ)) for _ in range(2))
        given = {"decoder_input_ids": ids.clone()} if kind.startswith("T5") else {}
        kept = {"attention_mask": torch.ones(BATCH, SEQ, dtype=torch.long)} if kind.startswith("Bert") else {}

        def step() -> None:
            optimizer.zero_grad()
            logits = model(input_ids=ids, **given, **kept).logits
            nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
            optimizer.step()

        return step

    return capture(workload, real=True)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    some_slow(
        [
            ("LlamaForCausalLM", {**ROTARY}),  # keys and values repeated for groups of heads
            ("Gemma2ForCausalLM", {**ROTARY, "head_dim": 4, "sliding_window": 4}),  # two masks, capped scores
            ("BertForMaskedLM", ENCODER),
            ("BloomForCausalLM", {**SIZES, "n_head": 4}),  # a bias for each key, that inputs give
            ("T5ForConditionalGeneration", {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 1, "num_heads": 4}),
        ],
        [("LlamaForCausalLM", {**ROTARY}), ("BertForMaskedLM", ENCODER)],
    ),
)
def test_models_of_the_library_are_exact(kind: str, sizes: dict[str, Any]) -> None:
    if kind.startswith("T5"):  # a bias for each pair of positions, of a table that is trained
        sizes = {**sizes, "vocab_size": VOCAB, "dropout_rate": 0.0}
    if kind.startswith(("Bert", "Bloom")):
        sizes = {**sizes, **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)}
        sizes = {**sizes, **dict.fromkeys(("hidden_dropout", "attention_dropout"), 0.0)}
    Divided(of_library(kind, **sizes), context=2).assert_equal()


class Tril(nn.Module):
    """Attention masked with a triangle that is a buffer, as many write it."""

    def __init__(self, *, causal: bool, einsum: bool = False) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.causal, self.einsum = causal, einsum
        self.register_buffer("triangle", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, width = x.shape
        query, key, value = (part.view(batch, seq, 4, 4) for part in self.qkv(x).split(16, 2))
        if self.einsum:
            chances = torch.einsum("bqhd,bkhd->bhqk", query, key).softmax(-1)
            return self.out(torch.einsum("bhqk,bkhd->bqhd", chances, value).flatten(2))  # type: ignore[no-any-return]
        scores = query.transpose(1, 2) @ key.permute(0, 2, 3, 1) / math.sqrt(4)
        if self.causal:
            scores = scores.masked_fill(self.triangle[:, :, :seq, :seq] == 0, float("-inf"))  # type: ignore[index]
        mixed = scores.softmax(-1) @ value.transpose(1, 2)
        return self.out(mixed.transpose(1, 2).reshape(batch, seq, width))  # type: ignore[no-any-return]


def step_of(make: Callable[[], nn.Module]) -> Callable[[], Callable[[], None]]:
    def workload() -> Callable[[], None]:
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, target = torch.randn(BATCH, SEQ, 16), torch.randn(BATCH, SEQ, 16)

        def step() -> None:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), target).backward()
            optimizer.step()

        return step

    return workload


@pytest.mark.parametrize(("causal", "context"), [(False, 2), (True, 4)])
def test_products_with_masks_of_buffers_are_exact(causal: bool, context: int) -> None:
    def two() -> nn.Module:
        return nn.Sequential(Tril(causal=causal), nn.Tanh(), Tril(causal=causal, einsum=True))

    triangle = torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16)
    given = {f"{layer}.triangle": triangle for layer in (0, 2)}
    Divided(capture(step_of(two), real=True), given, context=context).assert_equal()


@pytest.mark.parametrize("context", [2, 4])
def test_keys_and_values_travel_as_with_a_fused_kernel(context: int) -> None:
    """Keys and values are gathered before the two products, again for two in the backward pass, and both gradients are
    scattered: layers x 2 x batch x seq x hidden of 4 bytes for each."""
    graph = captured(gpt2, {**TINY_GPT2, "attention": "eager"})
    found = exchanged(graph, Degrees(context=context))
    whole = TINY_GPT2["layers"] * 2 * TINY_GPT2["batch"] * TINY_GPT2["seq"] * TINY_GPT2["hidden"] * 4
    assert found["context", "all_gather", "forward"] == whole
    assert found["context", "all_gather", "backward"] == whole
    assert found["context", "reduce_scatter", "backward"] == whole
    fused = exchanged(captured(gpt2, TINY_GPT2), Degrees(context=context))
    assert fused["context", "all_gather", "forward"] == whole


def test_scores_are_those_of_the_queries_of_a_rank() -> None:
    seq = 16
    graph = captured(gpt2, {**TINY_GPT2, "attention": "eager", "seq": seq})
    rank = per_rank(graph, Degrees(context=4)).graph
    heads = TINY_GPT2["batch"] * TINY_GPT2["heads"]
    scores = [
        op.outputs[0].shape for op in rank if op.name == "aten.bmm.default" and op.outputs[0].shape[1:] == (4, seq)
    ]
    assert len(scores) == TINY_GPT2["layers"] * 2  # and their gradients
    assert set(scores) == {(heads, seq // 4, seq)}
    assert product_flops(rank) * 4 == product_flops(graph)


def test_tokens_multiplied_with_each_other_without_a_softmax_are_named() -> None:
    class Similar(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.linear(x)
            return torch.bmm(torch.bmm(hidden, hidden.transpose(1, 2)), hidden)

    with pytest.raises(
        DegreesError, match=r"context=2: aten\.bmm\.default in \(root\).* no softmax says which are keys"
    ):
        per_rank(capture(step_of(Similar), real=True), Degrees(context=2))
