"""The command of a training script, as people type it: an interpreter, a launcher or a shell script that ends in one
Python process."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tensortide.errors import WorkloadError
from tensortide.recorder.script_launch import (
    ACCELERATE,
    ACCELERATE_LAUNCH,
    UNKNOWN,
    Launch,
    Place,
    assigned,
    is_launcher,
    launched,
    script_at,
    starts_any,
)
from tensortide.recorder.script_shell import Started, asked_launcher, is_shell, runs_python, started_by_shell

PREFIX = "-- "
"""Beginning of a text that is the command of a script."""
_INTERPRETER = re.compile(r"(python|pypy)[\d.]*(\.exe)?", re.IGNORECASE)
_ENTRY = Path(__file__).with_name("script_entry.py")
_RUNNERS = ("uv", "poetry", "pipenv", "pdm", "hatch", "conda", "mamba", "micromamba", "pixi")
"""Commands whose ``run`` starts another command in an environment."""
_AROUND = ("nohup", "time", "nice", "ionice", "numactl", "taskset", "stdbuf", "timeout", "exec", "setsid")
"""Commands that start another one as it is."""
_DEEPEST = 5
"""Most commands that start each other."""


def script_text(command: Sequence[str]) -> str:
    """The target text of a script, from the words of its command."""
    return PREFIX + shlex.join(command)


def is_interpreter(word: str) -> bool:
    """Tell whether ``word`` is the command of a Python interpreter."""
    return _INTERPRETER.fullmatch(Path(word).name) is not None


def begins_command(word: str) -> bool:
    """Tell whether ``word`` can only begin the command of a script: an interpreter, a launcher or a shell script."""
    return is_interpreter(word) or is_launcher(word) or (is_shell(word) and word != "make")


@dataclass(frozen=True)
class Script:
    """A training script: the interpreter, its flags, the file or module, and the script's own arguments.

    ``launch`` is what starts it, ``folder`` where it runs if that is not here, and ``through`` the command of the
    shell script that starts it.
    """

    interpreter: str
    flags: tuple[str, ...]
    kind: str
    target: str
    arguments: tuple[str, ...]
    launch: Launch = Launch()
    folder: str | None = None
    through: str = ""

    @property
    def name(self) -> str:
        """Name of the script, without its folder."""
        return self.target if self.kind == "module" else Path(self.target).name

    @property
    def file(self) -> str:
        """Its file; that of a module, where it is in this folder."""
        return f"{self.target.replace('.', '/')}.py" if self.kind == "module" else self.target

    def __str__(self) -> str:
        return f"{self.target} is a script"

    def at(self, place: Place | None) -> Script:
        """The script as the launcher starts it at a rank."""
        if place is None or not self.launch.argument:
            return self
        return replace(self, arguments=(f"{self.launch.argument}{place.local}", *self.arguments))

    def command(self, request: Path) -> list[str]:
        """The command that runs the script as the file ``request`` asks."""
        return [self.interpreter, *self.flags, str(_ENTRY), str(request), *self.words]

    @property
    def words(self) -> list[str]:
        """What follows the request: the kind of the script, itself, and its arguments."""
        return [self.kind, self.target, *self.arguments]


def find_script(target: str) -> Script | None:
    """Parse ``-- python train.py --its arguments``, and what starts it; None for a text of another kind.

    A shell script runs until it would start Python, and a launcher with settings of its own is asked.

    Raises WorkloadError for a command that runs no script, or a script that does not exist.
    """
    if not target.startswith(PREFIX.rstrip()):
        return None
    try:
        words = shlex.split(target[len(PREFIX) :])
    except ValueError as error:
        raise WorkloadError(f"{target} is no command: {error}") from None
    if not words:
        raise WorkloadError("after -- comes the command of a training script: -- python train.py --its arguments")
    return _found(words, Launch(), None, 0)


def _found(typed: Sequence[str], launch: Launch, folder: str | None, depth: int) -> Script:
    """The script that the words ``typed`` start in ``folder``, below what is already known of its ``launch``."""
    given, words = assigned(typed)
    launch = _with(launch, tuple(given.items()))
    words = _unwrapped(words)
    if not words or depth > _DEEPEST:
        raise WorkloadError(f"{shlex.join(typed)} runs no script: write -- python train.py --its arguments")
    name = Path(words[0]).name
    if is_interpreter(words[0]) or words[0].endswith(".py"):
        interpreter = _interpreter(words[0]) if is_interpreter(words[0]) else sys.executable
        script = _python(interpreter, words[1:] if is_interpreter(words[0]) else words, folder)
        if not is_launcher(script.target):
            return replace(script, launch=launch)
        return _launched(Path(script.target).name, interpreter, list(script.arguments), launch, folder, depth)
    if is_launcher(words[0]):
        # a launcher starts the interpreter that it runs in itself
        interpreter = runs_python(words[0]) or shutil.which("python") or sys.executable
        return _launched(name, interpreter, words[1:], launch, folder, depth)
    if (interpreter := runs_python(words[0]) or "") and (path := shutil.which(words[0])) is not None:
        return replace(_python(interpreter, [path, *words[1:]], folder), launch=launch)
    if is_shell(words[0]):
        started = started_by_shell(words, dict(launch.environment))
        script = _after(started, launch, depth)
        left = f" (left out: {', '.join(sorted({*started.not_done}))})" if started.not_done else ""
        return replace(script, through=f"{shlex.join(words)}, which ends at {shlex.join(started.words)}{left}")
    raise WorkloadError(
        f"{words[0]} is no Python script, and no launcher or shell script that starts one: name the script itself, as "
        "in -- python train.py --its arguments"
    )


def _launched(name: str, interpreter: str, rest: list[str], launch: Launch, folder: str | None, depth: int) -> Script:
    """The script that the launcher ``name`` starts in the environment of ``interpreter``, from the words after it."""
    if name in ACCELERATE:
        own = rest[1:] if name not in ACCELERATE_LAUNCH and rest[:1] == ["launch"] else rest
        if own is rest and name not in ACCELERATE_LAUNCH:
            raise WorkloadError(
                f"accelerate {shlex.join(rest[:1])} starts no script: write -- accelerate launch train.py"
            )
        return _after(
            asked_launcher(interpreter, "accelerate.commands.launch", own, dict(launch.environment)), launch, depth
        )
    anything = starts_any(name, rest)
    place = next((at for at, word in enumerate(rest) if _starts(word)), len(rest)) if anything else script_at(rest)
    if place >= len(rest):
        raise WorkloadError(f"{name} is given no script: write {name} --its-options train.py --arguments")
    found = launched(name, rest[:place], {**os.environ, **dict(launch.environment)})
    if launch.ranks not in (None, UNKNOWN):  # this launcher runs on each node of another one
        assert launch.ranks is not None
        launch = _with(launch, tuple(launch.variables(Place(0, launch.ranks, launch.per_node)).items()))
    script = rest[place:]
    if not anything:
        is_module = any(word in ("-m", "--module") for word in rest[:place])
        script = [interpreter, *(["-m"] if is_module else []), *script]
    return _found(script, replace(found, environment=_with(launch, found.environment).environment), folder, depth + 1)


def _starts(word: str) -> bool:
    """Tell whether ``word`` begins a command that starts a script."""
    return word.endswith(".py") or begins_command(word)


def _after(started: Started, launch: Launch, depth: int) -> Script:
    here = str(Path.cwd())
    folder = started.folder if started.folder != here else None
    return replace(_found(started.words, _with(launch, started.environment), folder, depth + 1), folder=folder)


def _with(launch: Launch, environment: tuple[tuple[str, str], ...]) -> Launch:
    """``launch`` with more variables."""
    return replace(launch, environment=(*dict((*launch.environment, *environment)).items(),))


def _unwrapped(words: list[str]) -> list[str]:
    """``words`` without the commands that start another one as it is, or in an environment."""
    if not words:
        return words
    name = Path(words[0]).name
    if name not in _AROUND and (name not in _RUNNERS or words[1:2] != ["run"]):
        return words
    starts = (
        at
        for at, word in enumerate(words[1:], 1)
        if word.endswith(".py") or word == "-m" or begins_command(word) or runs_python(word) is not None
    )
    start = next(starts, None)
    if start is None:
        raise WorkloadError(f"{shlex.join(words)} starts no Python script: write -- python train.py --its arguments")
    found = ["python", *words[start:]] if words[start] == "-m" else words[start:]
    return _unwrapped(found)


def _interpreter(word: str) -> str:
    found = shutil.which(word)
    if found is None:
        raise WorkloadError(f"there is no command {word}: this is {sys.executable}, as in -- {sys.executable} train.py")
    return found


def _python(interpreter: str, words: Sequence[str], folder: str | None = None) -> Script:
    """Split ``words`` into the interpreter's own flags, the script and its arguments, as Python does in ``folder``."""
    flags: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        ends = None if word.startswith(("--", "-W", "-X")) else re.fullmatch(r"(-[^cm]*)([cm])(.*)", word)
        if ends is None:
            flags.append(word)
            if word in ("-W", "-X", "--check-hash-based-pycs") and rest:
                flags.append(rest.pop(0))
            continue
        before, letter, after = ends.groups()
        flags += [before] if len(before) > 1 else []
        if letter == "c":
            raise WorkloadError("python -c has no lines to point to: put the code into a file")
        if not after and not rest:
            raise WorkloadError("python -m needs the name of a module")
        module = after or rest.pop(0)
        return Script(interpreter, tuple(flags), "module", module, tuple(rest))
    if not rest or rest[0] == "-":
        raise WorkloadError("the command runs no script: write -- python train.py --its arguments")
    file = Path(folder or "", rest[0])
    if not file.is_file():
        what = "a folder, no script" if file.is_dir() else "not there"
        raise WorkloadError(f"{rest[0]} is {what}: write -- python train.py --its arguments")
    return Script(interpreter, tuple(flags), "file", rest[0], tuple(rest[1:]))
