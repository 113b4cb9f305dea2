"""Loops and operators over functions: their bodies are recorded as often as they run, or stand there as unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from tensortide import capture, count
from tensortide.errors import DataDependent
from tensortide.recorder.torch_compat import found
from tests.marks import since

scan = found("torch._higher_order_ops.scan.scan")
associative_scan = found("torch._higher_order_ops.associative_scan.associative_scan")
mapped = found("torch._higher_order_ops.map.map")
PROTOTYPE = since(2, 8, "loops over slices trace their bodies, and run them more often")


def scanned() -> Callable[[], Any]:
    x = torch.randn(10, 4, 4)
    return lambda: scan(lambda carry, y: (carry @ y, carry + 1), torch.eye(4), x)


def each() -> Callable[[], Any]:
    x = torch.randn(10, 4, 4)
    return lambda: mapped(lambda y: y @ y, x)


def loop() -> Callable[[], Any]:
    x = torch.randn(4, 4)
    return lambda: while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y @ y), (torch.tensor(0), x))


def python_loop(times: int = 7) -> Callable[[], Any]:
    x = torch.randn(4, 4)

    def step() -> torch.Tensor:
        y = x
        for _ in range(times):
            y = y @ x
        return y

    return step


@pytest.mark.parametrize("real", [False, True], ids=["fake", "real"])
@pytest.mark.parametrize(
    ("workload", "times"),
    [
        pytest.param(scanned, 10, marks=PROTOTYPE),
        pytest.param(each, 10, marks=PROTOTYPE),
        (loop, 3),
        (python_loop, 7),
    ],
)
def test_a_body_counts_as_often_as_it_runs(workload: Callable[[], Any], times: int, real: bool) -> None:
    assert count(capture(workload, real=real)).total.macs == times * 4 * 4 * 4


@PROTOTYPE
def test_an_associative_scan_is_recorded() -> None:
    def workload() -> Callable[[], Any]:
        x = torch.randn(8, 4)
        return lambda: associative_scan(torch.mul, x, dim=0, combine_mode="generic")

    combined = count(capture(workload)).by_op["aten.mul.Tensor"].cost.elementwise_flops
    assert 7 * 4 <= combined <= 2 * 7 * 4


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_is_recorded_as_eager_execution_runs_it() -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")  # PyTorch 2.4 has none

    def workload() -> Callable[[], Any]:
        q = torch.randn(1, 2, 128, 16)
        return lambda: flex.flex_attention(q, q, q)

    counted = count(capture(workload))
    assert counted.total.macs == 2 * 128 * 128 * (16 + 16)
    assert counted.coverage.complete


def test_a_trip_count_that_depends_on_values_says_so() -> None:
    def workload() -> Callable[[], Any]:
        x = torch.randn(4, 4)
        return lambda: while_loop(lambda y: y.sum() < 3, lambda y: (y + 1,), (x,))

    with pytest.raises(DataDependent, match="trip count"):
        capture(workload, real=False)
    assert len(capture(workload)) > 1


@since(2, 8, "takes its operands in another way")
def test_an_operator_over_functions_that_is_not_known_is_unknown_not_zero() -> None:
    def workload() -> Callable[[], Any]:
        x = torch.randn(4, 4)
        return lambda: torch.ops.higher_order.invoke_subgraph(Sine(), "sine", x)

    graph = capture(workload, real=True)
    assert [op.name for op in graph] == ["higher_order.invoke_subgraph"]
    counted = count(graph)
    assert counted.costs[0].cost is None
    assert "no rule: higher_order.invoke_subgraph x1" in counted.coverage.line()


class Sine(torch.nn.Module):
    """The sine, as an operator over functions takes it: a tuple of results."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.sin(x),)
