"""A Python file without a function is answered with commands to paste."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tensortide.errors import WorkloadError
from tensortide.importers.door import resolve
from tensortide.recorder.suggest import commands

BUILDER = """
def mlp(batch=32):
    def step(): ...
    return step
"""
LAMBDA = "\ndef small(): return lambda: None\n"
STEP = "\ndef once():\n    loss().backward()\n"
TRAINING = "\ndef train(epochs=3):\n    for _ in range(epochs):\n        loss().backward()\n"
HELPER = "\ndef accuracy(scores, labels): return scores == labels\n"
NEEDY = "\ndef gpt(batch):\n    def step(): ...\n    return step\n"


def suggested(folder: Path, text: str) -> list[str]:
    path = folder / "my train.py"
    path.write_text(text)
    said = commands(str(path)).replace(shlex.quote(str(path)), "F").replace(str(path), "F")
    return [line.partition("  #")[0].strip() for line in said.splitlines()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BUILDER, ["F names no function. Write", "tensortide report F:mlp"]),
        (
            HELPER + STEP + LAMBDA + NEEDY,
            ["F names no function. Write one of", *(f"tensortide report F:{n}" for n in ("small", "once"))],
        ),
        (TRAINING + "train()", ["F names no function. Write", "tensortide report -- python F"]),
        ("from m import trainer\ntrainer.fit()", ["F names no function. Write", "tensortide report -- python F"]),
        (
            BUILDER + TRAINING + "if __name__ == '__main__':\n    train()",
            ["F names no function. Write one of", "tensortide report -- python F", "tensortide report F:mlp"],
        ),
    ],
)
def test_what_looks_like_a_step_is_proposed(text: str, expected: list[str], tmp_path: Path) -> None:
    assert suggested(tmp_path, text) == expected


def test_a_file_without_any_says_what_is_missing(tmp_path: Path) -> None:
    [line] = suggested(tmp_path, "'''Text.'''\nimport torch" + HELPER)
    assert line.startswith("F names no function, and nothing in it looks like a training step. Name a function")


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"cannot read .*none.py: No such file"):
        resolve(str(tmp_path / "none.py"))
    with pytest.raises(WorkloadError, match=r"is not Python: .*line 1"):
        suggested(tmp_path, "def f(:\n")
