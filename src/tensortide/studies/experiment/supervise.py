"""A trial as its parent sees it: its process started, its heartbeat heard, its memory read, its end told."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Self

import msgspec

from tensortide.errors import ExitStatus
from tensortide.studies.experiment.results import Outcome, Repetition, Status
from tensortide.studies.experiment.trial_process import Message
from tensortide.studies.experiment.ways import Asked

LEAST_BEAT_S = 10.0
"""Seconds that a repetition may take whatever those before took: a busy machine is no fault of a trial."""
COMMAND = (sys.executable, "-m", "tensortide.studies.experiment.trial_process")
_POLL_S = 0.2
_END_S = 10.0
"""Seconds in which a process whose trial has ended must end."""
_LAST = 200
"""Most characters of the last line that a crashed process has printed."""


class _Process:
    """A process of trials, which runs in ``folder``, and the queue of its messages: None at their end."""

    def __init__(self, folder: Path, errors: IO[bytes]) -> None:
        pipe = subprocess.PIPE
        self.folder, self.messages = folder, queue.Queue[bytes | None]()
        self.popen = subprocess.Popen(
            COMMAND, cwd=folder, stdin=pipe, stdout=pipe, stderr=errors, start_new_session=True
        )
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.stdin = self.popen.stdin
        self._hearing = threading.Thread(target=_forward, args=(self.popen.stdout, self.messages), daemon=True)
        self._hearing.start()

    def ask(self, asked: Asked) -> None:
        """Have it run a trial."""
        with contextlib.suppress(BrokenPipeError):
            self.stdin.write(msgspec.json.encode(asked) + b"\n")
            self.stdin.flush()

    def kill(self) -> None:
        """Kill it, and those that it has started, as workers of a data loader."""
        with contextlib.suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(self.popen.pid, signal.SIGKILL)  # it leads a session of its own
            else:
                self.popen.kill()

    def end(self) -> None:
        """Kill it, and leave nothing of it."""
        self.kill()
        self.popen.wait()
        self._hearing.join(_END_S)
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()


def silent_beat() -> None:
    """Tell nobody that a trial has come further."""


class Supervisor:
    """The processes of the trials of a run, in which no other run has a part. None of them outlives the body of the
    ``with`` statement, and none starts after it.

    ``running``: repetitions so far of the trials that run, by the names of their logs.
    """

    def __init__(self) -> None:
        self.running: dict[str, int] = {}
        self._processes: set[_Process] = set()
        self._idle: list[_Process] = []
        self._over = threading.Event()

    def __reduce__(self) -> tuple[type[Supervisor], tuple[()]]:
        """Another machine has processes of its own."""
        return Supervisor, ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        while (idle := self._idle_one()) is not None:
            self.end(idle)
        for process in [*self._processes]:
            process.kill()

    def run(self, asked: Asked, log: Path, folder: Path, beat: Callable[[], None] = silent_beat) -> Outcome:
        """Run the trial in a process of its own, again if an attempt crashes, hangs or is killed and it may be retried.

        It runs in ``folder``; what it prints goes to the file ``log``. ``beat`` is called as it begins and after each
        repetition.
        """
        began, started, attempt = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic(), 1
        found = self._attempted(asked, log, folder, beat)
        while _is_lost(found) and attempt <= asked.trial.retries and not self._over.is_set():
            found, attempt = self._attempted(asked, log, folder, beat), attempt + 1
        took_s = round(time.monotonic() - started, 3)
        return msgspec.structs.replace(found, attempts=attempt, began=began, took_s=took_s)

    def _attempted(self, asked: Asked, log: Path, folder: Path, beat: Callable[[], None]) -> Outcome:
        self.running[log.stem] = 0
        beat()
        try:
            return _Attempt(self, asked, log, folder, beat).run()
        finally:
            self.running.pop(log.stem, None)

    def process_for(self, asked: Asked, folder: Path, errors: IO[bytes]) -> _Process:
        """A process for the trial: for a simulation one that has run others, if there is one."""
        while asked.trial.mode == "simulated" and (found := self._idle_one()) is not None:
            if found.folder == folder and found.popen.poll() is None:
                return found
            self.end(found)
        made = _Process(folder, errors)
        self._processes.add(made)
        return made

    def _idle_one(self) -> _Process | None:
        """A process that waits for another trial; None if there is none, or another thread has it."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def release(self, process: _Process, *, takes_another: bool) -> None:
        """Keep a process whose trial has ended for another one, or end it."""
        if takes_another and not self._over.is_set():
            self._idle.append(process)
        else:
            self.end(process)

    def end(self, process: _Process) -> None:
        """Kill a process, and leave nothing of it."""
        process.end()
        self._processes.discard(process)


def _is_lost(found: Outcome) -> bool:
    """True where another attempt may end otherwise: it was no answer, and the request is not at fault."""
    return not found.is_answer and found.exit_status != ExitStatus.WRONG


