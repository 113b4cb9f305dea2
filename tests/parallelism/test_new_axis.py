"""An axis of the mesh is a seed, a degree and a row of a table: ranks, groups and results follow."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tensortide import capture
from tensortide.errors import DegreesError, TensortideError
from tensortide.graph import Graph
from tensortide.parallelism import per_rank
from tensortide.parallelism.degrees import AXES
from tensortide.parallelism.exchange import FORMS, Exchange, form
from tensortide.parallelism.rules import rules
from tensortide.parallelism.rules.exchanged import in_place
from tests.parallelism.divided import Divided
from tests.parallelism.rows_axis import RowDegrees


class Block(nn.Module):
    """A normalization and two products, of which ranks can share the features between."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 12), nn.Linear(12, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
        return made


@pytest.fixture(scope="module")
def step() -> Graph:
    torch.manual_seed(0)
    return capture(Block(), torch.randn(4, 8), loss="mean", optimizer="adam", real=True)


@pytest.mark.parametrize(
    "sizes",
    [{"rows": 2}, {"rows": 3}, {"rows": 2, "data": 2}, {"rows": 2, "data": 2, "zero": 1, "pipeline": 2}],
    ids=str,
)
def test_a_new_axis_is_a_seed_and_a_row_of_the_table(step: Graph, sizes: dict[str, Any]) -> None:
    degrees = RowDegrees(parameter="up.weight", **sizes)
    Divided(step, None, degrees).assert_equal()
    ranks = per_rank(step, degrees)
    assert degrees.devices == math.prod(size for name, size in sizes.items() if name != "zero")
    assert f"rows {degrees.rows}" in str(degrees)
    assert "rows" in {each.group for each in ranks.collectives}
    assert ranks.graph.meta.groups["rows"] == tuple(range(degrees.rows))


def test_what_a_new_axis_does_not_divide_is_refused_with_the_op(step: Graph) -> None:
    with pytest.raises(DegreesError, match=r"rows=4: down.weight is not divided: .*native_layer_norm.* in norm"):
        per_rank(step, RowDegrees(rows=4, parameter="down.weight"))


def test_every_exchange_has_a_rule_and_a_form() -> None:
    for axis in filter(None, (each.seed for each in AXES)):
        importlib.import_module(axis, "tensortide.parallelism")
    ruled = {name for name, rule in rules().items() if rule.__module__.endswith(".exchanged") and rule is not in_place}
    assert ruled == FORMS.keys() - {"gather", "ring", "zigzag"}  # of kernels, which have rules of their own


def test_an_exchange_has_one_form() -> None:
    before = dict(FORMS)
    with pytest.raises(TensortideError, match="the exchange gather_along has two local forms"):
        form("gather_along")(Exchange.sliced)
    assert before == FORMS
