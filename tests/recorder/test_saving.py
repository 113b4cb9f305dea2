"""What a step on fake tensors saves: nothing, and it spoils no file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tensortide


@pytest.mark.parametrize("options", [{}, {"device": "cuda"}])
def test_a_step_on_fake_tensors_leaves_a_checkpoint_as_it_is(tmp_path: Path, options: dict[str, Any]) -> None:
    checkpoint = tmp_path / "last.pt"
    checkpoint.write_text("of an earlier run")
    model = torch.nn.Linear(4, 4)

    def step() -> None:
        model(torch.ones(2, 4)).sum().backward()
        torch.save(model.state_dict(), checkpoint)

    graph = tensortide.capture(step, **options)
    assert checkpoint.read_text() == "of an earlier run"
    said = [text for text in graph.meta.assumptions if "torch.save wrote no file" in text]
    assert len(said) == 1
    assert "test_saving.py:24" in said[0]


MOVES: dict[str, Callable[[Path, Path], Any]] = {
    "Path.replace": lambda source, target: source.replace(target),
    "Path.rename": lambda source, target: source.rename(target),
    "shutil.move": lambda source, target: shutil.move(str(source), target),
}


@pytest.mark.parametrize("move", MOVES)
def test_a_checkpoint_that_was_not_written_replaces_none(tmp_path: Path, move: str) -> None:
    """Programs write a checkpoint beside the one that it then replaces."""
    checkpoint, beside, other = (tmp_path / name for name in ("last.pt", "last.tmp", "log.txt"))
    checkpoint.write_text("of an earlier run")
    other.write_text("of this run")

    def step() -> None:
        torch.save(torch.ones(2).sum(), beside)
        MOVES[move](beside, checkpoint)
        if other.exists():
            MOVES[move](other, tmp_path / "moved.txt")

    tensortide.capture(step, real=False)
    assert checkpoint.read_text() == "of an earlier run"
    assert (tmp_path / "moved.txt").read_text() == "of this run"


def test_a_step_on_real_tensors_saves_them(tmp_path: Path) -> None:
    checkpoint = tmp_path / "last.pt"
    model = torch.nn.Linear(4, 4)
    tensortide.capture(lambda: torch.save(model(torch.ones(2, 4)).detach(), checkpoint), real=True)
    assert torch.load(checkpoint).shape == (2, 4)
