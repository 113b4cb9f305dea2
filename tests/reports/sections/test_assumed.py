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


@pytest.mark.parametrize(
    "verb",
    [
        ("remat", "simulate", "--budget", "90%"),
        ("remat", "sweep", "--budgets", "0.9", "--policies", "lru"),
        ("formulas", "solve", "--for", "batch", "--where", "peak_bytes <= 1MiB"),
    ],
)
def test_a_result_names_what_the_capture_assumed(
    verb: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)
    with pytest.raises(SystemExit):
        main([*verb[:2], f"{file}:workload", *verb[2:], "--json"])
    shown = capsys.readouterr().out
    json.loads(shown)
    assert '"assumption"' in shown
    assert "loss.item() taken as 1.0 at" in shown


def test_a_file_of_formulas_keeps_assumptions(tmp_path: Path) -> None:
    path = tmp_path / "formulas.json"
    save_formulas(Formulas(totals={}, defaults={}, assumptions=("a loss is 1.0",)), path)
    assert load_formulas(path).assumptions == ("a loss is 1.0",)
