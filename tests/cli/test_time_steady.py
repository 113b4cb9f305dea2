"""``tensortide time steady``, on a real step and on one whose every fourth batch is smaller."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tensortide.profile.measure import measure_steps
from tests.cli.command import fails, run

EPOCHS = """
import time

import torch


def workload():
    calls = []

    def step():
        time.sleep(0.002 if len(calls) % 4 == 3 else 0.03)
        calls.append(None)
        return torch.ones(4) + 1

    return step
"""


def test_a_real_step_is_measured_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = ("--csv", "s.csv", "--figure", "s.png", "--html", "s.html")
    text = run(capsys, "time", "steady", "mlp", "--set", "batch=8", "--repeat", 9, "--clock", "thread", *files)
    assert "stationary: median " in text
    assert "Steps of mlp\n9 steps after " in text
    assert "wrote s.png" in text
    rows = list(csv.DictReader(Path("s.csv").read_text().splitlines()))
    assert [row["step"] for row in rows] == [str(step) for step in range(9)]
    times = [int(row["time_ns"]) for row in rows]
    median = sorted(times)[4]
    for row, ns in zip(rows, times, strict=True):
        assert float(row["residual_change"]) == pytest.approx(ns / median - 1, abs=1e-6)
    assert Path("s.png").stat().st_size > 5000


def test_last_batches_are_judged_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "epochs.py").write_text(EPOCHS)
    target = f"{tmp_path / 'epochs.py'}:workload"
    found: Any = json.loads(run(capsys, "time", "steady", target, "--repeat", 12, "--drop-last", 4, "--json"))
    tables = found["sections"]["steady"]["tables"]
    assert tables["series"]["steps"] == [12, 9]
    steps = tables["steps"]
    short = sorted(step for _, step in sorted(zip(steps["time_ns"], steps["step"], strict=True))[:3])
    dropped = [step for step, last in zip(steps["step"], steps["dropped"], strict=True) if last]
    assert short == dropped


def test_calls_of_the_step_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "calls"  # what the step holds is put back afterwards, and a file is not

    def step() -> torch.Tensor:
        with log.open("a") as file:
            file.write("x")
        return torch.ones(4) + 1

    def workload() -> Callable[[], torch.Tensor]:
        return step

    for target in (step, workload):
        log.write_text("")
        times = measure_steps(target, repeats=8)
        assert len(times.ns) == 8
        assert len(log.read_text()) == times.first + 8


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["mlp", "--repeat", "7"], "7 steps say nothing of drift: 8 or more are needed"),
        (["mlp", "--repeat", "10", "--drop-last", "3"], "6 steps say nothing of drift"),
        (["mlp", "--clock", "thread", "--threads", "2", "--repeat", "8"], "the clock of one thread does not see"),
        (["nosuch"], "nosuch"),
    ],
)
def test_what_cannot_be_told_is_an_error(arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert error in fails(capsys, "time", "steady", *arguments)
