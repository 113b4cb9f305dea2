"""Formulas of imported graphs: those that the graphs' models are known to have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensortide import capture
from tensortide.errors import ExpressionError
from tensortide.expr import parse
from tensortide.formulas.invert import solve
from tensortide.formulas.request import formulas_of_graph
from tensortide.formulas.sweep import sweep
from tensortide.importers.tf1.load import import_graph


@pytest.fixture
def word_lm(reference: Path) -> Path:
    return reference / "catamount" / "graphs" / "word_lm.meta.gz"


def test_the_word_language_model(word_lm: Path) -> None:
    imported = import_graph(word_lm)
    formulas = formulas_of_graph(imported.graph, imported.symbols, "word_lm")
    assert formulas.symbols == ("b", "h", "s", "v")
    assert formulas.totals["parameters"] == parse("16*h**2 + 2*h*v + 8*h + v")
    assert formulas.totals["product_flops"] == parse("96*h**2*b*s + 6*h*s*b*v")
    assert formulas.evaluate(h=2004, v=10004, s=80, b=64)["product_flops"] == 2_589_827_235_840
    assert solve(formulas, "h", "parameters <= 24e9").value == 38_109
    assert len(sweep(formulas, {"h": range(8, 616, 8)}).points) == 76


def test_graphs_of_numbers_have_no_formulas() -> None:
    graph = capture("mlp", hyperparameters={"batch": 2, "inputs": 3, "hidden": 4, "classes": 5})
    with pytest.raises(ExpressionError, match="sizes of mlp are numbers"):
        formulas_of_graph(graph, {}, "mlp")
