"""A Python file without a function is answered with commands to paste."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path

import pytest

from tensortide.errors import RequestError, WorkloadError
from tensortide.importers.door import resolve
from tensortide.recorder.suggest import commands, loops_over_steps, reads_arguments

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
        (BUILDER, ["F names no function. Write", "F:mlp"]),
        (
            HELPER + STEP + LAMBDA + NEEDY,
            ["F names no function. Write one of", *(f"F:{n}" for n in ("small", "once"))],
        ),
        (TRAINING + "train()", ["F names no function. Write", "-- python F"]),
        ("from m import trainer\ntrainer.fit()", ["F names no function. Write", "-- python F"]),
        (
            BUILDER + TRAINING + "if __name__ == '__main__':\n    train()",
            ["F names no function. Write one of", "-- python F", "F:mlp"],
        ),
    ],
)
def test_what_looks_like_a_step_is_proposed(text: str, expected: list[str], tmp_path: Path) -> None:
    assert suggested(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "parses", "loops"),
    [
        ("def main():\n    args = ArgumentParser().parse_args()", True, False),
        ("def read(): return sys.argv[1:]\ndef main(): train(read())", True, False),
        ("@click.command()\ndef main(lr): train(lr)", True, False),
        ("def main():\n    for _ in range(3):\n        loss().backward()\n        optimizer.step()", False, True),
        ("def main():\n    for _ in range(3):\n        loss().backward()\n    optimizer.step()", False, False),
        ("def main():\n    def step():\n        for x in y: l(x).backward(); o.step()\n    return step", False, False),
    ],
)
def test_a_function_of_a_script_is_told_from_a_step(text: str, parses: bool, loops: bool) -> None:
    tree = ast.parse(text)
    assert (reads_arguments(tree, "main"), loops_over_steps(tree, "main")) == (parses, loops)


def test_a_function_that_reads_the_command_line_is_never_called(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("def main():\n    ArgumentParser().parse_args()\nif __name__ == '__main__':\n    main()\n")
    with pytest.raises(RequestError, match=r"main reads the arguments of a script. .* is '-- python .*train\.py'$"):
        resolve(f"{path}:main")


def test_a_file_without_any_says_what_is_missing(tmp_path: Path) -> None:
    [line] = suggested(tmp_path, "'''Text.'''\nimport torch" + HELPER)
    assert line.startswith("F names no function, and nothing in it looks like a training step. Name a function")


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"cannot read .*none.py: No such file"):
        resolve(str(tmp_path / "none.py"))
    with pytest.raises(WorkloadError, match=r"is not Python: .*line 1"):
        suggested(tmp_path, "def f(:\n")
