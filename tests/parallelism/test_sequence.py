"""Sequence parallelism of a captured step: tensor ranks have parts of each sequence between products they divide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.errors import DegreesError
from tensortide.examples.decoders import llama, mixtral
from tensortide.graph import Graph
from tensortide.parallelism import Degrees, per_rank, product_flops
from tests.marks import some_slow
from tests.parallelism.captures import captured
from tests.parallelism.divided import Divided
from tests.parallelism.test_numerics import TINY_LLAMA, TINY_MIXTRAL

LAYERS = 2


def test_a_loss_over_all_tokens_is_that_of_gathered_ones() -> None:
    """The gradient of a mean over tokens and features needs all of them: they are gathered before it."""

    def workload() -> Any:
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        x, target = torch.randn(2, 8, 16), torch.randn(2, 8, 16)

        def step() -> None:
            optimizer.zero_grad()
            nn.functional.mse_loss(layer(x), target).backward()
            optimizer.step()

        return step

    Divided(capture(workload, real=True), tensor=2, sequence=1).assert_equal()


def trained(block: Callable[[], nn.Module]) -> Graph:
    """One step of two blocks of width 16 and a classifier of every token."""

    def workload() -> Any:
        model = nn.Sequential(block(), block(), nn.Linear(16, 8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, target = torch.randn(2, 8, 16), torch.randint(0, 8, (16,))

        def step() -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x).flatten(0, 1), target).backward()
            optimizer.step()

        return step

    return capture(workload, real=True)


class NormedHeads(nn.Module):
    """Attention whose queries are divided by their ``size`` over all heads, which tensor ranks divide."""

    def __init__(self, size: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.before, self.norm, self.size = nn.Linear(16, 16), nn.LayerNorm(16), size
        self.query, self.key, self.value, self.out = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x + self.before(x))
        query = self.query(x)
        query = query / (self.size(query) + 0.5)
        heads = [part.unflatten(-1, (4, 4)).transpose(1, 2) for part in (query, self.key(x), self.value(x))]
        made = nn.functional.scaled_dot_product_attention(*heads)
        return x + self.out(made.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "size",
    [
        lambda query: query.pow(2).mean(-1, keepdim=True).sqrt(),
        lambda query: query.abs().sum(-1, keepdim=True),
        lambda query: query.norm(dim=-1, keepdim=True),
        lambda query: query.detach().abs().amax(-1, keepdim=True),
    ],
    ids=["average", "sum", "norm", "maximum"],
)
def test_norms_over_divided_heads_are_exact(size: Callable[[torch.Tensor], torch.Tensor]) -> None:
    graph = trained(lambda: NormedHeads(size))
    rank = per_rank(graph, Degrees(tensor=2, sequence=1)).graph
    assert any(op.name == "c10d.reduce_scatter_tensor_coalesced_.default" for op in rank)
    Divided(graph, tensor=2, sequence=1).assert_equal()


class MultiQuery(nn.Module):
    """Heads that share keys and values, of one product that ranks do not divide, and layers that they divide."""

    def __init__(self) -> None:
        super().__init__()
        self.joint, self.out = nn.Linear(16, 24), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.joint(x).split((16, 4, 4), -1)
        query = query.unflatten(-1, (4, 4)).transpose(1, 2)
        made = nn.functional.scaled_dot_product_attention(query, key[:, None], value[:, None], enable_gqa=True)
        x = x + self.out(made.transpose(1, 2).flatten(2))
        return x + self.down(torch.relu(self.up(x)))  # type: ignore[no-any-return]


def test_attention_that_all_ranks_compute_is_exact() -> None:
    """Its result has tokens and heads in another order in memory than in its shape."""
    Divided(trained(MultiQuery), tensor=2, sequence=1).assert_equal()


def exchanged(graph: Graph, degrees: Degrees) -> dict[tuple[str, str], tuple[int, int]]:
    """Number and bytes of the collectives of the tensor group, by kind and phase."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for each in per_rank(graph, degrees).collectives:
        number, nbytes = found.get((each.kind, each.phase), (0, 0))
        found[each.kind, each.phase] = (number + each.number, nbytes + each.nbytes)
    return found


