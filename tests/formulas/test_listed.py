"""Formulas op by op: they sum to the totals at any setting, and are the ops' own numbers at the workload's."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tensortide import capture, count, symbolic
from tensortide.cost.table import table_of
from tensortide.errors import ExpressionError
from tensortide.recorder import resolver
from tests.formulas.workloads import deep, mlp
from tests.marks import some_slow

CASES: list[tuple[Any, list[str]]] = [(mlp, ["hidden"]), (mlp, ["hidden", "seq"]), ("mlp", ["batch", "hidden"])]


@pytest.mark.parametrize(("workload", "symbols"), some_slow(CASES, CASES[1:]))
def test_ops_sum_to_the_totals_and_are_their_own_numbers(workload: Any, symbols: list[str]) -> None:
    found = symbolic(workload, over=symbols, resolver=resolver)
    table = found.table()
    drawn = random.Random(51)
    for _ in range(20):
        setting = {name: drawn.randint(2, 900) for name in symbols}
        said = {name: table.totals[name].evaluate(setting) for name in ("flops", "bytes", "parameters", "footprint")}
        totals = found.evaluate(**setting)
        assert said == {name: totals[f"{name}_bytes" if name == "footprint" else name] for name in said}
    own = table_of(count(capture(workload), resolver=resolver))
    assert [row.name for row in table.rows] == [row.name for row in own.rows]
    for quantity in ("flops", "bytes", "footprint", "io", "parameters"):
        assert table.values(getattr(row, quantity) for row in table.rows) == [
            getattr(row, quantity).value for row in own.rows
        ]


def test_tensors_have_names_and_symbols_for_sizes() -> None:
    table = symbolic(mlp, over=["hidden"], resolver=resolver).table()
    made = {text.partition(" ")[0] for row in table.rows for text in row.outputs.split(", ")}
    held = {one.name for found in table.held.values() for one in found}
    read = {text.partition(" ")[0] for row in table.rows if row.phase == "forward" for text in row.inputs.split(", ")}
    assert read - {""} <= made | held
    assert any("hidden" in one.tensor for one in table.held["parameters"])
    assert sum(one.elements.evaluate({"hidden": 96}) for one in table.held["parameters"]) == table.totals[
        "parameters"
    ].evaluate({"hidden": 96})


def test_ops_of_several_structures_are_refused() -> None:
    found = symbolic(deep, over=["batch", "layers"], resolver=resolver)
    with pytest.raises(ExpressionError, match="layers may change which there are"):
        found.table()
