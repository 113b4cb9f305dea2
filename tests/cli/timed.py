"""``tensortide time`` as its tests call it: a small step, and commands that must succeed or be refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensortide.graph import save
from tensortide.recorder import capture
from tests.cli import command

SIZES = ("--set=inputs=8", "--set=hidden=8", "--set=classes=4", "--set=batch=2")


def folder_of_a_small_step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the step in ``small.tide``."""
    path = tmp_path_factory.mktemp("profile")
    save(capture("mlp", hyperparameters={"inputs": 8, "hidden": 8, "classes": 4, "batch": 2}), path / "small.tide")
    return path


def process(folder: Path, *arguments: str) -> str:
    """What a process of its own prints."""
    done = command.tensortide(folder, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def called(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """How a command in this process exits, and what it prints."""
    done = command.called(folder, *arguments)
    return done.returncode, done.stdout, done.stderr


def run(folder: Path, *arguments: str) -> str:
    """What a command in this process prints."""
    code, printed, said = called(folder, *arguments)
    assert code == 0, said
    return printed


def refused(folder: Path, *arguments: str, status: int = 2) -> str:
    """The error of a command in this process."""
    code, _, said = called(folder, *arguments)
    assert code == status
    assert said.startswith("error: ")
    return said


def written(folder: Path) -> str:
    """The name of a list of times that is written to ``folder``."""
    (folder / "times.csv").write_text("op,ns\naten.addmm,900\n0,40\n")
    return "times.csv"