class _Attempt:
    """One attempt at a trial."""

    def __init__(self, supervisor: Supervisor, asked: Asked, log: Path, folder: Path, beat: Callable[[], None]) -> None:
        self.supervisor = supervisor
        self.asked, self.log, self.folder, self.tell = asked, log, folder, beat
        self.repetitions: list[Repetition] = []
        self.start_bytes: int | None = None
        self.peak_bytes: int | None = None
        self.last = time.monotonic()
        self.end = self.beat = self.allowed_s = math.inf
        self.longest_s, self.takes_another = 0.0, False

    def run(self) -> Outcome:
        """Start the process, and hear it to its end, or to that of the trial if it takes others."""
        with self.log.open("wb") as errors:
            process = self.supervisor.process_for(self.asked, self.folder, errors)
        try:
            process.ask(msgspec.structs.replace(self.asked, printed=str(self.log)))
            return self._heard(process.popen, process.messages)
        finally:
            self.supervisor.release(process, takes_another=self.takes_another)

    def _heard(self, process: subprocess.Popen[bytes], messages: queue.Queue[bytes | None]) -> Outcome:
        """Take the messages of the process until the trial ends, or has to be ended."""
        over = False
        while True:
            try:
                line = messages.get(timeout=_POLL_S)
            except queue.Empty:
                line = b""
            self._look(process.pid)
            # A child of a process that has ended may keep the stream open: nothing came since the last look.
            if line is None or (over and not line):
                return self._crashed(process)
            over = process.poll() is not None
            if line:
                message = msgspec.json.decode(line, type=Message)
                if message.kind == "end":
                    return self._ended(message)
                self._take(message)
            now = time.monotonic()
            if now > min(self.end, self.beat):
                why = f"its {self.asked.trial.timeout:g} s are over" if now > self.end else self._late()
                return self._outcome("timeout", f"ended: {why}", ExitStatus.CANNOT)

    def _take(self, message: Message) -> None:
        now = time.monotonic()
        if message.kind == "ready":
            # Its start is none of its time: a process that has run others has none.
            self.start_bytes, self.last, self.end = self.peak_bytes, now, now + (self.asked.trial.timeout or math.inf)
            return
        self.longest_s = max(self.longest_s, now - self.last)
        self.allowed_s = max(LEAST_BEAT_S, math.ceil(2 * self.longest_s))
        self.last, self.beat = now, now + self.allowed_s
        running = self.supervisor.running
        running[self.log.stem] = running.get(self.log.stem, 0) + 1
        if message.repetition is not None:
            self.repetitions.append(message.repetition)
        self.tell()

    def _late(self) -> str:
        return f"a repetition has not ended within {self.allowed_s:g} s, twice the time of the longest before"

    def _look(self, process: int) -> None:
        """Read the most memory that the process has had; nothing where the system does not tell."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    self.peak_bytes = max(self.peak_bytes or 0, 1024 * int(line.split()[1]))

    def _ended(self, message: Message) -> Outcome:
        self.takes_another = message.again
        if not message.reason:
            return self._outcome("ok", "", ExitStatus.HOLDS, message.batch, message.step)
        fits = message.status != ExitStatus.FAILS
        # Lists, which are indented, are left to the log: what is needed comes after them.
        reason = " ".join(line.strip() for line in message.reason.splitlines() if line[:2].strip())
        return self._outcome("failed" if fits else "infeasible", reason, ExitStatus(message.status))

    def _crashed(self, process: subprocess.Popen[bytes]) -> Outcome:
        try:
            code = process.wait(_END_S)
        except subprocess.TimeoutExpired:
            reason = "its process closed what it reports to, and did not end"
            return self._outcome("killed", reason, ExitStatus.CANNOT)
        if code < 0:
            name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
            reason = f"killed by {name}: the machine may have run out of memory"
            return self._outcome("killed", reason, ExitStatus.CANNOT)
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        last = f": {lines[-1].strip()[:_LAST]}" if lines else ""
        return self._outcome("killed", f"its process ended with {code}{last}", ExitStatus.CANNOT)

    def _outcome(
        self, status: Status, reason: str, ends: ExitStatus, batch: int | None = None, step: str = ""
    ) -> Outcome:
        return Outcome(
            trial=self.asked.trial,
            status=status,
            reason=reason,
            exit_status=int(ends),
            budget_bytes=self.asked.budget_bytes,
            batch=batch,
            step=step,
            repetitions=tuple(self.repetitions),
            process_start_bytes=self.start_bytes,
            process_peak_bytes=self.peak_bytes,
        )


def _forward(stream: IO[bytes], messages: queue.Queue[bytes | None]) -> None:
    """Put the lines of a stream into a queue, and None at its end."""
    with stream:
        for line in stream:
            messages.put(line)
    messages.put(None)
