"""Caches of inference steps: recognized by what the step does to them, and as large as arithmetic says."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional

from tensortide import capture, count, report, timeline
from tensortide.graph import Graph, Role

HEADS, WIDTH, LENGTH = 2, 4, 16
ENTRY = 4 * HEADS * WIDTH
"""Bytes of the keys, or of the values, of one token in one layer."""


def attend(key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(torch.ones(1, HEADS, 1, WIDTH), key, value)


def entries(length: int) -> torch.Tensor:
    return torch.zeros(1, HEADS, length, WIDTH)


def growing_list() -> Any:
    """Pairs in a local list, each replaced by its concatenation."""
    cache = [(entries(LENGTH), entries(LENGTH)) for _ in range(2)]

    def step() -> Any:
        for layer, pair in enumerate(cache):
            key, value = (torch.cat([old, entries(1) + 1], 2) for old in pair)
            cache[layer] = key, value
        return [attend(*pair) for pair in cache]

    return step


def window() -> Any:
    """The last entries of the concatenation of old and new ones."""
    cache = {"key": entries(LENGTH), "value": entries(LENGTH)}

    def step() -> Any:
        for name in cache:
            cache[name] = torch.cat([cache[name], entries(1) + 1], 2)[:, :, 1:]
        return attend(cache["key"], cache["value"])

    return step


def written(place: Callable[[torch.Tensor], Any]) -> Callable[[], Any]:
    """A static cache, written by ``place``."""

    def workload() -> Any:
        keys, values = entries(LENGTH), entries(LENGTH)

        def step() -> Any:
            place(keys)
            place(values)
            return attend(keys, values)

        return step

    return workload


def at_place(cache: torch.Tensor) -> None:
    cache[:, :, 3] = torch.ones(1, HEADS, WIDTH)


def by_index(cache: torch.Tensor) -> None:
    cache.index_copy_(2, torch.tensor([3]), entries(1))


def rolled(cache: torch.Tensor) -> None:
    cache.copy_(torch.cat([cache[:, :, 1:], entries(1)], 2))


class Layer(nn.Module):
    """A layer with a cache among its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", entries(LENGTH))
        self.register_buffer("values", entries(LENGTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend to what the buffers hold."""
        for cache in (self.keys, self.values):
            assert isinstance(cache, torch.Tensor)
            cache[:, :, 3:4] = x
        assert isinstance(self.keys, torch.Tensor)
        assert isinstance(self.values, torch.Tensor)
        return attend(self.keys, self.values)


def buffers() -> Any:
    layer, x = Layer(), entries(1)
    return lambda: layer(x)


class Cache:
    """Keys and values as an object."""

    def __init__(self, *made: torch.Tensor) -> None:
        self.keys, self.values = made


def prefill() -> Any:
    """The first step, which makes the cache."""
    x = entries(LENGTH)

    def step() -> Any:
        made = Cache(x + 1, x + 2)
        return attend(made.keys, made.values), made

    return step


def cached(graph: Graph) -> dict[str, int]:
    """The bytes of each cache that the step leaves, by name."""
    found = [entry for entry in graph.named if entry.role is Role.CACHE]
    return {entry.name: graph.tensors[entry.tensor].nbytes for entry in found}


@pytest.mark.parametrize(
    ("workload", "names", "tokens"),
    [
        (growing_list, ["cache[0][0]", "cache[0][1]", "cache[1][0]", "cache[1][1]"], LENGTH + 5),
        (window, ["cache.key", "cache.value"], LENGTH + 1),
        (written(at_place), ["keys", "values"], LENGTH),
        (written(by_index), ["keys", "values"], LENGTH),
        (written(rolled), ["keys", "values"], LENGTH),
        (buffers, ["layer.keys", "layer.values"], LENGTH),
        (prefill, ["output.keys", "output.values"], LENGTH),
    ],
)
def test_a_cache_is_found_whatever_holds_it(workload: Any, names: list[str], tokens: int) -> None:
    """A list grows in each of five steps, the warm-up among them; a window keeps the storage of the concatenation."""
    graph = capture(workload)
    assert [*cached(graph)] == names
    assert set(cached(graph).values()) == {tokens * ENTRY}
    assert count(graph).sizes.cache_bytes == len(names) * tokens * ENTRY
    assert timeline(graph).by_role[Role.CACHE].max() >= len(names) * tokens * ENTRY


def batch_in_place() -> Any:
    """A batch that is copied to where the model reads it."""
    here, batch = torch.zeros(2, 3, 8, 8), torch.ones(2, 3, 8, 8)
    return lambda: here.copy_(batch).sum(3)


def normalized() -> Any:
    """A model in the mode for training, whose statistics run."""
    layer, x = nn.BatchNorm2d(3), torch.ones(2, 3, 8, 8)

    def step() -> Any:
        with torch.no_grad():
            return layer(x)

    return step


def in_place() -> Any:
    x = torch.ones(2, 3, 8, 8)
    return lambda: x.relu_().sum(3)


def counted() -> Any:
    """Statistics of codes, as of a table that is learnt by counting."""
    table, codes = torch.zeros(8, 4), torch.tensor([1, 3])
    return lambda: table.index_add_(0, codes, torch.ones(2, 4)).sum()


def joined() -> Any:
    x = torch.ones(2, 3, 8, 8)
    return lambda: torch.cat([x, x * 2])


def trained() -> Any:
    """A training step that writes to a memory of features."""
    layer, memory = nn.Linear(4, 4), entries(LENGTH)

    def step() -> Any:
        memory[:, :, 3] = layer(torch.ones(HEADS, WIDTH)).detach()
        layer(memory).sum().backward()

    return step


@pytest.mark.parametrize("workload", [batch_in_place, normalized, in_place, counted, joined, trained])
def test_other_state_is_no_cache(workload: Any) -> None:
    graph = capture(workload)
    assert not cached(graph)
    assert all(storage.role is not Role.CACHE for storage in graph.storages)
    assert count(graph).sizes.cache_bytes == 0


# -- families of models ---------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LLAMA: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    **SMALL,
}
BATCH, PROMPT = 3, 12


class Family(NamedTuple):
    """Settings, and the numbers that a token leaves in all layers."""

    settings: dict[str, Any]
    per_token: int


FAMILIES = {
    "GPT2": Family({"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, **SMALL}, 2 * 2 * 32),
    "GPTNeoX": Family({k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}, 2 * 2 * 32),
    "GPTBigCode": Family({"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, **SMALL}, 2 * 2 * 8),
    "Llama": Family(LLAMA, 2 * 2 * 2 * 8),
    "Qwen2": Family(LLAMA, 2 * 2 * 2 * 8),
    "Gemma": Family({**LLAMA, "head_dim": 16, "num_key_value_heads": 1}, 2 * 2 * 1 * 16),
    "Mixtral": Family({**LLAMA, "num_local_experts": 4}, 2 * 2 * 2 * 8),
    "DeepseekV3": Family(
        {
            **LLAMA,
            "num_key_value_heads": 4,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "moe_intermediate_size": 16,
            "first_k_dense_replace": 1,
        },
        2 * (16 + 8),  # the latent, and the part of keys with positions
    ),
}


@pytest.mark.slow  # transformers is imported
@pytest.mark.parametrize("family", FAMILIES)
def test_each_token_leaves_what_arithmetic_says(family: str) -> None:
    transformers = pytest.importorskip("transformers")
    settings, per_token = FAMILIES[family]
    config = getattr(transformers, f"{family}Config")(**settings)

    kind = getattr(transformers, f"{family}ForCausalLM", None) or getattr(transformers, f"{family}LMHeadModel")
    given = "cache" if "cache" in inspect.signature(kind.forward).parameters else "past_key_values"

    def decode(static: bool) -> Any:
        model = kind(config).eval()
        make = transformers.StaticCache if static else transformers.DynamicCache
        cache = make(config=config, **({"max_cache_len": 40} if static else {}))
        token = torch.zeros(BATCH, 1, dtype=torch.long)

        def step() -> Any:
            with torch.no_grad():
                return model(token, **{given: cache}, use_cache=True).logits

        with torch.no_grad():
            model(torch.zeros(BATCH, PROMPT, dtype=torch.long), **{given: cache}, use_cache=True)
        return step

    def first() -> Any:
        model, ids = kind(config).eval(), torch.zeros(BATCH, PROMPT).long()

        def step() -> Any:
            with torch.no_grad():
                return model(ids, use_cache=True)

        return step

    each = 4 * BATCH * per_token
    prefill = capture(first)
    assert count(prefill).sizes.cache_bytes == report(prefill)["cost"].fact("cache_bytes") == PROMPT * each
    assert count(capture(decode, hyperparameters={"static": False})).sizes.cache_bytes == (PROMPT + 5) * each
    assert count(capture(decode, hyperparameters={"static": True})).sizes.cache_bytes == 40 * each
