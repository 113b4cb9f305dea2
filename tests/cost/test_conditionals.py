"""Conditionals whose predicate is unknown: one arm runs, the totals take the costlier, the range has both."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from tensortide.cost import Total, count
from tensortide.graph import Branch, Graph, Op, Phase
from tests.cost.probe import counted, graph_of, product


def conditional(before: int, arms: list[int], nested: list[int] | None = None) -> Graph:
    """Products before a conditional and in its arms; ``nested`` are the arms of one inside the first arm."""
    sizes = [before, *arms, *(nested or [])]
    graph = graph_of(*(product() for _ in range(sum(sizes))))
    branches = [Branch(0, arm) for arm in range(len(arms))] + [Branch(1, arm, 0) for arm in range(len(nested or []))]
    places = [branch for branch, size in enumerate(sizes, -1) for _ in range(size)]
    ops = [
        Op(op.call, op.inputs, op.outputs, op.phase, branch=branch)
        for op, branch in zip(graph.ops, places, strict=True)
    ]
    return msgspec.structs.replace(graph, ops=tuple(ops), branches=tuple(branches))


def products(total: Total) -> int:
    return total.macs // 512


@pytest.mark.parametrize(("arms", "low", "high"), [([2, 1], 2, 3), ([1, 1], 2, 2), ([0, 3], 1, 4)])
def test_one_arm_of_a_conditional_runs(arms: list[int], low: int, high: int) -> None:
    found = count(conditional(1, arms))
    assert products(found.total) == high
    assert tuple(map(products, found.range)) == (low, high)
    assert products(found.by_phase[Phase.FORWARD]) == high
    assert sum(products(tree.inclusive) for tree in found.modules) == high


@pytest.mark.parametrize(("arms", "low", "high"), [((2, 1), 2, 3), ((1, 1), 2, 2)])
def test_a_captured_conditional(arms: tuple[int, int], low: int, high: int) -> None:
    """One product, then a conditional whose predicate a capture on fake tensors cannot know."""
    weight, x = torch.randn(8, 8), torch.randn(8, 8)

    def chain(length: int) -> Any:
        def multiply(y: torch.Tensor) -> torch.Tensor:
            for _ in range(length):
                y = y @ weight
            return y

        return multiply

    def step() -> torch.Tensor:
        y = x @ weight
        result: torch.Tensor = torch.cond(y.sum() > 0, chain(arms[0]), chain(arms[1]), (y,))
        return result

    found = counted(step)
    assert tuple(map(products, found.range)) == (low, high)
    assert products(found.total) == high
    assert products(counted(step, real=True).total) in {1 + length for length in arms}


def test_conditionals_inside_arms() -> None:
    found = count(conditional(1, [1, 2], nested=[3, 0]))
    assert tuple(map(products, found.range)) == (2, 5)
