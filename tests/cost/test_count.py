"""Totals: by phase, module and op; coverage; what is not known."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from tensortide.cost import Cost, Count, count
from tensortide.errors import NoSuchOp, UnknownCost
from tensortide.graph import TENSOR, Call, Module
from tests.cost.probe import counted, graph_of, product, tensor

# -- costs ------------------------------------------------------------------------------------------

costs = st.builds(
    Cost,
    macs=st.integers(0, 9),
    active_macs=st.none() | st.integers(0, 9),
    elementwise_flops=st.integers(0, 9),
    read_bytes=st.integers(0, 9),
    exact=st.booleans(),
    reason=st.sampled_from(["", "a", "b"]),
)


@given(costs, costs, costs, st.integers(0, 4))
def test_costs_add_and_multiply(a: Cost, b: Cost, c: Cost, n: int) -> None:
    assert msgspec.structs.replace((a + b) + c, reason="") == msgspec.structs.replace(a + (b + c), reason="")
    repeated = Cost()
    for _ in range(n):
        repeated += a
    assert (a * n).flops == repeated.flops
    if n:
        assert (a * n).active_macs == repeated.active_macs
    assert (a + b).flops == a.flops + b.flops


def test_dense_is_the_default_of_active() -> None:
    assert Cost(macs=5).active_macs == 5
    assert (Cost(macs=5) + Cost(macs=5, active_macs=2)).active_macs == 7
    assert (Cost(macs=5) + Cost(macs=5, active_macs=None)).active_macs is None
    assert (3 * Cost(macs=5, elementwise_flops=1)).flops == 33


# -- a small model ----------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.linear(self.norm(x))
        return result


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def net(recompute: bool = False) -> Any:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 8, requires_grad=True)

    def step() -> None:
        y = checkpoint(model, x, use_reentrant=False) if recompute else model(x)
        y.sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@pytest.fixture(scope="module")
def found() -> Count:
    return counted(net)


def test_groups_add_up(found: Count) -> None:
    for groups in (found.by_phase, found.by_op, found.by(lambda op: op.source)):
        assert sum(total.flops for total in groups.values()) == found.total.flops
        assert sum(total.accessed_bytes for total in groups.values()) == found.total.accessed_bytes
        assert sum(total.ops for total in groups.values()) == len(found.costs)


def test_modules_are_a_tree(found: Count) -> None:
    assert [tree.path for tree in found.modules] == ["", "(outside)"]
    assert sum(tree.inclusive.flops for tree in found.modules) == found.total.flops
    modules = found.by_module
    assert modules["blocks"].type == "ModuleList"
    assert modules["blocks.1"].type == "Block"
    assert modules["blocks"].exclusive.flops == 0
    for node in modules.values():
        inside = sum(child.inclusive.flops for child in node.children)
        assert node.inclusive.flops == node.exclusive.flops + inside
    assert modules["blocks.1.linear"].exclusive.macs == 3 * 4 * 64
    assert [child.name for child in modules["blocks"].children] == ["0", "1", "2"]
    with pytest.raises(NoSuchOp, match="no module"):
        found.module("blocks.9")


def test_phases(found: Count) -> None:
    phases = found.by_phase
    assert list(phases) == ["forward", "backward", "recompute", "optimizer", "other"]
    assert (phases["forward"].macs, phases["backward"].macs, phases["recompute"].macs) == (3 * 256, 6 * 256, 0)
    assert phases["optimizer"].cost.elementwise_flops == 2 * 3 * (8 + 8 + 64 + 8)


def test_a_second_forward_is_recomputation(found: Count) -> None:
    again = counted(net, recompute=True)
    assert again.by_phase["recompute"].macs >= 2 * 256
    assert again.total.macs == found.total.macs + again.by_phase["recompute"].macs
    assert again.by_phase["backward"].macs == found.by_phase["backward"].macs


def test_ancestors_without_a_module_are_in_the_tree() -> None:
    graph = counted(net).graph
    modules = tuple(Module(f"outer.inner.{m.path}" if m.path else "top", m.type) for m in graph.modules)
    moved = count(msgspec.structs.replace(graph, modules=modules))
    assert {"outer", "outer.inner", "outer.inner.blocks"} <= set(moved.by_module)
    assert moved.by_module["outer"].type == ""
    assert sum(tree.inclusive.flops for tree in moved.modules) == moved.total.flops


# -- what is not known ------------------------------------------------------------------------------


def strange() -> tuple[Call, list[Any], list[Any]]:
    return Call("strange.op.default", (("x", TENSOR), ("n", 3)), 2), [tensor(4, 4)], [tensor(4)]


def test_unknown_makes_a_lower_bound() -> None:
    graph = graph_of(product(), strange(), strange())
    found = count(graph)
    assert (found.total.unknown_ops, found.total.macs, found.total.is_lower_bound) == (2, 512, True)
    assert str(found.total).startswith(">= ")
    coverage = found.coverage
    assert (coverage.ops, coverage.covered, coverage.complete) == (3, 1, False)
    assert coverage.line() == (
        "FLOPs >= 1.02 k, covers 33.3 % of ops (82.8 % of bytes); no rule: strange.op x2 (4,4) in (outside)"
    )
    with pytest.raises(UnknownCost, match="2 ops have no cost rule"):
        count(graph, strict=True)


def test_a_resolver_is_asked_last() -> None:
    asked = []

    def resolver(op: Any) -> Any:
        asked.append(op.name)
        return (Cost(elementwise_flops=5), "decomposition") if op.name.startswith("strange") else None

    found = count(graph_of(product(), strange(), strange()), resolver=resolver, strict=True)
    assert asked == ["strange.op.default"] * len(asked)
    assert found.total.cost.elementwise_flops == 10
    assert found.costs[1].cost is not None
    assert found.costs[1].cost.bytes == 4 * 20
    assert found.coverage.line().endswith("by decomposition: strange.op x2")


def test_pointwise_ops_without_a_rule_have_a_default() -> None:
    call = Call("strange.wave.default", (("x", TENSOR),), 1, tags=("pointwise",))
    found = count(graph_of((call, [tensor(4, 4)], [tensor(4, 4)])))
    assert found.total.flops == 16
    assert not found.total.cost.exact
    assert "by default rule: strange.wave x1" in found.coverage.line()


# -- speed ------------------------------------------------------------------------------------------


def test_large_graphs_count_quickly() -> None:
    graph = graph_of(*(product(n) for n in (2, 3, 4)))
    ops = tuple(graph.ops[i % 3] for i in range(60_000))
    large = msgspec.structs.replace(graph, ops=ops)
    start = time.process_time()
    assert count(large).total.macs == 20_000 * (8 + 27 + 64)
    assert time.process_time() - start < 5
