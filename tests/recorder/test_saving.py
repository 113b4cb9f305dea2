"""What a step on fake tensors saves: nothing, and it spoils no file."""

from __future__ import annotations

import gzip
import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
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
    assert "test_saving.py:28" in said[0]


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


def written(path: Path, how: str, value: Any) -> None:
    """Save ``value`` to an open file, as programs do."""
    file: Any
    if how == "aside":
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            torch.save(value, file)
        Path(file.name).replace(path)
    elif how == "copy":
        with path.with_suffix(".last").open("wb") as file:
            torch.save(value, file)
        shutil.copyfile(path.with_suffix(".last"), path)
    elif how == "gzip":
        with gzip.open(path, "wb") as file:
            torch.save(value, file)
    elif how == "pickle":
        with open(path, "wb") as file:  # noqa: PTH123 as programs do
            pickle.dump({"model": value}, file)
    elif how == "numpy":
        with path.open("wb+", buffering=0) as file:
            numpy.save(file, value.numpy())
    else:
        file = path.open("wb")
        torch.save(value, file)
        file.close()


@pytest.mark.parametrize("how", ["open", "aside", "copy", "gzip", "pickle", "numpy"])
@pytest.mark.parametrize("existing", [True, False])
def test_an_open_file_keeps_what_it_had(tmp_path: Path, how: str, existing: bool) -> None:
    checkpoint = tmp_path / "last.pt"
    if existing:
        checkpoint.write_bytes(b"of an earlier run")
    tensortide.capture(lambda: written(checkpoint, how, torch.ones(4).sum()), real=False)
    assert checkpoint.exists() is existing
    assert not existing or checkpoint.read_bytes() == b"of an earlier run"
    left = {path.name for path in tmp_path.iterdir()} - {"last.pt"}
    assert bool(left) is (how == "aside")  # the program's own, which is empty


def test_files_of_other_contents_are_written(tmp_path: Path) -> None:
    log, new, link = (tmp_path / name for name in ("log", "new", "link"))
    log.write_bytes(b"old")
    log.chmod(0o640)
    link.symlink_to(log)

    def step() -> None:
        torch.ones(2).sum()
        with link.open("wb") as file:
            file.write(b"seen")
        with new.open("w+b") as file:
            pickle.dump({"epoch": 1}, file)
            file.seek(0)
            assert pickle.load(file) == {"epoch": 1}
        with open("/dev/null", "wb") as nothing:  # noqa: PTH123 as programs do
            nothing.write(b"x")

    tensortide.capture(step, real=False)
    assert (log.read_bytes(), log.stat().st_mode & 0o777, link.is_symlink()) == (b"seen", 0o640, True)
    assert pickle.loads(new.read_bytes()) == {"epoch": 1}
    assert {path.name for path in tmp_path.iterdir()} == {"log", "new", "link"}
