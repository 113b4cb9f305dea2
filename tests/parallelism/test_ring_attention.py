"""Keys and values in a ring: results of the whole step; products, bytes and memory of ring attention as it is run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture, count
from tensortide.errors import DegreesError
from tensortide.examples.decoders import gpt2, llama
from tensortide.graph import Graph, Phase, validate
from tensortide.parallelism import Degrees, Ranks, per_rank
from tensortide.parallelism.degrees import KeysBy
from tensortide.parallelism.divided_step import Coordinates
from tensortide.parallelism.keys import ATTENTION
from tensortide.parallelism.rank_step import rank_step
from tensortide.parallelism.ring_attention import blocks
from tests.parallelism.captures import captured
from tests.parallelism.divided import Divided
from tests.parallelism.gloo_ranks import Spread
from tests.parallelism.ring_script import Ran
from tests.parallelism.test_numerics import TINY_GPT2, TINY_LLAMA, one_layer
from tests.run import ranks as processes

BATCH, HEADS, TOKENS, WIDTH = 2, 2, 16, 8


class Attends(nn.Module):
    """One causal attention between two products."""

    def __init__(self, dropout: float, causal: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 3 * HEADS * WIDTH), nn.Linear(HEADS * WIDTH, 16)
        self.dropout, self.causal = dropout, causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (part.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2) for part in self.first(x).chunk(3, -1))
        found = nn.functional.scaled_dot_product_attention(query, key, value, None, self.dropout, self.causal)
        return self.last(found.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def attends(dropout: float = 0.0, tokens: int = TOKENS, causal: bool = True, gpu: torch.dtype | None = None) -> Graph:
    """A step with attention, in double precision, or on a pretended GPU in the precision ``gpu``."""

    def workload() -> Callable[[], None]:
        how: dict[str, Any] = {"device": "cuda" if gpu else "cpu", "dtype": gpu or torch.float64}
        model, x = Attends(dropout, causal).to(**how), torch.randn(BATCH, tokens, 16, **how)

        def step() -> None:
            model(x).square().mean().backward()

        return step

    return capture(workload, machine="H100-SXM-80GB") if gpu else capture(workload, real=True)


@pytest.mark.parametrize("keys", ["ring", "zigzag"])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_blocks_are_all_that_a_causal_mask_leaves(keys: KeysBy, ranks: int) -> None:
    tokens, pairs = 6, []
    parts = torch.arange(ranks * tokens).chunk(2 * ranks)
    for rank in range(ranks):
        places = [
            torch.cat([parts[n], parts[-1 - n]] if keys == "zigzag" else parts[2 * n : 2 * n + 2]) for n in range(ranks)
        ]
        seen = torch.zeros(tokens, ranks * tokens, dtype=torch.int64)
        found = blocks(tokens, ranks, rank, causal=True, zigzag=keys == "zigzag")
        for step, block in enumerate(found):
            if block is not None:
                own = torch.ones(len(block.queries), len(block.keys), dtype=torch.int64)
                columns = places[(rank - step) % ranks][list(block.keys)]
                seen[torch.tensor(block.queries)[:, None], columns] += own.tril() if block.causal else own
        assert torch.equal(seen, (torch.arange(ranks * tokens) <= places[rank][:, None]).long())
        pairs.append(int(seen.sum()))
    assert (len(set(pairs)) == 1) == (keys == "zigzag")


EXECUTED: list[tuple[str, Any, dict[str, Any], dict[str, Any]]] = [
    ("gpt2", gpt2, one_layer(TINY_GPT2), {"context": 2, "keys": "zigzag"}),
    ("gpt2", gpt2, one_layer(TINY_GPT2), {"context": 4, "keys": "ring"}),
    ("llama", llama, one_layer(TINY_LLAMA), {"context": 4, "keys": "zigzag"}),
    ("llama", llama, TINY_LLAMA, {"data": 2, "context": 2, "tensor": 2, "keys": "zigzag", "zero": 1}),
    ("hf_llama", "hf_llama", TINY_LLAMA, {"pipeline": 2, "context": 2, "keys": "ring"}),
    ("hf_llama", "hf_llama", TINY_LLAMA, {"context": 2, "tensor": 2, "sequence": 1, "keys": "zigzag"}),
    ("llama", llama, one_layer(TINY_LLAMA), {"data": 2, "context": 2, "tensor": 2, "sequence": 1, "keys": "ring"}),
]


@pytest.mark.parametrize(
    ("name", "target", "sizes", "degrees"),
    [pytest.param(*each, marks=pytest.mark.slow if number else (), id=f"{each[0]} {each[3]}")
     for number, each in enumerate(EXECUTED)],
)  # fmt: skip
def test_ranks_compute_what_the_whole_step_computes(
    name: str, target: Any, sizes: dict[str, Any], degrees: dict[str, Any]
) -> None:
    Divided(captured(target, sizes), **degrees).assert_equal()


@pytest.mark.parametrize("keys", ["ring", "zigzag"])
def test_attention_that_is_not_causal_goes_around_too(keys: KeysBy) -> None:
    Divided(attends(causal=False), context=2, keys=keys).assert_equal()


def kernels(graph: Graph, phase: Phase) -> int:
    """FLOPs of the products in fused attention in a phase."""
    costs = (cost.cost for op, cost in zip(graph, count(graph).costs, strict=True)
             if op.name.startswith(f"aten.{ATTENTION}") and op.phase is phase)  # fmt: skip
    return sum(2 * int(cost.macs) for cost in costs if cost is not None)


def sent(ranks: Ranks, phase: Phase) -> int:
    """Bytes that a rank sends in a phase."""
    given = (op for op in ranks.graph if op.name == "c10d.send.default" and op.phase is phase)
    return sum(int(op.inputs[0].nbytes) for op in given)


@pytest.mark.slow
@pytest.mark.parametrize("keys", ["ring", "zigzag"])
def test_products_and_bytes_are_those_of_ring_attention_in_processes(keys: KeysBy, tmp_path: Path) -> None:
    world, graph = 4, attends()
    group = processes.Ranks(world, tmp_path)
    shape = (BATCH, HEADS, TOKENS, WIDTH)
    ran: list[Ran] = group.call("tests.parallelism.ring_script:attend", shape, keys == "zigzag")
    Spread(group, tmp_path, graph, context=world, keys=keys).assert_equal()
    group.close()
    assert all(each.is_equal for each in ran)
    for rank, each in enumerate(ran):
        step = rank_step(graph, Degrees(context=world, keys=keys), Coordinates(context=rank))
        divided = Ranks(Degrees(context=world, keys=keys), (step.graph,))
        for at, phase in enumerate((Phase.FORWARD, Phase.BACKWARD)):
            assert sent(divided, phase) == each.sent_bytes[at]
            recomputed = each.flops[at] // 5 if at else 0  # scores are no algorithmic product of the backward pass
            assert kernels(step.graph, phase) == each.flops[at] - recomputed
    assert len({each.flops for each in ran}) == (1 if keys == "zigzag" else world)


def test_a_rank_has_two_blocks_of_keys_and_half_of_the_products() -> None:
    graph, ranks = attends(tokens=256), 8
    found = {keys: per_rank(graph, Degrees(context=ranks, keys=keys)) for keys in ("gather", "ring", "zigzag")}
    block = BATCH * HEADS * (256 // ranks) * WIDTH * 8
    for phase, blocks_sent in ((Phase.FORWARD, 2 * (ranks - 1)), (Phase.BACKWARD, 2 * (2 * ranks - 1))):
        for keys in ("ring", "zigzag"):
            assert sent(found[keys], phase) == blocks_sent * block
        gathered, ring, zigzag = (kernels(found[keys].graph, phase) for keys in ("gather", "ring", "zigzag"))
        assert ring == gathered  # of the last rank, which sees all keys
        assert zigzag * 2 * ranks == gathered * (ranks + 1)
    assert found["ring"].peak_bytes[0] < found["gather"].peak_bytes[0] - (ranks - 4) * block


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_kernels_of_gpus_attend_to_a_block_at_a_time(dtype: torch.dtype) -> None:
    step = attends(tokens=256, gpu=dtype)
    ring, zigzag = (per_rank(step, Degrees(context=4, keys=keys)).graph for keys in ("ring", "zigzag"))
    for graph, lengths in ((ring, [64, 64, 64, 64]), (zigzag, [64, 32, 32, 32])):
        validate(graph)
        found = [op for op in graph if op.name.startswith(f"aten.{ATTENTION}")]
        assert [op.inputs[1].shape[2] for op in found if op.phase is Phase.FORWARD] == lengths
        assert [op.inputs[2].shape[2] for op in found if op.phase is Phase.BACKWARD] == lengths
        assert all(op.outputs[1].shape[2] == op.inputs[0].shape[2] for op in found if op.phase is Phase.FORWARD)


@pytest.mark.parametrize(
    ("graph", "degrees", "message"),
    [
        ({"dropout": 0.5, "gpu": torch.bfloat16}, {"context": 2, "keys": "ring"}, "has dropout: keys go in no ring"),
        (
            {"gpu": torch.float32},
            {"context": 2, "keys": "ring"},
            "pads parts of a sequence to 32 tokens: keys go in no ring",
        ),
        ({"tokens": 6}, {"context": 2, "keys": "zigzag"}, r"seq / \(2 \* context\) = 6/4 is no whole number"),
        ({}, {"data": 2, "keys": "ring"}, "keys by ring: context is 1"),
        ({}, {"context": 2, "keys": "star"}, "keys is 'star': it is one of gather, ring, zigzag"),
    ],
)
def test_what_goes_in_no_ring_is_refused(graph: dict[str, Any], degrees: dict[str, Any], message: str) -> None:
    with pytest.raises(DegreesError, match=message):
        per_rank(attends(**graph), Degrees(**degrees))


def test_attention_in_several_ops_goes_in_no_ring() -> None:
    step = captured(llama, one_layer(TINY_LLAMA, attention="eager"))
    with pytest.raises(DegreesError, match="is attention in several ops, whose keys go in no ring"):
        per_rank(step, Degrees(context=2, keys="ring"))
