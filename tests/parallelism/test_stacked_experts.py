"""Expert parallelism: ranks with some of the experts compute together what the whole step computes."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.errors import DegreesError
from tensortide.examples.decoders import mixtral
from tensortide.graph import Graph, Role
from tensortide.parallelism import Degrees, per_rank, product_flops
from tests.parallelism.captures import captured
from tests.parallelism.divided import Divided
from tests.parallelism.test_numerics import TINY_MIXTRAL

TOKENS, HIDDEN, EXPERTS = 16, 8, 4


class Grouped(nn.Module):
    """Experts over rows that are sorted by expert, as ``transformers`` does it; the choice of experts is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, HIDDEN, 16) * 0.3)
        self.down = nn.Parameter(torch.randn(EXPERTS, 16, HIDDEN) * 0.3)
        self.head = nn.Linear(HIDDEN, 8)

    def forward(self, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        tokens, top = chosen.shape
        weights = self.router(x).softmax(-1).gather(1, chosen).reshape(-1)
        flat = chosen.reshape(-1)
        order = flat.argsort()
        counts = torch.histc(flat[order].float(), bins=EXPERTS, min=0, max=EXPERTS - 1)
        ends = counts.cumsum(0, dtype=torch.int32)
        hidden = torch._grouped_mm(x[order // top], self.up, offs=ends)
        mixed = torch._grouped_mm(nn.functional.silu(hidden), self.down, offs=ends) * weights[order].unsqueeze(-1)
        back = torch.empty_like(order)
        back[order] = torch.arange(tokens * top)
        return self.head(mixed[back].view(tokens, top, -1).sum(1))  # type: ignore[no-any-return]


def grouped(foreach: bool = False) -> Any:
    model = Grouped()
    optimizer = torch.optim.Adam(model.parameters(), foreach=foreach)
    x, target, chosen = torch.randn(TOKENS, HIDDEN), torch.randint(0, 8, (TOKENS,)), balanced(TOKENS)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x, chosen), target).backward()
        optimizer.step()

    return step


def balanced(tokens: int) -> torch.Tensor:
    """Two experts for each token, as often every expert in any run of four."""
    return torch.stack([torch.arange(tokens) % EXPERTS, (torch.arange(tokens) + 1) % EXPERTS], 1)


class Gated(nn.Module):
    """Experts that compute every token, repeated once for each of them and gated, as in Llama 4."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, HIDDEN, 16) * 0.3)
        self.down = nn.Parameter(torch.randn(EXPERTS, 16, HIDDEN) * 0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gates = self.router(x).sigmoid().t().reshape(-1, 1)
        given = (x.repeat(EXPERTS, 1) * gates).view(EXPERTS, -1, HIDDEN)
        made = torch.bmm(nn.functional.silu(torch.bmm(given, self.up)), self.down)
        return x + made.view(-1, HIDDEN).reshape(EXPERTS, -1, HIDDEN).sum(0)


def gated() -> Any:
    model = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), Gated(), nn.Linear(HIDDEN, 8))
    optimizer = torch.optim.Adam(model.parameters())
    x, target = torch.randn(TOKENS, HIDDEN), torch.randint(0, 8, (TOKENS,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()

    return step


@pytest.mark.parametrize("degrees", [{"data": 2, "expert": 2}, {"data": 4, "expert": 2, "tensor": 2, "zero": 3}])
def test_experts_and_tokens_in_one_dimension_are_exact(degrees: dict[str, Any]) -> None:
    Divided(capture(gated, real=True), **degrees).assert_equal()


@pytest.mark.parametrize(
    "degrees",
    [{"data": 2, "expert": 2}, {"data": 4, "expert": 4}, {"data": 4, "expert": 2, "tensor": 2, "zero": 1}],
)
def test_rows_of_a_balanced_routing_are_exact(degrees: dict[str, Any]) -> None:
    graph = capture(grouped, real=True)
    Divided(graph, {"chosen": balanced(TOKENS)}, **degrees).assert_equal()
    assert any("balanced" in remark for remark in per_rank(graph, Degrees(**degrees)).remarks)


def test_zero_shards_experts_and_others_where_the_optimizer_works_on_lists() -> None:
    graph = capture(functools.partial(grouped, foreach=True), real=True)
    Divided(graph, {"chosen": balanced(TOKENS)}, data=4, expert=2, zero=1).assert_equal()


def travelled(graph: Graph, degrees: Degrees) -> dict[str, list[int]]:
    """Bytes of every all-to-all of tokens by phase; those of the ends of their rows are left out."""
    found: dict[str, list[int]] = {}
    for op in per_rank(graph, degrees).graph:
        if "alltoall" in op.name and op.inputs[0].dtype != "int32":
            found.setdefault(op.phase.value, []).append(int(op.inputs[0].region_bytes))
    return found


@pytest.mark.parametrize("expert", [2, 4])
def test_two_all_to_alls_in_each_pass_carry_the_tokens_of_a_rank(expert: int) -> None:
    graph = captured(mixtral, TINY_MIXTRAL)
    tokens = TINY_MIXTRAL["batch"] * TINY_MIXTRAL["seq"] // expert
    slots = tokens * TINY_MIXTRAL["top"] * TINY_MIXTRAL["capacity"]  # of all experts together
    nbytes = slots * TINY_MIXTRAL["hidden"] * 4
    assert travelled(graph, Degrees(data=expert, expert=expert)) == {
        "forward": [nbytes, nbytes],
        "backward": [nbytes, nbytes],
    }
    rows = TOKENS // expert * 2 * HIDDEN * 4  # inputs need no gradient, so that one direction is missing
    found = travelled(capture(grouped, real=True), Degrees(data=expert, expert=expert))
    assert found == {"forward": [rows, rows], "backward": [rows]}


def test_a_transformer_of_the_library_exchanges_tokens_in_every_layer() -> None:
    sizes = {
        "layers": 2,
        "hidden": 32,
        "heads": 4,
        "kv_heads": 2,
        "vocab": 64,
        "seq": 8,
        "batch": 4,
        "intermediate": 48,
    }
    graph = capture("hf_mixtral", hyperparameters=sizes, real=True)
    ranks = per_rank(graph, Degrees(data=2, context=2, expert=4, tensor=2))
    found = {(e.group, e.kind, e.phase): e.number for e in ranks.collectives}
    layers = 2
    assert found["expert", "all_to_all", "forward"] == 3 * layers  # with the ends of the rows
    assert found["expert", "all_to_all", "backward"] == 2 * layers
    assert found["context", "all_gather", "forward"] == found["context", "reduce_scatter", "backward"] == layers
    whole, replicated = product_flops(graph), sum(each.flops for each in ranks.replicated)
    assert product_flops(ranks.graph) * 8 == whole + replicated * 4  # of two tensor ranks, on each of four others


@pytest.mark.parametrize("degrees", [{"data": 2, "expert": 2}, {"data": 4, "expert": 4}, {"data": 4, "expert": 2}])
def test_experts_are_divided_and_their_products_are_those_of_the_step(degrees: dict[str, Any]) -> None:
    graph = captured(mixtral, TINY_MIXTRAL)
    ranks = per_rank(graph, Degrees(**degrees))
    assert product_flops(ranks.graph) * ranks.degrees.devices == product_flops(graph)

    def held(step: Graph, role: Role) -> int:
        return sum(int(s.nbytes) for s in step.storages if s.role is role and s.birth is None)

    own = 3 * 4 * 16 * 24 * 4  # gate, up and down of four experts
    expert = degrees["expert"]
    assert held(graph, Role.PARAMETER) - held(ranks.graph, Role.PARAMETER) == own - own // expert
    assert held(graph, Role.OPTIMIZER_STATE) - held(ranks.graph, Role.OPTIMIZER_STATE) == 2 * (own - own // expert)


def test_gradients_of_experts_are_averaged_among_the_ranks_that_have_them() -> None:
    graph = captured(mixtral, TINY_MIXTRAL)
    found = {
        e.group: e.nbytes for e in per_rank(graph, Degrees(data=4, expert=2)).collectives if e.kind == "all_reduce"
    }
    own = 3 * 4 * 16 * 24 * 4
    parameters = sum(graph.tensors[e.tensor].region_bytes for e in graph.named if e.role is Role.PARAMETER)
    assert (found["expert_data"], found["data"]) == (own // 2, parameters - own)
    alone = per_rank(graph, Degrees(data=2, expert=2))
    assert "expert_data" not in {e.group for e in alone.collectives}


@pytest.mark.parametrize(
    ("name", "sizes", "degrees", "message"),
    [
        (
            "gpt2",
            {"layers": 1, "hidden": 32, "heads": 4, "vocab": 64, "seq": 8},
            {"data": 2, "expert": 2},
            "the step has no experts to divide",
        ),
        ("mixtral", TINY_MIXTRAL, {"data": 3, "expert": 3, "batch": 6}, r"experts / expert = 4/3 is no whole number"),
        ("mixtral", TINY_MIXTRAL, {"data": 2, "expert": 4}, r"data \* context / expert = 2/4 is no whole number"),
    ],
)
def test_what_does_not_divide_is_refused_with_the_quotient(
    name: str, sizes: dict[str, Any], degrees: dict[str, Any], message: str
) -> None:
    batch = degrees.pop("batch", 4)
    graph = capture(name, hyperparameters={**sizes, "batch": batch}, real=True)
    with pytest.raises(DegreesError, match=message):
        per_rank(graph, Degrees(**degrees))


def test_rows_that_no_routing_balances_are_refused_with_the_quotient() -> None:
    with pytest.raises(DegreesError, match=r"rows / experts = 2/4 is no whole number in aten\._grouped_mm"):
        per_rank(capture(grouped, real=True), Degrees(data=16, expert=2))
