"""Targets and policies on the command line: built-in ones first, paths by their content, importers' own options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tensortide
from tensortide.graph import save
from tensortide.importers.table import importers
from tests.cli.command import fails, run
from tests.importers.files import make

SMALL = ["--set", "batch=8", "--set", "inputs=16", "--set", "hidden=16", "--set", "layers=2"]
MINE = """
class Oldest:
    def choose(self, pool, state):
        return min(pool, key=lambda storage: state.last_access_ns[storage]), len(pool)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fact(document: Any, name: str) -> Any:
    """The first value called ``name``, wherever it stands in ``document``."""
    if isinstance(document, dict) and name in document:
        return document[name]
    inner = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    return next((found for value in inner if (found := fact(value, name)) is not None), None)


@pytest.mark.parametrize("verb", ["report", "count", "memory"])
def test_a_folder_does_not_shadow_an_example(verb: str, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "mlp").mkdir()
    assert json.loads(run(capsys, verb, "mlp", *SMALL, "--json"))
    assert "mlp is nothing that tensortide reads" in fails(capsys, verb, "./mlp")


@pytest.mark.parametrize("verb", [["run", "--steps", "1"], ["remat", "simulate"]])
def test_a_file_does_not_shadow_a_policy(verb: list[str], capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "lru").write_text("notes")
    arguments = [*verb, "mlp", *SMALL, "--budget", "1GiB", "--policy"]
    assert "lru" in json.loads(run(capsys, *arguments, "lru", "--json"))["title"]
    assert "./lru is not a tensortide plan" in fails(capsys, *arguments, "./lru")


@pytest.mark.parametrize("verb", [["run", "--steps", "1", "--compare"], ["remat", "simulate"]])
def test_a_policy_of_ones_own(verb: list[str], capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "mine.py").write_text(MINE)
    deep = ["--set", "batch=256", "--set", "inputs=16", "--set", "hidden=16", "--set", "layers=6"]
    arguments = [*verb, "mlp", *deep, "--policy", "mine.py:Oldest", "--json", "--budget"]
    budget = fact(json.loads(run(capsys, *arguments, "1GiB")), "peak_bytes") * 9 // 10
    found = json.loads(run(capsys, *arguments, str(budget)))
    assert "mine.py:Oldest" in found["title"]
    assert 0 < fact(found, "peak_bytes") <= budget


def test_a_sweep_of_policies_of_ones_own(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "mine.py").write_text(MINE)
    arguments = [
        "remat",
        "sweep",
        "mlp",
        *SMALL,
        "--policies",
        "lru,mine.py:Oldest",
        "--budgets",
        "0.9",
        "--threads",
        "1",
    ]
    tables = json.loads(run(capsys, *arguments, "--json"))["sections"]["sweep"]["tables"]
    assert dict.fromkeys(tables["runs"]["curve"]) == dict.fromkeys(["lru", "mine.py:Oldest"])


def test_options_of_importers_are_listed_in_one_place_and_in_no_help(capsys: pytest.CaptureFixture[str]) -> None:
    tables = json.loads(run(capsys, "capture", "--kinds", "--json"))["sections"]["kinds"]["tables"]
    assert tables["kinds"]["kind"] == [importer.kind for importer in importers()]
    options = set(tables["options"]["option"])
    assert options >= {"--preset", "--drop", "--bind", "--backward", "--weight", "--step", "--table"}
    assert options == set(" ".join(tables["kinds"]["options"]).split())
    for verb in ("capture", "report", "count", "time"):
        words = set(run(capsys, verb, "--help").split())
        assert words & options <= {"--step"}, verb  # that of a script, too


def test_a_trace_of_a_profiler_is_a_target(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    settings = {"batch": 8, "inputs": 16, "hidden": 16, "layers": 2}
    save(tensortide.capture("mlp", hyperparameters=settings), folder / "step.tide")
    make("trace", folder / "trace")
    for step in ("step.tide", "mlp"):
        given = SMALL if step == "mlp" else ()
        shown = json.loads(run(capsys, "memory", "trace", "--idle", "--step", step, *given, "--json"))
        assert shown["subtitle"][-1].startswith("durations recorded in trace")
    assert "--step TARGET" in fails(capsys, "memory", "trace", "--idle")


def test_formulas_of_any_file_whose_sizes_have_symbols(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    make("MetaGraph", folder / "net.meta")
    run(capsys, "capture", "net.meta", "-o", "net.tide", "--bind", "x=b,16")
    assert json.loads(run(capsys, "formulas", "sweep", "net.tide", "--over", "b=1,2", "--json"))
    (folder / "mlp").write_text('{"format": "tensortide.formulas/1"}')
    assert "does not hold" in fails(capsys, "formulas", "sweep", "./mlp", "--over", "b=1,2")


def test_a_name_between_colons_is_no_picture(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    b = tensortide.GraphBuilder("net.py:fire:")
    b.op("aten.relu", b.input("x", (4,)), out=(4,))
    save(b.build(), folder / "net.tide")
    assert "net.py:fire: 1 ops -> net.svg" in run(capsys, "draw", "net.tide", "-o", "net.svg").replace("::", ":")
