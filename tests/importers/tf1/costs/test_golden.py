"""The ``catamount`` table against what Catamount itself printed: every total, every row, every sweep."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tensortide.cost.table import QUANTITIES, Table
from tensortide.expr import Expr, compiled, parse
from tests.importers.tf1.costs.files import CASES, SMALL, formulas, published, renamed, theirs

PUBLISHED = ("word_lm", "word2vec", "resnet18", "bert_cased_L12")
LONG_NAMES = {
    "hidden_dim": "h", "vocab_size": "v", "sequence_length": "s", "subbatch_size": "b", "feature_channels": "c",
    "out_classes": "cls", "num_in_channels": "3", "image_height": "H", "image_width": "W",
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_total_formulas(reference: Path, name: str, quantity: str) -> None:
    known = published(formulas(reference)[name]["formulas"][quantity], CASES[name].names)
    assert theirs(reference, name).totals[quantity] == known


@pytest.mark.parametrize("name", PUBLISHED)
def test_values_and_sweeps(reference: Path, name: str) -> None:
    """At the published setting, and at every point of the published sweep."""
    data, table, names = formulas(reference)[name], theirs(reference, name), CASES[name].names
    evaluate = compiled([table.totals[q] for q in QUANTITIES])

    def at(bindings: dict[str, int]) -> dict[str, int]:
        return dict(zip(QUANTITIES, evaluate({names.get(n, n): value for n, value in bindings.items()}), strict=True))

    assert at(data["bindings"]) == data["values"]
    for point in data["sweep"]["points"]:
        found = at({**data["sweep"]["bindings"], data["sweep"]["over"]: point["x"]})
        shared = [q for q in QUANTITIES if q in point]
        assert {q: found[q] for q in shared} == {q: point[q] for q in shared}


@pytest.mark.parametrize("name", SMALL)
def test_small_graphs(reference: Path, name: str) -> None:
    known, names = formulas(reference)["small_graphs_flops"][name], SMALL[name].names
    formula = published(known["formula"], names)
    assert at_stored_sizes(theirs(reference, name), "flops", formula) == formula
    assert at_stored_sizes(theirs(reference, name), "parameters", formula) == known["parameters"]


def at_stored_sizes(table: Table, quantity: str, formula: Expr) -> Expr:
    """A total with only the symbols of ``formula``: other sizes are the numbers that the file has."""
    stored = {name: value for name, value in table.hints.items() if name not in formula.symbols}
    return table.totals[quantity].subs(stored)


def _text(name: str, reference: Path) -> str:
    return (reference / "catamount" / "golden" / name).read_text()


def _short(text: str) -> Expr:
    """One of their formulas in long names, in ours."""
    for long, short in LONG_NAMES.items():
        text = re.sub(rf"\b{long}\b", short, text)
    return parse(text)


def test_gradient_loop_printed_before_naming(reference: Path) -> None:
    """Their formula has a symbol per tensor and loop; with the sizes that these have it is ours."""
    text = re.search(r"Correct: (.*)", _text("dynamic_rnn_with_backprop.txt", reference))
    assert text is not None
    unnamed = re.sub(r"[\w/]*_block::iters", "s", text[1])
    unnamed = re.sub(r"[\w/]*softmax[\w/]*:\d::dim_0", "(s*b)", unnamed)
    unnamed = re.sub(r"[\w/]*softmax[\w/]*:\d::dim_1", "v", unnamed)
    unnamed = re.sub(r"[\w/]+:\d::dim_\d", "b", unnamed)
    known = renamed(parse(unnamed), {"v": "24"})
    assert at_stored_sizes(theirs(reference, "dynamic_rnn_with_backprop"), "flops", known) == known


def test_every_row_of_the_word_lm(reference: Path) -> None:
    """1,070 ops: formulas and values of FLOPs, bytes and footprint, per run; loops and how often they run."""
    rows = {row.name: row for row in theirs(reference, "word_lm").rows}
    lines = list(csv.DictReader(_text("word_lm_op_by_op.tsv", reference).splitlines(), delimiter="\t"))
    assert len(lines) == 1070
    assert rows.keys() == {line["op"] for line in lines}
    setting = {"h": 2004, "v": 10004, "s": 80, "b": 64}
    loops: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        row = rows[line["op"]]
        assert row.trips.evaluate(setting) == int(line["iters"]), line["op"]
        loops[line["parent"]].add(row.loop)
        for ours, column in (("flops", "flops"), ("bytes", "bytes"), ("footprint", "foot")):
            expr = getattr(row, ours)
            assert expr == _short(line[f"{column}_sym"]), (line["op"], ours)
            assert expr.evaluate(setting) == int(line[column]), (line["op"], ours)
    assert all(len(ours) == 1 for ours in loops.values())
    assert loops["graph"] == {""}


def test_op_types_of_the_word_lm(reference: Path) -> None:
    """The sums by their op types, trips included, and their last line: the totals."""
    table = theirs(reference, "word_lm")
    types = {
        line["op"]: line["type"]
        for line in csv.DictReader(_text("word_lm_op_by_op.tsv", reference).splitlines(), delimiter="\t")
    }
    setting = {"h": 2004, "v": 10004, "s": 80, "b": 64}
    sums = table.by(lambda row: types[row.name])
    lines = list(csv.reader(_text("word_lm_op_by_op_bytype.tsv", reference).splitlines(), delimiter="\t"))[1:]
    assert len(lines) == len(sums) + 1
    for kind, _, *values in lines:
        totals = table.totals if kind == "TOTAL" else sums[kind]
        assert [totals[q].evaluate(setting) for q in ("flops", "bytes", "footprint")] == [int(v) for v in values], kind


@pytest.mark.parametrize("quantity", ["flops", "bytes", "footprint"])
def test_every_printed_op_of_resnet(reference: Path, quantity: str) -> None:
    """Ops that cost something, as printed; and no others."""
    key = {"footprint": "alg_foot"}.get(quantity, f"alg_{quantity}")
    printed = dict(re.findall(rf"^{key} (\S+): (.*)$", _text("resnet18_op_by_op_printed.txt", reference), re.MULTILINE))
    rows = {row.name: getattr(row, quantity) for row in theirs(reference, "resnet18").rows}
    assert {name for name, expr in rows.items() if expr.terms} == printed.keys()
    for name, text in printed.items():
        assert rows[name] == _short(text), name


def test_unknown_types_are_listed(reference: Path) -> None:
    table = theirs(reference, "word_lm")
    assert sum(table.unknown.values()) == 27
    assert "counted as 0" in table.coverage
    assert "CheckNumerics x1" in table.coverage
