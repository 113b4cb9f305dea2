"""Two captures of one workload: equal but for sizes, or the place where they part."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tensortide import capture
from tensortide.formulas.lift import difference, integers, replaced, skeleton
from tensortide.graph import Graph


def graph(model: Callable[[Tensor], Tensor], rows: int = 3) -> Graph:
    def workload() -> Callable[[], Tensor]:
        x = torch.randn(rows, 4)
        return lambda: model(x)

    return capture(workload)


def test_sizes_make_no_difference() -> None:
    small, large = graph(torch.relu, 3), graph(torch.relu, 7)
    assert skeleton(small) == skeleton(large)
    assert difference(small, large) is None


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (lambda x: x.relu().exp(), lambda x: x.relu().log(), "op 1 is aten.exp.default in .* against aten.log.default"),
        (lambda x: x.relu(), lambda x: x.relu().exp(), "^1 ops against 2"),
        (
            lambda x: x.sum(0),
            lambda x: x.sum(0, keepdim=True),
            "op 0, aten.sum.dim_IntList in .*differs in its arguments",
        ),
        (lambda x: (x + 1) * (x + 2), lambda x: (y := x + 1) * 2 + y, "ops against"),
    ],
)
def test_where_they_part(one: Callable[[Tensor], Tensor], other: Callable[[Tensor], Tensor], told: str) -> None:
    found = difference(graph(one), graph(other))
    assert found is not None
    assert re.search(told, found), found


def test_the_module_is_named() -> None:
    def built(activation: nn.Module) -> Callable[[], Callable[[], Tensor]]:
        def workload() -> Callable[[], Tensor]:
            model, x = nn.Sequential(nn.Linear(4, 4), activation), torch.randn(3, 4)
            return lambda: torch.as_tensor(model(x)).sum()

        return workload

    told = difference(capture(built(nn.ReLU())), capture(built(nn.Tanh())))
    assert told is not None
    assert "aten.relu.default in 1 against aten.tanh.default in 1" in told


def test_memory_that_lives_longer() -> None:
    def kept(x: Tensor) -> Tensor:
        y = x.exp()
        z = y.relu().sqrt()
        del y
        return z

    def dropped(x: Tensor) -> Tensor:
        return x.exp().relu().sqrt()

    told = difference(graph(kept), graph(dropped))
    assert told == "3 ops against 3, the same; but memory is allocated or released elsewhere"


def test_integers_of_an_argument() -> None:
    value = (1, (True, 2.5, "mean", None), (3, ()))
    assert list(integers(value)) == [1, 3]
    assert replaced(value, iter((7, 9))) == (7, (True, 2.5, "mean", None), (9, ()))
