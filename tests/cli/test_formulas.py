"""The verbs that work on formulas, as a user runs them on a file of formulas."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tensortide.formulas import save_formulas
from tests.cli.command import called, tensortide
from tests.formulas.samples import transformer, word_lm


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("formulas")
    save_formulas(transformer(), path / "gpt2.formulas.json")
    save_formulas(word_lm(), path / "word_lm.formulas.json")
    return path


def run(folder: Path, *arguments: str) -> str:
    done = called(folder, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def fails(folder: Path, *arguments: str, code: int = 2) -> str:
    done = called(folder, *arguments)
    assert done.returncode == code
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    return done.stderr


def as_json(folder: Path, *arguments: str) -> Any:
    return json.loads(run(folder, *arguments, "--json"))


def point(document: Any, row: int) -> dict[str, int]:
    """One row of a swept table."""
    table = document["sections"]["sweep"]["tables"]["points"]
    return {name: column[row] for name, column in table.items() if name not in ("outside", "threshold", "extrapolated")}


def test_sweep(folder: Path) -> None:
    over = (
        "formulas",
        "sweep",
        "gpt2.formulas.json",
        "--over",
        "hidden=192:768:*2",
        "--over",
        "batch=1,8",
        "--set",
        "seq=512",
    )
    text = run(folder, *over, "--csv", "s.csv", "--markdown", "s.md", "--figure", "s.png")
    assert text.splitlines()[-3:] == ["wrote s.png", "wrote s.csv", "wrote s.md"]
    rows = list(csv.DictReader((folder / "s.csv").read_text().splitlines()))
    assert len(rows) == 6
    expected = transformer().evaluate(hidden=384, batch=8, seq=512)
    row = next(r for r in rows if (r["hidden"], r["batch"]) == ("384", "8"))
    assert {name: int(row[name]) for name in expected} == expected
    assert (folder / "s.png").read_bytes().startswith(b"\x89PNG")
    plain = as_json(folder, *over)
    assert plain["settings"]["seq"] == 512
    assert point(plain, 3) == {"hidden": 384, "batch": 8} | expected


def test_sweep_to_standard_output(folder: Path) -> None:
    asked = ("formulas", "sweep", "gpt2.formulas.json", "--over", "batch=1,2", "--csv", "/dev/stdout")
    text = tensortide(folder, *asked).stdout
    assert text.startswith("batch,parameters,flops,bytes,peak_bytes,outside,threshold,extrapolated\n1,124439808,")
    assert len(text.splitlines()) == 3


def test_solve(folder: Path) -> None:
    asked = ("formulas", "solve", "gpt2.formulas.json", "--for", "batch", "--where", "peak_bytes <= 24GiB")
    text = run(folder, *asked)
    assert "batch = 9\n" in text
    assert "not checked: " in text
    assert "a file of formulas has no step to capture" in " ".join(text.split())
    assert "without the workspace of kernels" in text
    assert "reaches 26,388,092,977,152 B; batch = 10,778" in run(folder, *asked[:-1], "peak_bytes <= 24TiB")
    document = as_json(folder, *asked, "--set", "seq=512")
    assert document["settings"]["seq"] == 512
    found = document["sections"]["solution"]["facts"]
    assert found["peak_bytes"] <= 24 * 2**30 < found["neighbour_reached_bytes"]
    smallest = as_json(
        folder, "formulas", "solve", "word_lm.formulas.json", "--for", "b", "--where", "flops/bytes >= 19.9"
    )
    assert smallest["sections"]["solution"]["facts"]["kind"] == "smallest"
    assert as_json(folder, *asked, "--want", "smallest")["sections"]["solution"]["facts"]["value"] == 1


@pytest.mark.slow
def test_a_solution_of_a_workload_is_captured(folder: Path) -> None:
    text = run(folder, "formulas", "solve", "mlp", "--for", "batch", "--where", "peak_bytes <= 1GiB", "--quiet")
    assert "proved: " in text
    assert "all totals equal the formulas" in " ".join(text.split())


def test_every_verb_writes_files(folder: Path) -> None:
    solve = ("formulas", "solve", "gpt2.formulas.json", "--for", "batch", "--where", "peak_bytes <= 24GiB")
    assert run(folder, *solve, "--csv", "solved.csv").splitlines()[-1] == "wrote solved.csv"
    solved = dict(list(csv.reader((folder / "solved.csv").read_text().splitlines()))[1:])
    assert {name: int(value) for name, value in solved.items()} == transformer().evaluate(batch=9)
    text = run(folder, "formulas", "show", "gpt2.formulas.json", "--csv", "shown.csv", "--markdown", "shown.md")
    assert text.splitlines()[-2:] == ["wrote shown.csv", "wrote shown.md"]
    assert len((folder / "shown.csv").read_text().splitlines()) == 1 + len(transformer().totals)


def test_strict_refuses_what_is_not_known(folder: Path) -> None:
    solve = ("formulas", "solve", "gpt2.formulas.json", "--for", "batch", "--where", "peak_bytes <= 24GiB", "--strict")
    assert "not checked a file of formulas has no step" in fails(folder, *solve, code=3)
    sweep = ("formulas", "sweep", "gpt2.formulas.json", "--over", "hidden=768,770", "--strict")
    assert "hidden=770: needs hidden % heads == 0" in fails(folder, *sweep, code=3)
    assert "Parameters" in run(folder, "formulas", "show", "gpt2.formulas.json", "--strict")


def test_growth(folder: Path) -> None:
    text = run(
        folder, "formulas", "growth", "word_lm.formulas.json", "--growth", "h", "--set", "s=80", "--figure", "i.svg"
    )
    assert "1948" in text
    assert (folder / "i.svg").read_text().startswith("<?xml")
    path = ("--growth", "heads", "--path", "hidden=64*heads", "--path", "layers=heads")
    found = as_json(folder, "formulas", "growth", "gpt2.formulas.json", *path)
    limits = found["sections"]["growth"]["tables"]["per_parameter"]
    assert dict(zip(limits["name"], limits["formula"], strict=True))["Bytes"] == "36"


def test_project(folder: Path) -> None:
    asked = ("formulas", "project", "word_lm.formulas.json", "--domain", "word_lm", "--growth", "h", "--batch", "b")
    options = ("--samples-per-step", "b*s", "--set", "s=80", "--set", "b=128", "--samples", "77e9")
    found = as_json(folder, *asked, *options, "--figure", "p.png")
    steps = found["sections"]["projection"]["tables"]["requirements"]["step_s"]
    assert round(steps[1]) == 115
    assert (folder / "p.png").is_file()
    assert "115 s" in run(folder, *asked, *options)


@pytest.mark.slow  # tests/formulas hold formulas of workloads against counts
def test_a_workload_is_as_good_as_a_file(folder: Path) -> None:
    """What the formulas of a workload say at a setting is what counting it there says."""
    small = ("--set", "layers=2", "--set", "hidden=8")
    swept = as_json(folder, "formulas", "sweep", "mlp", "--symbols", "batch", "--over", "batch=24,48", *small)
    counted = as_json(folder, "count", "mlp", "--set", "batch=48", *small)
    facts = counted["sections"]["cost"]["facts"]
    assert point(swept, 1)["flops"] == facts["flops"]
    assert point(swept, 1)["peak_bytes"] == facts["peak_bytes"]


def test_wrong_use_is_one_clear_error(folder: Path) -> None:
    sweep = ("formulas", "sweep", "gpt2.formulas.json", "--over")
    assert "did you mean hidden?" in fails(folder, *sweep, "hiden=1,2")
    assert "ends in .png" in fails(folder, *sweep, "hidden=1,2", "--figure", "x.bmp")
    assert "cannot read missing.formulas.json" in fails(
        folder, "formulas", "sweep", "missing.formulas.json", "--over", "h=1,2"
    )
    assert "whole number" in fails(folder, *sweep, "hidden=768", "--set", "seq=1.5")
    for option, value in (("--limit", "1"), ("--latex", "x.tex"), ("--assume", "a.py:1=2")):
        refused = fails(folder, "formulas", "show", "gpt2.formulas.json", option, value)
        assert f": {option} goes with a workload" in refused
    assert "hidden cannot be swept and set at once" in fails(folder, *sweep, "hidden=768", "--set", "hidden=8")
    (folder / "text.json").write_text("{}")
    assert "text.json is no file of formulas" in fails(folder, "formulas", "show", "text.json")
    solve = ("formulas", "solve", "gpt2.formulas.json", "--for", "batch", "--where")
    assert "batch cannot be solved for and set" in fails(folder, *solve, "flops <= 1", "--set", "batch=1")
    assert "did you mean peak_bytes?" in fails(folder, *solve, "peak <= 1GiB")
    assert "no batch reaches peak_bytes <= 1GiB" in fails(folder, *solve, "peak_bytes <= 1GiB", code=1)
    assert "no domain 'words'" in fails(
        folder, "formulas", "project", "gpt2.formulas.json", "--domain", "words", "--growth", "hidden"
    )
    assert "--over" in fails(folder, "formulas", "sweep", "gpt2.formulas.json")
