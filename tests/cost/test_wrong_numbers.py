"""Numbers that counters of the day get wrong. The values are the right ones; B = 2, S = 64, D = 64, 4 heads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tensortide.cost import Cost, count, registry, rule
from tensortide.errors import UnknownCost
from tests.cost.probe import capture, cost_of, counted


def train(module: nn.Module, x: torch.Tensor) -> Any:
    """Forward and backward of a module, its input without a gradient."""

    def step() -> None:
        output = module(x)
        (output[0] if isinstance(output, tuple) else output).sum().backward()
        module.zero_grad()

    return step


def test_attention_on_cpu_is_not_free() -> None:
    q, k, v = (torch.randn(1, 4, 64, 16, requires_grad=True) for _ in range(3))
    assert 2 * counted(lambda: F.scaled_dot_product_attention(q, k, v)).total.macs == 1_048_576
    both = counted(lambda: F.scaled_dot_product_attention(q, k, v).sum().backward())
    assert 2 * both.total.macs == 3_145_728


def test_flash_attention_called_directly_does_not_swap_axes() -> None:
    from tests.cost.probe import cost_of_call, tensor

    shapes = {name: tensor(1, 64, 4, 16) for name in ("query", "key", "value")}
    assert 2 * cost_of_call("aten._flash_attention_forward.default", shapes, tensor(1, 64, 4, 16)).macs == 1_048_576


@pytest.mark.parametrize(("groups", "flops"), [(4, 1_769_472), (16, 442_368), (32, 221_184)])
def test_weight_gradient_of_grouped_convolution(groups: int, flops: int) -> None:
    layer, x = nn.Conv2d(32, 32, 3, padding=1, groups=groups), torch.randn(2, 32, 8, 8, requires_grad=True)
    assert 2 * counted(train(layer, x)).total.macs == flops


def test_grouped_transposed_convolution_both_ways() -> None:
    layer, x = nn.ConvTranspose2d(16, 16, 4, 2, 1, groups=4), torch.randn(2, 16, 16, 16, requires_grad=True)
    assert 2 * counted(train(layer, x)).total.macs == 3_145_728


def test_matrix_times_batch() -> None:
    assert cost_of(lambda: torch.ones(32, 144) @ torch.ones(2, 144, 256)).macs == 2_359_296


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_cost_is_that_of_the_batch_that_ran(batch: int) -> None:
    layer = nn.Linear(64, 64)
    assert counted(train(layer, torch.randn(batch, 64, 64))).by_phase["forward"].macs == batch * 64**3


@pytest.fixture
def product_op() -> Iterator[Any]:
    library = torch.library.Library("tidecost", "DEF")
    library.define("product(Tensor x, Tensor w) -> Tensor")
    library.impl("product", lambda x, w: x @ w, "CompositeExplicitAutograd")
    library.impl("product", lambda x, w: x.new_empty(x.shape[0], w.shape[1]), "Meta")
    registry.names()
    before = dict(registry._table)
    yield torch.ops.tidecost.product
    registry._table.clear()
    registry._table.update(before)
    library._destroy()


def test_custom_op_is_unknown_never_nothing(product_op: Any) -> None:
    x, w = torch.randn(64, 64), torch.randn(64, 64)
    graph = capture(lambda: product_op(x, w))
    found = count(graph)
    assert found.total.unknown_ops == 1
    assert "no rule: tidecost.product x1 (64,64)x(64,64)" in found.coverage.line()
    with pytest.raises(UnknownCost, match=r"tidecost\.product x1"):
        count(graph, strict=True)

    @rule("tidecost::product", formula="m n k MACs")
    def product(op: Any) -> Cost:
        (m, k), n = op.shape("x"), op.shape("w")[1]
        return Cost(macs=m * n * k)

    again = count(graph, strict=True)
    assert again.total.macs == 262_144
    assert again.total.accessed_bytes == 3 * 64 * 64 * 4


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 50, bias=False)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.ones(8))
        self.frozen = nn.Parameter(torch.ones(3, dtype=torch.bfloat16), requires_grad=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.embedding(ids) * self.scale)
        return result


def test_parameters_tied_frozen_and_outside_leaf_modules() -> None:
    model, ids = Tied(), torch.zeros(4, dtype=torch.int64)
    held = counted(train(model, ids)).sizes
    assert (held.parameters, held.trainable) == (50 * 8 + 8 + 3, 50 * 8 + 8)
    assert held.parameter_bytes == (50 * 8 + 8) * 4 + 3 * 2
    assert held.input_bytes == 4 * 8


def test_module_under_two_parents_counts_once_per_call() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = self.second = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.second(self.first(x))
            return result

    found = counted(train(Two(), torch.randn(4, 8)))
    assert found.by_phase["forward"].macs == 2 * 4 * 64
    assert sum(tree.inclusive.macs for tree in found.modules) == found.total.macs


def test_lstm_gradients_that_nobody_wants_are_recomputation() -> None:
    rows, gates, x, hidden = 2 * 5, 4 * 6, 7, 6
    layer, given = nn.LSTM(x, hidden, batch_first=True), torch.randn(2, 5, x)
    backward = counted(train(layer, given)).by_phase["backward"].cost
    first_state = 2 * gates * hidden
    assert backward.macs == rows * gates * (x + hidden) + rows * gates * hidden - first_state
    wanted = counted(train(layer, given.clone().requires_grad_())).by_phase["backward"].cost
    assert wanted.macs == backward.macs + rows * gates * x
