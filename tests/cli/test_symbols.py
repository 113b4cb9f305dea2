"""``tensortide count --symbols`` as a user runs it: text, JSON, the files it writes, wrong use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensortide.formulas import load_formulas
from tests.cli.command import called
from tests.conftest import ROOT
from tests.golden import assert_golden
from tests.marks import some_slow

TARGET = "tests.formulas.workloads:"


def said(folder: Path, *arguments: str, code: int = 0) -> str:
    """What is printed: to standard output, or to standard error if the exit status is not to be 0."""
    done = called(folder, *arguments, COLUMNS="100", PYTHONPATH=str(ROOT))
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert (done.stderr == "") == (code == 0)
    return done.stderr if code else done.stdout


FOUND = [("deep", "batch,layers"), ("trained", "batch,hidden,layers")]


@pytest.mark.parametrize(("step", "symbols"), some_slow(FOUND, FOUND[1:]))
def test_the_text_says_what_was_found(tmp_path: Path, step: str, symbols: str) -> None:
    text = said(tmp_path, "count", f"{TARGET}{step}", "--symbols", symbols)
    assert_golden(text, Path(__file__).with_name(f"symbols_{step}.txt"))


def test_files_and_their_use(tmp_path: Path) -> None:
    asked = ("count", f"{TARGET}mlp", "--symbols", "hidden", "--set", "seq=3")
    text = said(tmp_path, *asked, "--json", "--formulas", "mlp.formulas.json", "--latex", "mlp.tex")
    found: Any = json.loads(text)
    assert found["settings"] == {"hidden": 96}
    tables = found["sections"]["formulas"]["tables"]
    assert "seq=3" in tables["region"]["remark"][0]
    totals = tables["totals"]
    values = dict(zip(totals["total"], totals["value"], strict=True))
    assert dict(zip(totals["total"], totals["expression"], strict=True))["parameters"] == "hidden*(8*hidden + 5)"
    assert values["parameters"] == 74208
    formulas = load_formulas(tmp_path / "mlp.formulas.json")
    assert formulas.evaluate() == values
    assert (tmp_path / "mlp.tex").read_text() == formulas.latex()
    assert r"\text{product\_flops} &= " in formulas.latex()
    shown = said(tmp_path, "formulas", "show", "mlp.formulas.json", "--html", "mlp.html", "--quiet")
    assert "Parameters" in shown
    assert "Where they hold" in (tmp_path / "mlp.html").read_text()
    swept = json.loads(said(tmp_path, "formulas", "sweep", "mlp.formulas.json", "--over", "hidden=8,96", "--json"))
    points = swept["sections"]["sweep"]["tables"]["points"]
    assert {name: points[name][1] for name in ("hidden", *values)} == {"hidden": 96} | values


def test_conditions_and_values(tmp_path: Path) -> None:
    asked = ("count", f"{TARGET}attention", "--symbols", "hidden heads", "--json")
    stated = said(tmp_path, *asked, "--condition", "hidden % heads == 0", "--values", "heads=2,4,8")
    assert "could not be captured" not in stated
    for option, text, told in (
        ("--values", "heads=few", "--values takes name=1,2,3, not 'heads=few'"),
        ("--condition", "hidden divides heads", "cannot read 'hidden divides heads' as a condition"),
        ("--condition", "hidden > 1000000000", "does not meet the condition"),
    ):
        assert told in said(tmp_path, *asked, option, text, code=2)


def test_strict_refuses_what_has_no_formula(tmp_path: Path) -> None:
    text = said(tmp_path, "count", f"{TARGET}custom", "--symbols", "batch", "--strict", code=3)
    assert "not everything has a formula:\n  tests_formulas.blend.default x1 has no cost rule" in text
    text = said(tmp_path, "count", f"{TARGET}erratic", "--symbols", "code", "--strict", code=3)
    assert "code is held: " in text


WITHOUT_SYMBOLS = (
    *(["--real"], ["--first-step"], ["--compiled"], ["--ranks", "2"], ["--device", "cuda"], ["--machine", "t4"]),
    *(["--explain", "mm"], ["--missing"], ["--table", "both"]),
)
OF_SYMBOLS = (
    *(["--condition", "hidden > 1"], ["--values", "hidden=1"], ["--limit", "1"], ["--work-limit", "1"]),
    *(["--formulas", "f.json"], ["--latex", "f.tex"]),
)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--symbols", "hiden"], "there is no hyperparameter 'hiden'"),
        (["--symbols", "dropout"], "dropout is a float (0.0)"),
        *(
            (["--symbols", "batch", *option], f"--symbols and {option[0]} exclude each other")
            for option in WITHOUT_SYMBOLS
        ),
        *(([*option], f"{option[0]} goes with --symbols") for option in OF_SYMBOLS),
        (["--symbols", "batch", "--set", "sek=3"], "sek"),
    ],
)
def test_wrong_use_is_one_clear_error(tmp_path: Path, arguments: list[str], told: str) -> None:
    assert told in said(tmp_path, "count", f"{TARGET}mlp", *arguments, code=2)


def test_a_saved_graph_has_no_hyperparameters(tmp_path: Path) -> None:
    said(tmp_path, "capture", f"{TARGET}custom", "-o", "custom.tide", "--quiet")
    text = said(tmp_path, "count", "custom.tide", "--symbols", "all", code=2)
    assert "custom.tide" in text


def test_ops_are_listed_with_formulas(tmp_path: Path) -> None:
    asked = ("count", f"{TARGET}mlp", "--symbols", "hidden", "--set", "seq=3", "--ops")
    found: Any = json.loads(said(tmp_path, *asked, "--json", "--csv", "ops.csv"))
    ops, totals = found["sections"]["costs"]["tables"]["ops"], found["sections"]["formulas"]["tables"]["totals"]
    values = dict(zip(totals["total"], totals["value"], strict=True))
    assert {name: sum(ops[name]) for name in ("flops", "bytes")} == {n: values[n] for n in ("flops", "bytes")}
    weights = found["sections"]["costs"]["tables"]["parameters"]
    assert "f32[4*hidden,hidden]" in weights["tensor"]
    assert sum(weights["elements"]) == values["parameters"]
    assert (tmp_path / "ops.csv").read_text().startswith("name,type,scope,")
    structures = ("count", f"{TARGET}deep", "--symbols", "batch,layers", "--ops")
    assert "layers may change which there are" in said(tmp_path, *structures, code=2)