@pytest.mark.parametrize("tensor", [2, 4])
def test_an_all_reduce_becomes_a_reduce_scatter_and_an_all_gather(tensor: int) -> None:
    """By hand, of batch x seq x hidden in 4 bytes each. Forward: the embedding and two products of a layer are
    scattered, inputs of two products and of the head gathered. Backward: gradients of the inputs are scattered; those
    of the outputs are gathered, and the inputs once more for gradients of weights."""
    graph = captured(llama, TINY_LLAMA)
    one = TINY_LLAMA["batch"] * TINY_LLAMA["seq"] * TINY_LLAMA["hidden"] * 4
    found = exchanged(graph, Degrees(tensor=tensor, sequence=1))
    both = 2 * LAYERS + 1
    assert found["reduce_scatter", "forward"] == found["all_gather", "forward"] == (both, both * one)
    assert found["reduce_scatter", "backward"] == (both, both * one)
    assert found["all_gather", "backward"] == (2 * both, 2 * both * one)
    plain = exchanged(graph, Degrees(tensor=tensor))
    numbers = found["all_reduce", "forward"][1]  # of the softmax over a divided vocabulary
    assert plain["all_reduce", "forward"][1] - numbers == both * one


def test_tensor_ranks_divide_parts_of_sequences_that_context_ranks_have() -> None:
    sizes = {**TINY_LLAMA, "layers": 1, "batch": 1, "seq": 4}
    Divided(captured(llama, sizes), context=2, tensor=2, sequence=1).assert_equal()


def test_tensor_ranks_move_half_of_what_they_move_for_whole_sequences_and_context_ranks_as_much_as_without() -> None:
    graph = captured(llama, TINY_LLAMA)

    def moved(group: str, **degrees: Any) -> dict[tuple[str, str], int]:
        found = per_rank(graph, Degrees(tensor=2, **degrees)).collectives
        return {(e.kind, e.phase): e.nbytes for e in found if e.group == group and e.kind != "all_reduce"}

    whole = moved("tensor", sequence=1)
    assert whole
    assert moved("tensor", context=2, sequence=1) == {key: nbytes // 2 for key, nbytes in whole.items()}
    assert moved("context", context=2, sequence=1) == moved("context", context=2) != {}


def test_activations_that_no_rank_divided_are_divided() -> None:
    sizes = {**TINY_LLAMA, "seq": 64, "batch": 8, "vocab": 16}
    graph = capture(llama, hyperparameters=sizes, real=True)
    plain, parts = (per_rank(graph, Degrees(tensor=4, sequence=along)) for along in (0, 1))
    given = sum(int(s.nbytes) for s in plain.graph.storages if s.birth is None)
    assert parts.peak_bytes[0] - given < 0.75 * (plain.peak_bytes[0] - given)
    assert product_flops(parts.graph) == product_flops(plain.graph)
    assert not parts.replicated


WITH_EXPERTS: list[tuple[str, dict[str, Any]]] = [
    ("dense", {"context": 2, "expert": 2}),
    ("capacity", {"data": 2, "expert": 2}),
    ("capacity", {"data": 2, "context": 2, "expert": 4}),
]
"""Tensor ranks divide tokens around what goes to experts, all of which is of whole sequences of a rank."""


@pytest.mark.parametrize(
    ("dispatch", "degrees"),
    some_slow(
        [("capacity", {}), ("dense", {}), ("capacity", {"data": 2}), *WITH_EXPERTS],
        [("capacity", {"data": 2}), *WITH_EXPERTS],
    ),
)
def test_routing_of_one_sequence_is_exact(dispatch: str, degrees: dict[str, Any]) -> None:
    """Gathered gradients that lie in memory in another order than their dimensions, and sums that are added in place to
    what every rank has whole."""
    sizes: dict[str, Any] = {**TINY_MIXTRAL, "batch": degrees.get("data", 1), "dispatch": dispatch}
    Divided(capture(mixtral, hyperparameters=sizes, real=True), **degrees, tensor=2, sequence=1).assert_equal()


def test_tokens_that_are_routed_are_named() -> None:
    with pytest.raises(DegreesError, match=r"sequence: aten\.topk\.default in .*feed_forward .*tokens alone"):
        per_rank(captured(mixtral, TINY_MIXTRAL), Degrees(tensor=2, sequence=1))


@pytest.mark.parametrize(
    ("degrees", "message"),
    [
        ({"tensor": 4, "kv_group": 2}, "goes without sub-groups of tensor ranks"),
        ({"tensor": 8}, r"tokens of a rank: seq / tensor = 12/8 is no whole number"),
    ],
)
def test_what_the_sequence_is_not_divided_by_is_named(degrees: dict[str, Any], message: str) -> None:
    graph = captured(llama, {**TINY_LLAMA, "kv_heads": 8, "seq": 12})
    with pytest.raises(DegreesError, match=message):
        per_rank(graph, Degrees(**degrees, sequence=1))
