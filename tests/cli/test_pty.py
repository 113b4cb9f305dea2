"""On a real terminal: progress for slow work, colours only where they are wanted, Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import select
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.command import started

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


class Seen(NamedTuple):
    """What a terminal showed, and how the command ended."""

    text: str
    code: int


def on_terminal(folder: Path, *arguments: str, interrupt_at: str = "", **environment: str) -> Seen:
    """Run a verb on a terminal. Ctrl-C is typed once the file ``interrupt_at`` is there."""
    screen, terminal = pty.openpty()
    environment = {"TERM": "xterm-256color", **environment}
    answers = started(folder, arguments, environment, terminal=os.ttyname(terminal))
    shown, ready, ended = b"", [screen], answers.fileno()
    while screen in ready or ended not in ready:  # what it printed last is read after it has ended
        ready = select.select([screen, ended], [], [], 0.1)[0]
        if screen in ready:
            shown += os.read(screen, 65536)
        if interrupt_at and (folder / interrupt_at).exists():
            interrupt_at = ""
            os.write(screen, b"\x03")
    os.close(screen)
    os.close(terminal)
    return Seen(shown.decode(), int(answers.readline()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("terminal")
    (path / "slow.py").write_text(SLOW)
    assert on_terminal(path, "capture", "mlp", "-o", "mlp.tide").code == 0
    return path


def test_progress_shows_for_slow_work_and_goes_away(folder: Path) -> None:
    seen = on_terminal(folder, "count", "slow.py:workload")
    assert seen.code == 0
    assert "..." in seen.text
    assert "\x1b[2K" in seen.text.rpartition("...")[2]


@pytest.mark.slow
def test_quiet_work_shows_no_progress(folder: Path) -> None:
    assert "..." not in on_terminal(folder, "count", "slow.py:workload", "--quiet").text


def test_colours_are_for_those_who_want_them(folder: Path) -> None:
    colour = re.compile(r"\x1b\[[0-9;]*3[0-9]")
    assert colour.search(on_terminal(folder, "memory", "mlp.tide").text)
    assert not colour.search(on_terminal(folder, "memory", "mlp.tide", NO_COLOR="1").text)
    assert "\x1b" not in on_terminal(folder, "memory", "mlp.tide", TERM="dumb").text


@pytest.mark.parametrize("width", [60, 80, 140])
def test_it_fits_the_terminal(folder: Path, width: int) -> None:
    seen = on_terminal(folder, "report", "mlp.tide", COLUMNS=str(width), TERM="dumb")
    assert max(map(len, seen.text.splitlines())) <= width


def test_ctrl_c_says_so_and_leaves_nothing(folder: Path) -> None:
    (folder / "long.py").write_text(SLOW.replace("x = torch", "open('started', 'w')\n    x = torch"))
    before = {path.name for path in folder.iterdir()} | {"__pycache__", "started"}
    command = ("capture", "long.py:workload", "--set", "seconds=60", "-o", "long.tide")
    seen = on_terminal(folder, *command, interrupt_at="started")
    assert seen.code == 130
    assert "interrupted" in seen.text
    assert "Traceback" not in seen.text
    assert {path.name for path in folder.iterdir()} <= before
