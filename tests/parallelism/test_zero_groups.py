"""ZeRO in groups of ranks, each of which has all: parts of gradients are averaged over the groups as well."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tensortide.errors import DegreesError
from tensortide.examples.decoders import gpt2
from tensortide.graph import Graph, Role
from tensortide.parallelism import Degrees, per_rank
from tensortide.parallelism.closed import Configuration, Transformer, predict_step, rank_memory
from tensortide.parallelism.closed.configuration import objections
from tensortide.timing.collectives import Nodes, nodes_of
from tests.parallelism.captures import captured
from tests.parallelism.test_numerics import TINY_GPT2

SEVEN_B = Transformer(layers=32, hidden=4096, heads=32, seq=2048, feedforward=11008, gated=True, vocab=32000)


def exchanged(graph: Graph, degrees: Degrees) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for each in per_rank(graph, degrees).collectives:
        found[each.group, each.kind] = found.get((each.group, each.kind), 0) + each.nbytes
    return found


def test_parts_are_exchanged_within_and_across_groups() -> None:
    """By hand: every gradient is scattered in its group of 2, half of it averaged over both groups, and every parameter
    gathered in the group; ZeRO 3 gathers those of blocks for both passes, those of none once."""
    graph = captured(gpt2, TINY_GPT2)
    tensors = {e.tensor: e.name for e in graph.named if e.role is Role.PARAMETER}
    named = [(name, int(graph.tensors[tensor].region_bytes)) for tensor, name in tensors.items()]
    whole = sum(nbytes for _, nbytes in named)
    found = exchanged(graph, Degrees(data=4, zero=1, zero_group=2))
    assert found["zero", "reduce_scatter"] == whole
    assert found["zero_data", "all_reduce"] == whole // 2
    assert found["zero", "all_gather"] == whole
    assert not {kind for group, kind in found if group == "data"}
    blocks = sum(nbytes for name, nbytes in named if "blocks." in name)
    assert exchanged(graph, Degrees(data=4, zero=3, zero_group=2))["zero", "all_gather"] == whole + blocks


def test_a_rank_has_the_share_of_its_group() -> None:
    graph = captured(gpt2, TINY_GPT2)

    def states(**degrees: Any) -> int:
        rank = per_rank(graph, Degrees(**degrees)).graph
        return sum(int(s.nbytes) for s in rank.storages if s.role is Role.OPTIMIZER_STATE)

    assert states(data=4, zero=1, zero_group=2) == states(data=2, zero=1)
    assert states(data=4, zero=1, zero_group=4) == states(data=4, zero=1)


@pytest.mark.parametrize(
    ("degrees", "message"),
    [
        ({"data": 8, "zero_group": 4}, "groups shard with ZeRO 1, 2 or 3"),
        ({"data": 8, "zero": 2, "zero_group": 3}, r"data \* context / zero-group = 8/3 is no whole number"),
        ({"data": 8, "zero": 2, "zero_group": 1}, "a group of one shards nothing"),
        ({"data": 8, "zero": 2, "zero_group": 4, "expert": 2}, "experts are sharded over all ranks"),
    ],
)
def test_groups_that_do_not_divide_the_ranks_are_named(degrees: dict[str, Any], message: str) -> None:
    with pytest.raises(DegreesError, match=message):
        per_rank(captured(gpt2, TINY_GPT2), Degrees(**degrees))
    shape = replace(SEVEN_B, experts=8) if "expert" in degrees else SEVEN_B
    assert any(
        message.split("/")[-1] in reason or "zero-group" in reason
        for reason in objections(Configuration(batch=8, **degrees), shape)
    )


def nodes(number: int) -> Nodes:
    return nodes_of("A100-SXM-80GB", devices_per_node=8, nodes=number)


def tokens_per_device(devices: int, group: int, micro_batches: int) -> float:
    one = Configuration(batch=micro_batches * devices, data=devices, zero=3, zero_group=group, recompute="none")
    one = replace(one, fused_attention=True, overlap_data=True)
    seconds = predict_step(SEVEN_B, one, nodes(devices // 8)).time.time_ns / 1e9
    return micro_batches * SEVEN_B.seq / seconds


def test_groups_of_a_node_lose_less_than_all_ranks() -> None:
    """At fixed work per device, 8 to 1024 of them: groups gather parameters within a node, whatever the number of
    nodes, and average parts once for all micro-batches."""
    everybody, groups = ([tokens_per_device(devices, g, 8) for devices in (8, 64, 1024)] for g in (0, 8))
    assert everybody[0] == pytest.approx(groups[0])
    assert everybody[2] < 0.9 * groups[2]
    assert groups[2] > 0.95 * groups[1]


def test_one_group_of_all_ranks_is_as_none() -> None:
    one = Configuration(batch=64, data=64, zero=3)
    whole = replace(one, zero_group=64)
    assert predict_step(SEVEN_B, one, nodes(8)).parts == predict_step(SEVEN_B, whole, nodes(8)).parts
    assert rank_memory(SEVEN_B, one) == rank_memory(SEVEN_B, whole)
    assert rank_memory(SEVEN_B, replace(one, zero_group=8)).states == 8 * rank_memory(SEVEN_B, one).states
