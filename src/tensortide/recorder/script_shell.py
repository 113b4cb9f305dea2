"""The Python process that a shell script, or a launcher with settings of its own, would start: both run until they
start one, which is not started."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tensortide.errors import WorkloadError
from tensortide.recorder.script_handover import FILE
from tensortide.recorder.script_launch import LAUNCHERS, starts_any

_HANDOVER = Path(__file__).with_name("script_handover.py")
_LIMIT_S = 60.0
"""Time in which a shell script must start Python, and a launcher."""
_GRACE_S = 10.0
"""Time in which a process in the background must start Python after its shell script has ended."""
_POLL_S = 0.05
_SHELLS = ("sh", "bash", "zsh", "dash", "ksh", "make", "just")
_PYTHONS = ("python", "python3")
_STARTED = ("accelerate", *(name for row in LAUNCHERS for name in row.names if "." not in name))
_OF_PYTHON = tuple(name for name in _STARTED if not starts_any(name, ()))
"""Launchers that start scripts in Python alone."""
_PREFIXES = ("exec", "nohup", "time", "env", "nice", "setsid", "timeout", "srun", "command")
"""Words before a command that starts one of these."""
_LEFT_OUT = (
    *(
        "rm",
        "rmdir",
        "unlink",
        "shred",
        "truncate",
        "dd",
        "mv",
        "cp",
        "ln",
        "rsync",
        "scp",
        "ssh",
        "wget",
        "curl",
        "git",
    ),
    *("docker", "sudo", "kill", "pkill", "killall", "scancel", "pip", "pip3", "apt", "apt-get", "conda", "aws"),
    *("gsutil", "huggingface-cli", "hf", "wandb", "sbatch", "tee"),
)
"""Commands of a shell script that are not run: they change files, or use the network."""


_FUNCTIONS = "functions.sh"
_BINARIES = ("/bin/", "/usr/bin/")
_WITHOUT_FILES = r"""
function __tensortide_without_files {
    shopt -s extdebug
    local command=$BASH_COMMAND word='([^ "'"'"']|"[^"]*"|'"'"'[^'"'"']*'"'"')+'
    while [[ $command =~ ^(.*[^\ ])\ ([0-9]*\>\&[0-9-]|([0-9]*|\&)(\>|\>\>|\>\|)\ ?$word)$ ]]; do
        command=${BASH_REMATCH[1]}
    done
    [[ $command != "$BASH_COMMAND" && $command\  =~ ^([A-Za-z_0-9]+=$word\ +)*(STARTS)\  ]] || return 0
    [[ $command =~ python[0-9.]*\ (-[A-Za-z]*[cV]|--version|-)(\ |$) ]] && return 0
    HANDOVER --not-done "> file"
    [[ $command == exec ]] || eval "$command"
    return 1
}
trap __tensortide_without_files DEBUG
set -T
"""
"""Has bash leave out redirections of output to files, which would empty them, where a command may start Python."""


class Started(NamedTuple):
    """A process that would have been started: its command, the variables that differ, and its folder."""

    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    folder: str
    not_done: tuple[str, ...]


def is_shell(word: str) -> bool:
    """Tell whether ``word`` starts a shell, or is the file of a shell script."""
    return Path(word).name in _SHELLS or word.endswith(".sh") or Path(_shebang(word)).name in _SHELLS


def runs_python(word: str) -> str | None:
    """The interpreter of a command that is a program in Python; None for another."""
    path = shutil.which(word) or word
    words = _shebang(path, all_words=True).split()
    found = next((each for each in words if Path(each).name.startswith("python")), None)
    return found if found is None else shutil.which(found)


def _shebang(word: str, *, all_words: bool = False) -> str:
    """The program that a file names in its first line, or the whole line; empty if it names none."""
    with contextlib.suppress(OSError), Path(word).open("rb") as file:
        first = file.readline(200)
        if first.startswith(b"#!"):
            words = first[2:].decode("utf-8", "replace").split()
            return " ".join(words) if all_words else words[-1] if words else ""
    return ""


def started_by_shell(words: Sequence[str], environment: Mapping[str, str]) -> Started:
    """The first Python process that a shell command would start.

    Raises WorkloadError if it starts none.
    """
    if os.name != "posix":
        raise WorkloadError(f"{words[0]} is a script of a shell: name the Python script that it starts")
    return _started((*words,), environment)


def asked_launcher(interpreter: str, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Started:
    """The process that the launcher ``module`` would start in the environment of ``interpreter``.

    Raises WorkloadError for what the launcher refuses.
    """
    return _started((interpreter, str(_HANDOVER), "--asked", module, *arguments), environment)


def _started(words: tuple[str, ...], environment: Mapping[str, str]) -> Started:
    found = _handed_over(words, tuple(sorted(environment.items())), str(Path.cwd()))
    if isinstance(found, str):
        raise WorkloadError(found)
    return found


@functools.cache
def _handed_over(words: tuple[str, ...], environment: tuple[tuple[str, str], ...], folder: str) -> Started | str:
    """Run a command until it would start a Python process; an error in words if it starts none."""
    with tempfile.TemporaryDirectory(prefix="tensortide-") as place, contextlib.ExitStack() as stack:
        file, asked = Path(place, "started.json"), words[1:2] == (str(_HANDOVER),)
        whole = {**os.environ, **dict(environment), FILE: str(file)}
        if not asked:
            _write_programs(Path(place, "bin"), whole.get("BASH_ENV", ""))
            whole["BASH_ENV"] = f"{place}/bin/{_FUNCTIONS}"
            for name in ("PATH", "PYTHONPATH"):
                whole[name] = os.pathsep.join(filter(None, (f"{place}/bin", whole.get(name))))
        errors = stack.enter_context(Path(place, "errors").open("w+", encoding="utf-8", errors="replace"))
        try:
            process = subprocess.Popen(
                _runnable(words),
                env=whole,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            return f"{words[0]} cannot be run: {error.strerror}"
        try:
            waited = _waited(process, file)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        errors.seek(0)
        said = errors.read().strip().splitlines()
        if file.exists():
            return _read(file, place)
        last = f" (it said: {said[-1]})" if said else ""
        name = f"{words[3]}" if asked else shlex.join(words[:2])
        how = f"in {_LIMIT_S:.0f} s" if waited else f"and ended with exit status {process.returncode}"
        return f"{name} started no Python process {how}{last}: name the script itself, as in -- python train.py"


def _waited(process: subprocess.Popen[bytes], file: Path) -> bool:
    """Wait until ``file`` is there, or nothing runs that may write it. Returns True if something still runs."""
    until = time.monotonic() + _LIMIT_S
    while not file.exists() and time.monotonic() < until:
        if process.poll() is not None:
            until = min(until, time.monotonic() + _GRACE_S)
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                return False
        time.sleep(_POLL_S)
    return process.poll() is None and not file.exists()


def _runnable(words: Sequence[str]) -> list[str]:
    """``words``, with the shell of a script that has no execute permission."""
    if words[0].endswith(".sh") and not os.access(words[0], os.X_OK) and Path(words[0]).is_file():
        return ["bash", *words]
    return [*words]


def _write_programs(folder: Path, settings: str) -> None:
    """Fill ``folder`` with programs that hand over what they are called with, in place of those of their names, and
    with functions of bash for those that a script calls by a path; ``settings`` are its own for bash."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_bytes(_HANDOVER.read_bytes())
    here = f"{shlex.quote(sys.executable)} -SE {shlex.quote(str(_HANDOVER))}"
    # An interpreter that is asked for a value (python -c) answers.
    real = f'PATH="${{PATH#{folder}:}}" exec "$(basename "$0")" "$@"'
    lines = [f". {shlex.quote(settings)}"] if settings else []
    for name in (*_PYTHONS, *_STARTED):
        case = f'case "$1" in -*c|-V|--version|-|"") {real};; esac\n' if name in _PYTHONS else ""
        if starts_any(name, ()):  # job steps of Slurm; scripts ask for the name of their first node
            words = "|".join(f'*" {each} "*' for each in (*_SHELLS, *_OF_PYTHON))
            case = f'case " $* " in *python*|*.py*|*.sh*|{words}) ;; *" hostname "*) exec hostname;; '
            case += f"*) exec {here} --not-done {name};; esac\n"
        _program(folder / name, f'#!/bin/sh\n{case}exec {here} "{name}" "$@"\n')
    for name in _LEFT_OUT:
        _program(folder / name, f"#!/bin/sh\nexec {here} --not-done {name}\n")
        lines += [f'function {at}{name} {{ {shlex.quote(f"{folder}/{name}")} "$@"; }}' for at in ("", *_BINARIES)]
    found = f'exec "$(PATH="${{PATH#{folder}:}}" command -v find)" "$@"'  # what -exec names is one of these programs
    deletes = f'*" -delete "*) exec {here} --not-done "find -delete"'
    _program(folder / "find", f'#!/bin/sh\ncase " $* " in {deletes};; esac\n{found}\n')
    names = "|".join((*_SHELLS, *_STARTED, r"python[0-9.]*", r"[^\ ]*\.sh"))
    starts = rf"(({'|'.join(_PREFIXES)})\ (.*\ )?)?([^\ ]*/)?({names})(\ .*)?|exec"
    lines += [_WITHOUT_FILES.replace("STARTS", starts).replace("HANDOVER", here)]
    (folder / _FUNCTIONS).write_text("\n".join((*lines, "")), "utf-8")


def _program(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    path.chmod(0o755)


def _read(file: Path, place: str) -> Started:
    """The process that ``file`` has, without what was put into its environment."""
    found = json.loads(file.read_text("utf-8"))
    given: dict[str, str] = found["environment"]
    given.pop(FILE, None)
    for name in ("PATH", "PYTHONPATH"):
        parts = [part for part in given.get(name, "").split(os.pathsep) if part != f"{place}/bin"]
        given[name] = os.pathsep.join(part for part in parts if part)
    ignored = {"_", "SHLVL", "PWD", "OLDPWD", "BASH_ENV"}
    own = {name: value for name, value in given.items() if name not in ignored and os.environ.get(name) != value}
    if not own.get("PYTHONPATH"):
        own.pop("PYTHONPATH", None)
    log = file.with_name(f"{file.name}.not-done")
    not_done = tuple(log.read_text("utf-8").splitlines()) if log.exists() else ()
    return Started((*found["words"],), tuple(sorted(own.items())), found["folder"], not_done)
