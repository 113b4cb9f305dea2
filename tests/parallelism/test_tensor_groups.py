"""Fewer heads of keys and values than tensor ranks: sub-groups share one, and compute what the whole step does."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import pytest

from tensortide import capture
from tensortide.errors import DegreesError
from tensortide.graph import Graph, Role
from tensortide.parallelism import Degrees, per_rank, product_flops
from tensortide.parallelism.analysis import analyzed
from tensortide.parallelism.tensor_groups import group_sizes
from tests.marks import some_slow

BATCH, SEQ, HIDDEN, HEADS, OF_KEYS, WIDTH = 2, 8, 32, 8, 2, 64
SIZES = {"layers": 1, "batch": BATCH, "seq": SEQ, "hidden": HIDDEN, "heads": HEADS, "kv_heads": OF_KEYS, "vocab": 64}


@functools.cache
def llama() -> Graph:
    return capture("llama", hyperparameters={**SIZES, "intermediate": WIDTH}, real=True)


@functools.cache
def heads_of(name: str, heads: int, of_keys: int) -> Graph:
    sizes = {**SIZES, "heads": heads, "kv_heads": of_keys, "hidden": 4 * heads}
    return capture(name, hyperparameters={**sizes, "intermediate": WIDTH}, real=True)


@pytest.mark.parametrize("name", ["llama", "hf_llama"])
def test_sub_groups_are_those_that_divide_heads_and_queries(name: str) -> None:
    few = analyzed(heads_of(name, 8, 2))
    assert [group_sizes(few, ranks) for ranks in (2, 4, 8, 16)] == [(), (2,), (4,), ()]


@pytest.mark.parametrize("name", some_slow(["llama", "hf_llama"], ["hf_llama"]))
def test_heads_of_keys_and_of_queries_decide_the_sub_groups(name: str) -> None:
    assert [group_sizes(analyzed(heads_of(name, 8, of)), 8) for of in (1, 4, 8)] == [(), (2,), ()]
    assert group_sizes(analyzed(heads_of(name, 12, 6)), 4) == (2,)


def test_a_step_without_groups_of_queries_has_no_sub_groups() -> None:
    sizes = {"layers": 1, "batch": 2, "seq": 8, "hidden": 48, "heads": 12, "vocab": 64, "positions": 8}
    assert [group_sizes(analyzed(capture("gpt2", hyperparameters=sizes, real=True)), ranks) for ranks in (4, 8)] == [
        (),
        (),
    ]


@pytest.mark.parametrize(("tensor", "within"), [(4, 2), (8, 4)])
def test_each_rank_has_the_head_that_it_needs(tensor: int, within: int) -> None:
    ranks = per_rank(llama(), Degrees(tensor=tensor, kv_group=within))
    named = {e.name: ranks.graph.tensors[e.tensor].numel for e in ranks.graph.named if e.role is Role.PARAMETER}
    head = HIDDEN // HEADS
    assert named["layers.0.attention.key.weight"] == named["layers.0.attention.value.weight"] == head * HIDDEN
    assert named["layers.0.attention.query.weight"] == HEADS // tensor * head * HIDDEN
    assert {each.module.rsplit(".", 1)[1] for each in ranks.replicated} == {"key", "value"}
    extra = sum(each.flops for each in ranks.replicated) * (within - 1) * (tensor // within)
    assert product_flops(ranks.graph) * tensor == product_flops(llama()) + extra


def test_gradients_of_keys_and_values_are_summed_within_the_sub_group() -> None:
    ranks = per_rank(llama(), Degrees(tensor=8, kv_group=4))
    sizes = Counter(
        int(op.inputs[0].region_bytes)
        for op in ranks.graph
        if "allreduce" in op.name and op.phase.value == "backward" and "within" in str(dict(op.call.arguments))
    )
    assert sizes[BATCH * SEQ * HIDDEN // HEADS * 4] == 2  # of keys and of values, of one head
    assert sizes[BATCH * SEQ * HIDDEN * 4] == 1  # of what queries read, before that of keys and values is added
    groups = {e.group: e.number for e in ranks.collectives if e.phase == "forward"}
    assert groups["tensor"] > groups["tensor_within"] == groups["tensor_across"] == 1  # of the embedding


@pytest.mark.parametrize(
    ("degrees", "message"),
    [
        ({"tensor": 8, "kv_group": 3}, r"tensor / kv-group = 8/3 are not several groups of several ranks"),
        ({"tensor": 8, "kv_group": 8}, r"tensor / kv-group = 8/8 are not several groups"),
        ({"tensor": 8, "kv_group": 4, "sequence": 1}, r"kv-group: sequence parallelism .* goes without sub-groups"),
    ],
)
def test_what_does_not_divide_is_refused(degrees: dict[str, Any], message: str) -> None:
    with pytest.raises(DegreesError, match=message):
        per_rank(llama(), Degrees(**degrees))
