"""The command of a training script as text, and what launchers such as ``torchrun`` start."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PREFIX = "-- "
"""Beginning of a text that is the command of a script."""
_INTERPRETER = re.compile(r"(python|pypy)[\d.]*(\.exe)?", re.IGNORECASE)
_LAUNCHERS = frozenset(
    (
        *("accelerate", "accelerate.commands.launch", "deepspeed", "horovodrun", "mpirun", "srun", "torchrun"),
        *("torch.distributed.launch", "torch.distributed.run", "torchrun.py"),
    )
)
"""Commands and modules that start a script in other processes."""
_PER_NODE = r"--nproc[-_]per[-_]node"
_PROCESSES = rf"(?:{_PER_NODE}|--num[-_]processes|--num_gpus|-np|-n)[ =](\d+)\b"
"""Their options for the number of processes."""


def script_text(command: Sequence[str]) -> str:
    """The target text of a script, from the words of its command."""
    return PREFIX + shlex.join(command)


def is_interpreter(word: str) -> bool:
    """Tell whether ``word`` is the command of a Python interpreter."""
    return _INTERPRETER.fullmatch(Path(word).name) is not None


def begins_command(word: str) -> bool:
    """Tell whether ``word`` can only begin the command of a script: an interpreter, or a launcher."""
    return is_interpreter(word) or Path(word).name in _LAUNCHERS


class Launched(NamedTuple):
    """A command that starts a script in other processes: the launcher, the number of processes (None: not known, 0: its
    configuration says it), and the command of the script itself."""

    launcher: str
    ranks: int | None
    command: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.launcher} starts the script in other processes. Name the script itself"


def launched(words: Sequence[str]) -> Launched | None:
    """The script that a launcher such as ``torchrun`` starts; None for other commands."""
    rest = list(words)
    if is_interpreter(rest[0]):
        if "-m" not in rest[:-1] or rest[rest.index("-m") + 1] not in _LAUNCHERS:
            return None
        del rest[: rest.index("-m") + 1]
    launcher = Path(rest.pop(0)).name
    if launcher not in _LAUNCHERS:
        return None
    start = next((i for i, word in enumerate(rest) if word.endswith(".py") or word in ("-m", "--module")), len(rest))
    own, script = " ".join(rest[:start]), ["-m" if word == "--module" else word for word in rest[start : start + 1]]
    return Launched(launcher, _ranks(launcher, own), ("python", *(script or ["train.py"]), *rest[start + 1 :]))


def _ranks(launcher: str, own: str) -> int | None:
    """The number of processes that a launcher starts, by its ``own`` options."""
    number, nodes = re.search(_PROCESSES, own), re.search(r"--nnodes[ =](\d+)\b", own)
    if number is not None:
        return int(number[1]) * (int(nodes[1]) if nodes is not None else 1)
    if launcher.startswith("accelerate"):
        return 0
    return 1 if launcher.startswith("torch") and not re.search(_PER_NODE, own) else None
