"""On a real terminal: progress for slow work, colours only where they are wanted, Ctrl-C."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.cli.command import called, on_terminal
from tests.graphs import path_of
from tests.marks import some_slow

SLOW = """
import time
import torch

def workload(seconds=1.5):
    x = torch.randn(4, 4)
    def step():
        time.sleep(seconds)
        return x + 1
    return step
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("terminal")
    (path / "slow.py").write_text(SLOW)
    shutil.copy(path_of("mlp"), path / "mlp.tide")
    return path


def test_progress_shows_for_slow_work_and_goes_away(folder: Path) -> None:
    seen = on_terminal(folder, "count", "slow.py:workload")
    assert seen.returncode == 0
    *shown, answer = re.split(r"\r +\r", seen.stdout)
    assert "..." in "".join(shown)
    assert "..." not in answer


@pytest.mark.slow
def test_quiet_work_shows_no_progress(folder: Path) -> None:
    assert "..." not in on_terminal(folder, "count", "slow.py:workload", "--quiet").stdout


def test_colours_are_for_those_who_want_them(folder: Path) -> None:
    colour = re.compile(r"\x1b\[[0-9;]*3[0-9]")
    assert colour.search(on_terminal(folder, "memory", "mlp.tide").stdout)
    assert not colour.search(on_terminal(folder, "memory", "mlp.tide", NO_COLOR="1").stdout)
    assert "\x1b" not in on_terminal(folder, "memory", "mlp.tide", TERM="dumb").stdout


@pytest.mark.parametrize(("columns", "least", "most"), [("80", 60, 80), ("140", 120, 140), ("wide", 85, 100)])
def test_a_pipe_is_as_wide_as_columns_says_or_a_hundred(folder: Path, columns: str, least: int, most: int) -> None:
    seen = called(folder, "report", "mlp.tide", COLUMNS=columns).stdout
    assert least < max(map(len, seen.splitlines())) <= most


@pytest.mark.parametrize("width", some_slow([60, 80, 140], [80]))
def test_it_fits_the_terminal(folder: Path, width: int) -> None:
    seen = on_terminal(folder, "report", "mlp.tide", COLUMNS=str(width), LINES="25", TERM="dumb")
    assert max(map(len, seen.stdout.splitlines())) <= width


def test_ctrl_c_says_so_and_leaves_nothing(folder: Path) -> None:
    (folder / "long.py").write_text(SLOW.replace("x = torch", "open('started', 'w')\n    x = torch"))
    before = {path.name for path in folder.iterdir()} | {"__pycache__", "started"}
    command = ("capture", "long.py:workload", "--set", "seconds=60", "-o", "long.tide")
    seen = on_terminal(folder, *command, interrupt=lambda _: (folder / "started").exists())
    assert seen.returncode == 130
    assert "interrupted" in seen.stdout
    assert "Traceback" not in seen.stdout
    assert {path.name for path in folder.iterdir()} <= before
