"""Ops without a rule: the framework's own formula, else the parts they decompose into, else unknown."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._decomp import decomposition_table
from torch.utils.flop_counter import flop_registry, register_flop_formula

from tensortide import capture, count
from tensortide.errors import UnknownCost
from tensortide.recorder.fallback import fallback


@torch.library.custom_op("tidetest::product", mutates_args=(), schema="(Tensor a, Tensor b) -> Tensor")
def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


@product.register_fake
def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.new_empty(a.shape[0], b.shape[1])


def workload() -> Any:
    x, y = torch.randn(3, 4), torch.randn(4, 5)
    return lambda: product(x, y)


def test_unknown_is_not_zero() -> None:
    graph = capture(workload)
    counted = count(graph, resolver=fallback)
    assert counted.costs[0].cost is None
    assert "tidetest.product x1" in counted.coverage.line()
    with pytest.raises(UnknownCost, match=r"tidetest\.product"):
        count(graph, strict=True, resolver=fallback)


def test_the_frameworks_own_formula() -> None:
    register_flop_formula(torch.ops.tidetest.product)(
        lambda a, b, *args, out_shape=None, **kwargs: 2 * a[0] * a[1] * b[1]
    )
    try:
        counted = count(capture(workload), resolver=fallback)
    finally:
        del flop_registry[torch.ops.tidetest.product]
    assert counted.total.flops == 2 * 3 * 4 * 5
    assert "by the framework's formula: tidetest.product x1" in counted.coverage.line()


def test_the_parts_of_a_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        decomposition_table, torch.ops.tidetest.product.default, lambda a, b: torch.ops.aten.mm.default(a, b) * 2
    )
    counted = count(capture(workload), resolver=fallback)
    assert counted.total.macs == 3 * 4 * 5
    assert counted.total.flops == 2 * 3 * 4 * 5 + 3 * 5
    assert "decomposition: tidetest.product x1" in counted.coverage.line()
