"""Assumptions of a capture stand in every result that follows from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensortide.cli import main
from tensortide.formulas.formulas import Formulas
from tensortide.formulas.formulas_file import load_formulas, save_formulas

PROGRAM = """
import torch


def workload(batch=8):
    layer, x = torch.nn.Linear(16, 16), torch.rand(batch, 16)

    def step():
        loss = layer(x).sum()
        loss.backward()
        if loss.item() > 100:
            print("large")

    return step
"""


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A captured step of the program, as a file beside the program."""
    file = tmp_path_factory.mktemp("assumed") / "train.py"
    file.write_text(PROGRAM)
    with pytest.raises(SystemExit):
        main(["capture", f"{file}:workload", "-o", str(file.with_suffix(".tide"))])
    return file.with_suffix(".tide")


@pytest.mark.parametrize(
    "verb",
    [("remat", "simulate", "--budget", "90%"), ("remat", "sweep", "--budgets", "0.9", "--policies", "lru")],
)
def test_a_result_names_what_the_capture_assumed(
    verb: tuple[str, ...], step: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_named(capsys, *verb[:2], str(step), *verb[2:])


def test_formulas_name_what_their_captures_assumed(step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = f"{step.with_suffix('.py')}:workload"
    assert_named(capsys, "formulas", "solve", program, "--for", "batch", "--where", "peak_bytes <= 1MiB")


def assert_named(capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
    with pytest.raises(SystemExit):
        main([*arguments, "--json"])
    shown = capsys.readouterr().out
    json.loads(shown)
    assert '"assumption"' in shown
    assert "loss.item() taken as 1.0 at" in shown


def test_a_file_of_formulas_keeps_assumptions(tmp_path: Path) -> None:
    path = tmp_path / "formulas.json"
    save_formulas(Formulas(totals={}, defaults={}, assumptions=("a loss is 1.0",)), path)
    assert load_formulas(path).assumptions == ("a loss is 1.0",)
