"""Runs of a script with other values, each a fork of one interpreter that has imported what all of them need."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensortide.recorder.script_command import Script

GRACE_S = 5.0
"""Time in which a script must end that has been told to by a signal."""


def signal_of(why: BaseException) -> int:
    """Return the signal that ends a script as this process is ended by ``why``."""
    number: int = why.args[0] if isinstance(why, KeyboardInterrupt) and why.args else signal.SIGTERM
    return number


class Forks:
    """Interpreter of ``script`` that waits for requests (``script_entry.py``). What its forks print is discarded.

    It imports the modules ``imports`` first. The file ``request`` is free for others once the first run has ended.
    """

    def __init__(self, script: Script, request: Path, environment: dict[str, str], imports: Sequence[str] = ()) -> None:
        (taken, given), (heard, said) = os.pipe(), os.pipe()
        request.write_text(json.dumps({"forks": [taken, said], "imports": imports, "outcome": os.devnull}), "utf-8")
        self._process = subprocess.Popen(
            script.command(request),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=script.folder,
            pass_fds=(taken, said),
        )
        os.close(taken)
        os.close(said)
        self._requests, self._answers = os.fdopen(given, "wb", buffering=0), os.fdopen(heard, "rb", buffering=0)

    def run(self, request: dict[str, Any], longest_s: float) -> None:
        """Run the script once as ``request`` asks, and kill it after ``longest_s``."""
        until = time.monotonic() + longest_s
        with contextlib.suppress(BrokenPipeError):  # no answer comes then
            self._requests.write(f"{json.dumps(request)}\n".encode())
        fork = self._answer(until)
        if fork is None:
            self._process.kill()
            return
        try:
            if self._answer(until) is None:
                _send(fork, signal.SIGKILL)
                self._answers.readline()
        except BaseException as error:
            _send(fork, signal_of(error))
            try:
                self._answer(time.monotonic() + GRACE_S)
            finally:
                _send(fork, signal.SIGKILL)
            raise

    def close(self) -> None:
        """End the interpreter."""
        self._requests.close()
        self._process.kill()
        self._process.wait()
        self._answers.close()

    def _answer(self, until: float) -> int | None:
        """Read a number; None if there is none until then, or the interpreter has ended."""
        ready, _, _ = select.select([self._answers], [], [], max(0.0, until - time.monotonic()))
        line = self._answers.readline() if ready else b""
        return int(line) if line else None


def _send(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)
