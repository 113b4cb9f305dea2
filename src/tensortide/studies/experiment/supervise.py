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
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import msgspec

from tensortide.errors import ExitStatus
from tensortide.studies.experiment.results import Outcome, Repetition, Status
from tensortide.studies.experiment.trial_process import Message
from tensortide.studies.experiment.ways import Asked

LEAST_BEAT_S = 30.0
"""Seconds that a repetition may take whatever the one before took: a busy machine is no fault of a trial."""
COMMAND = (sys.executable, "-m", "tensortide.studies.experiment.trial_process")
_POLL_S = 0.2
_END_S = 10.0
"""Seconds in which a process whose trial has ended must end."""
_LAST = 200
"""Most characters of the last line that a crashed process has printed."""
running: dict[str, int] = {}
"""Repetitions so far of the trials that run in this process's children, by the names of their logs."""
_processes: set[subprocess.Popen[bytes]] = set()
_over = threading.Event()
"""Set once no further attempt is to be started."""


@contextlib.contextmanager
def none_left() -> Iterator[None]:
    """Let no process of a trial outlive the body, and start none after it."""
    _over.clear()
    try:
        yield
    finally:
        _over.set()
        for process in [*_processes]:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, and those that it has started, as workers of a data loader."""
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)  # it leads a session of its own
        else:
            process.kill()


def silent_beat() -> None:
    """Tell nobody that a trial has come further."""


def supervise(asked: Asked, log: Path, folder: Path, beat: Callable[[], None] = silent_beat) -> Outcome:
    """Run the trial in a process of its own, again if an attempt crashes, hangs or is killed and it may be retried.

    It runs in ``folder``; what it prints goes to the file ``log``. ``beat`` is called as it begins and after each
    repetition.
    """
    began, started, attempt = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic(), 1
    found = _attempted(asked, log, folder, beat)
    while _is_lost(found) and attempt <= asked.trial.retries and not _over.is_set():
        found, attempt = _attempted(asked, log, folder, beat), attempt + 1
    took_s = round(time.monotonic() - started, 3)
    return msgspec.structs.replace(found, attempts=attempt, began=began, took_s=took_s)


def _is_lost(found: Outcome) -> bool:
    """True where another attempt may end otherwise: it was no answer, and the request is not at fault."""
    return not found.is_answer and found.exit_status != ExitStatus.WRONG


def _attempted(asked: Asked, log: Path, folder: Path, beat: Callable[[], None]) -> Outcome:
    running[log.stem] = 0
    beat()
    try:
        return _Attempt(asked, log, folder, beat).run()
    finally:
        running.pop(log.stem, None)


class _Attempt:
    """One attempt at a trial."""

    def __init__(self, asked: Asked, log: Path, folder: Path, beat: Callable[[], None]) -> None:
        self.asked, self.log, self.folder, self.tell = asked, log, folder, beat
        self.repetitions: list[Repetition] = []
        self.start_bytes: int | None = None
        self.peak_bytes: int | None = None
        self.last = time.monotonic()
        self.end = math.inf if asked.trial.timeout is None else self.last + asked.trial.timeout
        self.beat = self.allowed_s = math.inf

    def run(self) -> Outcome:
        """Start the process, and hear it to its end."""
        messages: queue.Queue[bytes | None] = queue.Queue()
        pipe = subprocess.PIPE
        with self.log.open("wb") as errors:
            process = subprocess.Popen(
                COMMAND, cwd=self.folder, stdin=pipe, stdout=pipe, stderr=errors, start_new_session=True
            )
        assert process.stdin is not None
        assert process.stdout is not None
        _processes.add(process)
        hearing = threading.Thread(target=_forward, args=(process.stdout, messages), daemon=True)
        hearing.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(msgspec.json.encode(self.asked) + b"\n")
                process.stdin.flush()
            return self._heard(process, messages)
        finally:
            _kill(process)
            process.wait()
            hearing.join(_END_S)
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            _processes.discard(process)

    def _heard(self, process: subprocess.Popen[bytes], messages: queue.Queue[bytes | None]) -> Outcome:
        """Take the messages of the process until it ends, or has to be ended."""
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
            self.start_bytes, self.last = self.peak_bytes, now
            return
        self.allowed_s = max(LEAST_BEAT_S, math.ceil(2 * (now - self.last)))
        self.last, self.beat = now, now + self.allowed_s
        running[self.log.stem] = running.get(self.log.stem, 0) + 1
        if message.repetition is not None:
            self.repetitions.append(message.repetition)
        self.tell()

    def _late(self) -> str:
        return f"a repetition has not ended within {self.allowed_s:g} s, twice the time of the one before"

    def _look(self, process: int) -> None:
        """Read the most memory that the process has had; nothing where the system does not tell."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    self.peak_bytes = max(self.peak_bytes or 0, 1024 * int(line.split()[1]))

    def _ended(self, message: Message) -> Outcome:
        if not message.reason:
            return self._outcome("ok", "", ExitStatus.HOLDS, message.batch)
        fits = message.status != ExitStatus.FAILS
        # Lists, which are indented, are left to the log: what is needed comes after them.
        reason = " ".join(line.strip() for line in message.reason.splitlines() if line[:2].strip())
        return self._outcome("failed" if fits else "infeasible", reason, ExitStatus(message.status))

    def _crashed(self, process: subprocess.Popen[bytes]) -> Outcome:
        try:
            code = process.wait(_END_S)
        except subprocess.TimeoutExpired:
            reason = f"its process closed what it reports to, and did not end ({self.log})"
            return self._outcome("killed", reason, ExitStatus.CANNOT)
        if code < 0:
            name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
            reason = f"killed by {name}: the machine may have run out of memory"
            return self._outcome("killed", reason, ExitStatus.CANNOT)
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        last = f": {lines[-1].strip()[:_LAST]}" if lines else ""
        return self._outcome("killed", f"its process ended with {code}{last} ({self.log})", ExitStatus.CANNOT)

    def _outcome(self, status: Status, reason: str, ends: ExitStatus, batch: int | None = None) -> Outcome:
        return Outcome(
            trial=self.asked.trial,
            status=status,
            reason=reason,
            exit_status=int(ends),
            budget_bytes=self.asked.budget_bytes,
            batch=batch,
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
