"""Verbs on an exported program, as a user calls them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.command import fails, run
from tests.marks import some_slow

Capsys = pytest.CaptureFixture[str]

COMMANDS = {
    "count": ("--strict", "--set", "s27=7"),
    "memory": (),
    "report": ("--html", "report.html"),
    "time": (),
    "metrics": (),
    "compare": ("gpt2.pt2",),
    "scale": ("--devices", "2"),
    "plan": ("--budget", "auto"),
    "capture": ("-o", "gpt2.tide"),
}


@pytest.fixture(autouse=True)
def _folder(reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(reference / "importers" / "pt2" / "gpt2_2l.pt2", tmp_path / "gpt2.pt2")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("verb", some_slow(COMMANDS, {"metrics", "report", "time", "plan"}))
def test_a_verb_that_runs_nothing_takes_a_program(capsys: Capsys, verb: str) -> None:
    assert run(capsys, verb, "gpt2.pt2", *COMMANDS[verb])


def test_formulas_in_dimensions_named_by_the_user(capsys: Capsys) -> None:
    shown = run(capsys, "formulas", "show", "gpt2.pt2", "--bind", "ids=batch,seq")
    assert "64*batch*seq*(4*seq + 829)" in shown  # 2 (24576 + 1952) and 4 x 32 seq, for a token


def test_symbols_that_there_are_not(capsys: Capsys) -> None:
    refused = fails(capsys, "count", "gpt2.pt2", "--set", "batch=8")
    assert "gpt2.pt2 has no symbol 'batch'" in refused
    assert "s23 (ids.0), s27 (ids.1)" in refused
    for given in ("nothing=b", "ids=b,c,d", "ids=2b", "("):
        assert "error: " in fails(capsys, "count", "gpt2.pt2", "--bind", given), given


def test_a_count_as_data(capsys: Capsys) -> None:
    data = run(capsys, "count", "gpt2.pt2", "--bind", "ids=batch,seq", "--set", "batch=8", "--set", "seq=32", "--json")
    macs = 8 * 32 * (2 * 12 * 32 * 32 + 32 * 61) + 2 * 2 * 8 * 32 * 32 * 32
    assert json.loads(data)["sections"]["cost"]["facts"]["macs"] == macs


def test_a_program_has_no_step_to_run(capsys: Capsys) -> None:
    refused = fails(capsys, "run", "gpt2.pt2", "--budget", "90%")
    assert "gpt2.pt2 is a program of torch.export or torch.fx" in refused
    assert "run goes with a workload" in refused
