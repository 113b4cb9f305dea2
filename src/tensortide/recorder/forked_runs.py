"""Runs of a script with other values or as other ranks: forks of one interpreter that has imported what all need."""

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
LOOK_S = 1.0
"""Seconds from one look at an interpreter to the next, which may have ended."""


def signal_of(why: BaseException) -> int:
    """Return the signal that ends a script as this process is ended by ``why``."""
    number: int = why.args[0] if isinstance(why, KeyboardInterrupt) and why.args else signal.SIGTERM
    return number


class Fork:
    """A run of ``forks`` in the process ``pid``, which is waited for and ended like a ``subprocess.Popen``."""

    def __init__(self, forks: Forks, pid: int) -> None:
        self.pid = pid
        self._forks = forks
        self._status: int | None = None

    def __enter__(self) -> Fork:
        return self

    def __exit__(self, *error: object) -> None:
        del error
        self.wait()

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status. Raises TimeoutExpired if the run has not ended after so many seconds."""
        while self._status is None:
            self._status = self._forks.ended(time.monotonic() + (LOOK_S if timeout is None else timeout))
            if self._status is None and timeout is not None:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return self._status

    def poll(self) -> int | None:
        """Return the exit status, None while the run goes on."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self._status

    def send_signal(self, number: int) -> None:
        """Send a signal to the run unless it has ended."""
        if self.poll() is None:
            _send(self.pid, number)

    def kill(self) -> None:
        """Kill the run unless it has ended."""
        self.send_signal(signal.SIGKILL)


class Forks:
    """Interpreter of ``script`` that waits for requests (``script_entry.py``). What its forks print goes to ``out`` and
    ``err``, as ``subprocess.Popen`` takes them.

    It imports the modules ``imports`` first, and writes to the file ``outcome`` if it cannot. The file ``request`` is
    free for others once the first run has ended.
    """

    def __init__(
        self,
        script: Script,
        request: Path,
        environment: dict[str, str],
        imports: Sequence[str] = (),
        *,
        outcome: Path | str = os.devnull,
        out: int | None = subprocess.DEVNULL,
        err: int | None = subprocess.DEVNULL,
    ) -> None:
        (taken, given), (heard, said) = os.pipe(), os.pipe()
        request.write_text(json.dumps({"forks": [taken, said], "imports": imports, "outcome": str(outcome)}), "utf-8")
        self.process = subprocess.Popen(
            script.command(request),
            stdout=out,
            stderr=err,
            env=environment,
            cwd=script.folder,
            pass_fds=(taken, said),
        )
        os.close(taken)
        os.close(said)
        self._requests, self._answers = os.fdopen(given, "wb", buffering=0), os.fdopen(heard, "rb", buffering=0)

    def start(self, request: dict[str, Any]) -> Fork | None:
        """Run the script once as ``request`` asks; None if the interpreter has ended instead."""
        self._ask(request)
        pid = None
        while pid is None and self.process.poll() is None:
            pid = self._answer(time.monotonic() + LOOK_S)
        return None if pid is None else Fork(self, pid)

    def ended(self, until: float) -> int | None:
        """The exit status of the run that was started last; None if it goes on until then."""
        status = self._answer(until)
        return -signal.SIGKILL if status is None and self.process.poll() is not None else status

    def _ask(self, request: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # no answer comes then
            self._requests.write(f"{json.dumps(request)}\n".encode())

    def run(self, request: dict[str, Any], longest_s: float) -> None:
        """Run the script once as ``request`` asks, and kill it after ``longest_s``."""
        until = time.monotonic() + longest_s
        self._ask(request)
        fork = self._answer(until)
        if fork is None:
            self.process.kill()
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
        self.process.kill()
        self.process.wait()
        self._answers.close()

    def _answer(self, until: float) -> int | None:
        """Read a number; None if there is none until then, or the interpreter has ended."""
        ready, _, _ = select.select([self._answers], [], [], max(0.0, until - time.monotonic()))
        line = self._answers.readline() if ready else b""
        return int(line) if line else None


def _send(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)
