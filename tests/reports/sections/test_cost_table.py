"""Cost tables as documents: formulas beside values, data in full, comparisons whose changes add up."""

from __future__ import annotations

import csv
import enum
import io
import json
from typing import Any

from rich.console import Console

from tensortide.cost.differences import Comparison, Difference
from tensortide.cost.table import QUANTITIES, Row, Table
from tensortide.expr import as_expr
from tensortide.reports.blocks import Document
from tensortide.reports.render.csv import render_csv
from tensortide.reports.render.json import render_json
from tensortide.reports.render.terminal import render_terminal
from tensortide.reports.sections.cost_table import ROWS, table_document


class Reason(enum.StrEnum):
    TWICE = "they count it twice"
    MISSING = "they do not count it"


HINTS = {"b": 4, "h": 10}
ROWS_OF_OURS = (
    Row(name="net/mm", type="MatMul", scope="net", flops=as_expr("2*b*h**2"), bytes=as_expr("8*b*h"), rule="m n k"),
    Row(name="net/loop/add", type="Add", scope="net/loop", loop="while", trips=as_expr("b"), flops=as_expr("h")),
    Row(name="w", type="Variable", parameters=as_expr("h**2"), footprint=as_expr("4*h**2"), known=False),
)
OURS = Table(ROWS_OF_OURS, HINTS, notes=("the batch is a guess",))
THEIRS = Table(
    (Row(name="net/mm", type="MatMul", flops=as_expr("4*b*h**2"), bytes=as_expr("8*b*h"), rule="2 m n k"),),
    HINTS,
    name="other",
)
COMPARED = Comparison(
    THEIRS,
    OURS,
    (
        Difference("net/mm", "MatMul", "flops", as_expr("4*b*h**2"), as_expr("2*b*h**2"), Reason.TWICE),
        Difference("net/loop/add", "Add", "flops", as_expr(0), as_expr("b*h"), Reason.MISSING),
        Difference("w", "Variable", "parameters", as_expr(0), as_expr("h**2"), Reason.MISSING),
        Difference("w", "Variable", "footprint", as_expr(0), as_expr("4*h**2"), Reason.MISSING),
    ),
)


def data(document: Document) -> Any:
    return json.loads(render_json(document))


def printed(document: Document, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), no_color=True, highlight=False)
    render_terminal(document, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def test_every_total_is_a_formula_and_a_value() -> None:
    found = data(table_document(OURS, file="net.meta"))
    facts = found["sections"]["costs"]["facts"]
    assert (facts["flops"], facts["flops_formula"]) == (2 * 4 * 100 + 4 * 10, "b*h*(2*h + 1)")
    assert (facts["parameters"], facts["parameters_formula"]) == (100, "h**2")
    assert found["settings"] == HINTS
    assert {"text": "the batch is a guess", "kind": "assumption"} in found["sections"]["costs"]["notes"]
    shown = printed(table_document(OURS, file="net.meta"))
    assert "840  b*h*(2*h + 1)" in shown
    assert "2 of 3 ops have a rule; counted as 0: Variable x1" in shown


def test_groups_sum_to_the_total() -> None:
    tables = data(table_document(OURS, file="net.meta", depth=1))["sections"]["costs"]["tables"]
    for key in ("types", "phases", "loops", "scopes"):
        for quantity in QUANTITIES:
            assert sum(tables[key][quantity]) == OURS.totals[quantity].evaluate(HINTS)
    assert tables["types"]["type"] == ["MatMul", "Add", "Variable"]  # most FLOPs first
    assert tables["scopes"]["scope"] == ["net", "(outside)"]


def test_rows_of_ops_are_csv() -> None:
    document = table_document(OURS, file="net.meta", rows=True)
    lines = list(csv.DictReader(io.StringIO(render_csv(document, ROWS))))
    assert [line["name"] for line in lines] == ["net/mm", "net/loop/add", "w"]
    assert (lines[1]["trips"], lines[1]["trips_formula"], lines[1]["flops_formula"]) == ("4", "b", "h")
    assert [line["known"] for line in lines] == ["true", "true", "false"]
    assert sum(int(line["flops"]) * int(line["trips"]) for line in lines) == 840
    assert "numbers of one run" in printed(document)
    assert "numbers of one run" not in printed(table_document(OURS, file="net.meta"))


def test_long_formulas_are_cut_where_they_are_shown() -> None:
    many = as_expr(" + ".join(f"x{i}**2" for i in range(400)))
    table = Table((Row(name="a", type="A", flops=many),), {f"x{i}": 1 for i in range(400)})
    document = table_document(table, file="f")
    assert "characters)" in printed(document)
    assert data(document)["sections"]["costs"]["facts"]["flops_formula"].count("**2") == 400


def test_changes_of_a_comparison_add_up() -> None:
    document = table_document(COMPARED, file="net.meta", rows=True)
    sections = data(document)["sections"]
    for quantity in QUANTITIES:
        values = sections[quantity]["tables"]["reasons"]["value"]
        assert sum(values[:-1]) == values[-1]
    flops = sections["flops"]["tables"]
    assert flops["reasons"]["reason"] == ["other", "twice", "missing", "ours"]
    assert flops["reasons"]["text"][1:3] == ["they count it twice", "they do not count it"]
    assert flops["types"]["reasons"] == ["twice: 2 m n k -> m n k", "missing"]
    assert (flops["types"]["other"], flops["types"]["ours"]) == ([1600, 0], [800, 40])
    shown = printed(document)
    assert "FLOPs  -760: ours are 52.5 %" in shown
    assert "+40" in shown
    assert "Bytes accessed  the same" in shown
    lines = list(csv.DictReader(io.StringIO(render_csv(document, ROWS))))
    assert [line["reason"] for line in lines] == ["twice", "missing", "missing", "missing"]
    assert (lines[0]["other_formula"], lines[0]["ours_formula"]) == ("4*b*h**2", "2*b*h**2")
