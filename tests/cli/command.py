"""``python -m tensortide`` as a user runs it: a process of its own, forked from one that has imported what it needs;
or its verbs called in this process (``called``, ``run``, ``fails``), which takes less time.

Imports take seconds and tell nothing new: fresh interpreters import in ``tests/test_import.py`` and
under Ctrl-C.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import json
import linecache
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO
from unittest.mock import patch

import pytest

from tensortide.cli import main
from tests.cli.server import serve
from tests.servers import forked

TIMEOUT_S = 600


def tensortide(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command with ``arguments`` run in ``folder``, and in ``environment`` beside that of the tests.

    Raises TimeoutExpired after ``TIMEOUT_S``.
    """
    with tempfile.TemporaryDirectory() as place:
        out, err = Path(place, "out"), Path(place, "err")
        code = int(started(folder, arguments, environment, out=str(out), err=str(err)).readline())
        if code == -signal.SIGALRM:
            raise subprocess.TimeoutExpired(arguments, TIMEOUT_S)
        return subprocess.CompletedProcess(arguments, code, out.read_text("utf-8"), err.read_text("utf-8"))


@contextlib.contextmanager
def for_a_shell(folder: Path, *arguments: str, **environment: str) -> Iterator[str]:
    """Yield a shell command that runs ``arguments`` and exits with their status, as long as the context lasts."""
    with tempfile.TemporaryDirectory() as place:
        asked, answered = Path(place, "asked"), Path(place, "answered")
        os.mkfifo(asked)
        os.mkfifo(answered)

        def answer() -> None:
            while asked.read_text("utf-8") == "run\n":
                code = 128  # on any error: a bisect stops, and the shell goes on
                with contextlib.suppress(Exception):
                    code = tensortide(folder, *arguments, **environment).returncode
                answered.write_text(f"{code}\n", "utf-8")

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"(echo run > {asked}; read code < {answered}; exit $code)"
        finally:
            asked.write_text("end\n", "utf-8")
            thread.join()


def started(folder: Path, arguments: Sequence[str], environment: Mapping[str, str], **ends: str) -> IO[str]:
    """Where the exit code of a run is answered that has begun; ``ends``: its files ``out`` and ``err``, or its
    ``terminal``. A run that takes more than ``TIMEOUT_S`` is ended."""
    requests, answers = server()
    run = {"arguments": arguments, "folder": str(folder.resolve()), "environment": environment, **ends}
    requests.write(json.dumps({**run, "timeout_s": TIMEOUT_S}) + "\n")
    requests.flush()
    return answers


def on_terminal(
    folder: Path, *arguments: str, interrupt: Callable[[str], bool] | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command run on a terminal, which is its standard output and error. Ctrl-C is typed once ``interrupt`` says so
    of what the terminal has shown."""
    screen, terminal = pty.openpty()
    answers = started(folder, arguments, {"TERM": "xterm-256color", **environment}, terminal=os.ttyname(terminal))
    shown, ready, ended = b"", [screen], answers.fileno()
    while screen in ready or ended not in ready:  # what it printed last is read after it has ended
        ready = select.select([screen, ended], [], [], 0.1)[0]
        if screen in ready:
            shown += os.read(screen, 65536)
        if interrupt is not None and interrupt(shown.decode(errors="replace")):
            interrupt = None
            os.write(screen, b"\x03")
    os.close(screen)
    os.close(terminal)
    return subprocess.CompletedProcess(arguments, int(answers.readline()), shown.decode())


@functools.cache
def server() -> tuple[IO[str], IO[str]]:
    """Where it takes runs, and where it answers; it ends with the tests."""
    (taken, requests), (answered, answers) = os.pipe(), os.pipe()
    process = forked(lambda: serve(taken, answers), (taken, answers))
    os.close(taken)
    os.close(answers)
    runs = os.fdopen(requests, "w")

    def end() -> None:
        runs.close()
        os.waitpid(process, 0)

    atexit.register(end)
    return runs, os.fdopen(answered)


def called(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command with ``arguments`` called in this process, in ``folder``, and in ``environment`` beside that of the
    tests. What it imports from ``folder`` is forgotten. ``/dev/stdout`` is that of the tests."""
    out, err, before = io.StringIO(), io.StringIO(), {**sys.modules}
    with (
        contextlib.chdir(folder),
        patch.dict(os.environ, environment),
        patch.object(sys, "path", [*sys.path]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as stopped,
    ):
        main([*arguments])
    for name in [name for name, module in sys.modules.items() if module is not before.get(name)]:
        file = str(getattr(sys.modules[name], "__file__", ""))
        if file.startswith(str(folder.resolve())):
            del sys.modules[name]
            linecache.cache.pop(file, None)
    return subprocess.CompletedProcess(arguments, int(stopped.value.code or 0), out.getvalue(), err.getvalue())


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Call the command in this process; what it prints. It must succeed."""
    with pytest.raises(SystemExit) as stopped:
        main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    assert stopped.value.code in (0, None), err
    return out


def fails(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 2) -> str:
    """Call the command in this process; its error. It must exit with ``status``."""
    with pytest.raises(SystemExit) as stopped:
        main([str(a) for a in arguments])
    err = capsys.readouterr().err
    assert stopped.value.code == status, err
    return err
