"""``tensortide count`` and the other verbs on TensorFlow graph files."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tensortide.expr import parse
from tests.cli.command import fails, run
from tests.importers.tf1.costs.files import graph_file
from tests.marks import some_slow


@pytest.fixture
def word_lm(reference: Path) -> Path:
    return graph_file(reference, "word_lm")


def counted(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    """The section of costs, and the symbols."""
    document = json.loads(run(capsys, "count", *arguments, "--json"))
    return {**document["sections"]["costs"], "symbols": document["settings"]}


def test_the_published_totals(capsys: pytest.CaptureFixture[str], word_lm: Path, tmp_path: Path) -> None:
    file = tmp_path / "shown.md"
    options = ("--table", "catamount", "--preset", "word_lm", "--set", "s=80", "--set", "b=64", "--markdown", file)
    document = counted(capsys, word_lm, *options)
    values = {name: value for name, value in document["facts"].items() if not name.endswith("_formula")}
    assert values == {
        "parameters": 104_378_326, "flops": 2_597_058_084_257, "bytes": 143_652_774_404, "footprint": 49_660_373_192,
        "io": 4_145_152,
    }  # fmt: skip
    assert document["symbols"] == {"b": 64, "h": 2004, "s": 80, "v": 10004}
    shown = file.read_text().replace("\\", "")
    assert "2,597,058,084,257" in shown
    assert "2*h*(8*h + v + 4) + v + 2" in shown
    assert "counted as 0: TensorArrayGradV3 x8" in shown


def test_our_totals(capsys: pytest.CaptureFixture[str], word_lm: Path) -> None:
    document = counted(capsys, word_lm, "--set", "s=80", "--set", "b=64")
    facts = document["facts"]
    assert (facts["product_flops_formula"], facts["product_flops"]) == ("6*b*h*s*(16*h + v)", 2_589_827_235_840)
    assert facts["scalars"] == 2
    assert "covers 100 % of ops" in document["notes"][0]["text"]
    assert "ops" not in document["tables"]


def test_both_tables(capsys: pytest.CaptureFixture[str], word_lm: Path, tmp_path: Path) -> None:
    options = ("--table", "both", "--preset", "word_lm", "--json", "--markdown", tmp_path / "shown.md")
    document = json.loads(run(capsys, "count", word_lm, *options))
    for quantity in ("parameters", "flops", "bytes", "footprint", "io"):
        theirs, *changes, ours = document["sections"][quantity]["tables"]["reasons"]["value"]
        assert theirs + sum(changes) == ours
    shown = (tmp_path / "shown.md").read_text().replace("\\", "")
    assert "one buffer" in shown
    assert "no_axes" in shown


def test_rows(capsys: pytest.CaptureFixture[str], word_lm: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    document = counted(capsys, word_lm, "--ops", "--csv", file)
    ops = document["tables"]["ops"]
    for quantity in ("flops", "bytes", "footprint"):
        rows = sum(value * trips for value, trips in zip(ops[quantity], ops["trips"], strict=True))
        assert rows == document["facts"][quantity]
    lines = list(csv.DictReader(io.StringIO(file.read_text())))
    assert len(lines) == len(ops["name"])
    assert sum(int(line["flops"]) * int(line["trips"]) for line in lines) == document["facts"]["flops"]
    product = next(line for line in lines if line["name"] == "Model/Recurrent_1_lstm_1/rnn/while/rnn/MatMul")
    assert (product["flops_formula"], product["trips_formula"], product["phase"]) == ("16*b*h**2", "s", "forward")


def test_rows_are_shown_with_their_tensors(capsys: pytest.CaptureFixture[str], reference: Path) -> None:
    text = run(capsys, "count", graph_file(reference, "simple_example"), "--ops")
    matmul = r"^matmul +a f32\[b,2\*h\], +matmul +2,097,152 +16\*b\*h\*\*2 +180,224 +8\*h\*\(3\*b \+ 4\*h\)$"
    assert re.search(matmul, text, re.MULTILINE)
    assert re.search(r"^Inputs\n.*\na +f32\[b,2\*h\] +4,096 +2\*b\*h +16,384$", text, re.MULTILINE)
    assert re.search(r"^Parameters\n.*\nweights +f32\[2\*h,4\*h\] +32,768 +8\*h\*\*2 +131,072$", text, re.MULTILINE)


def test_symbols_that_a_list_keeps(capsys: pytest.CaptureFixture[str], reference: Path) -> None:
    file, setting = graph_file(reference, "dynamic_rnn_with_backprop"), ("--set", "b=7")
    whole = counted(capsys, file, *setting, "--ops")
    kept = counted(capsys, file, *setting, "--ops", "--symbols", "b")
    assert kept["symbols"] == {"b": 7} != whole["symbols"]
    for name in ("inputs", "parameters", "ops"):
        for key, values in kept["tables"][name].items():
            if key.endswith("_formula"):
                assert {symbol for text in values for symbol in parse(text).symbols} <= {"b"}
            elif key not in ("tensor", "inputs", "outputs", "rule"):
                assert values == whole["tables"][name][key], (name, key)
    assert counted(capsys, file, *setting, "--ops", "--symbols", "all") == whole
    assert "has no symbol 'q'" in fails(capsys, "count", file, "--symbols", "b,q")
    assert "--latex goes with a workload" in fails(capsys, "count", file, "--symbols", "b", "--latex", "f.tex")
    shown = run(capsys, "formulas", "show", file, "--symbols", "b", "--set", "b=7", "--json")
    flops = json.loads(shown)["sections"]["formulas"]["tables"]["totals"]
    assert whole["facts"]["flops"] in flops["value"]


def test_dropping_and_binding(capsys: pytest.CaptureFixture[str], reference: Path) -> None:
    file = graph_file(reference, "static_unroll")
    whole = counted(capsys, file, "--table", "catamount", "--ops")
    part = counted(capsys, file, "--table", "catamount", "--drop", "basic_rnn_cell/Tanh_4", "--ops")
    assert {*whole["tables"]["ops"]["name"]} - {*part["tables"]["ops"]["name"]} == {"basic_rnn_cell/Tanh_4"}
    named = counted(capsys, file, "--bind", "a=5,batch,24")
    assert named["symbols"].keys() == {"batch"} | (named["symbols"].keys() - {"b"})


def test_wrong_options_say_so(capsys: pytest.CaptureFixture[str], word_lm: Path, tmp_path: Path) -> None:
    assert "no symbol 'hidden'" in fails(capsys, "count", word_lm, "--set", "hidden=5")
    assert "positive integer" in fails(capsys, "count", word_lm, "--set", "h=1.5")
    assert "PATTERN=" in fails(capsys, "count", word_lm, "--bind", "a")
    assert "preset" in fails(capsys, "count", word_lm, "--table", "catamount", "--preset", "vgg")
    assert "--real" in fails(capsys, "count", word_lm, "--real")
    assert "--real" in fails(capsys, "report", word_lm, "--real")
    assert "--table goes with a file" in fails(capsys, "count", "mlp", "--table", "both")
    assert "takes tensortide, catamount, both" in fails(capsys, "count", word_lm, "--table", "theirs")
    assert "cannot read" in fails(capsys, "count", tmp_path / "none.meta")


def test_loops_are_written_out_where_it_matters_when_things_happen(
    capsys: pytest.CaptureFixture[str], reference: Path
) -> None:
    assert "Peak memory" in run(capsys, "memory", graph_file(reference, "dynamic_rnn_with_backprop"))


@pytest.mark.parametrize(
    "name", some_slow(["simple_example", "dynamic_rnn_with_backprop"], ["dynamic_rnn_with_backprop"])
)
def test_other_verbs(capsys: pytest.CaptureFixture[str], reference: Path, name: str) -> None:
    file = graph_file(reference, name)
    assert "read from a file" in run(capsys, "report", file)
    assert "Peak memory" in run(capsys, "memory", file)
    assert "tf::MatMul" in run(capsys, "count", file, "--explain", "tf.MatMul")


def test_a_saved_graph_with_loops_is_counted(capsys: pytest.CaptureFixture[str], word_lm: Path, tmp_path: Path) -> None:
    saved = tmp_path / "g.tide"
    run(capsys, "capture", word_lm, "-o", saved)
    assert counted(capsys, saved)["facts"] == counted(capsys, word_lm)["facts"]
    assert "saved graph" in fails(capsys, "count", saved, "--table", "both")


def test_its_formulas_are_shown(capsys: pytest.CaptureFixture[str], word_lm: Path) -> None:
    document = json.loads(run(capsys, "formulas", "show", word_lm, "--set", "s=80", "--json"))
    assert document["settings"]["s"] == 80
    assert "2*h*(8*h + v + 4) + v" in document["sections"]["formulas"]["tables"]["totals"]["formula"]


def test_a_list_of_ops_holds_to_top_and_says_where_its_tensors_are(
    capsys: pytest.CaptureFixture[str], reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = run(capsys, "count", graph_file(reference, "dynamic_rnn_with_backprop"), "--ops", "--top", "2")
    listed = text.partition("\nOps ")[2].partition("\nInputs and outputs of each op: from 100 columns")[0].splitlines()
    assert len(listed) < 10
    assert re.fullmatch(r"and \d+ more rows", listed[-1])
