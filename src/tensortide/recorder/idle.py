"""A script that hangs: its process and those that it started want no processor, and nothing is recorded."""

from __future__ import annotations

import linecache
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensortide.recorder.forked_runs import Fork

ASKED = getattr(signal, "SIGURG", None)
"""Signal at which a script's process writes its stack. One that has not begun to listen ignores it."""
_BUSY = 0.01
"""Share of a processor from which on a process does something."""
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_LIBRARY = re.compile(
    r"[/\\]lib(64)?[/\\]python[\d.]+[/\\]|[/\\]site-packages[/\\]|[/\\]tensortide[/\\]recorder[/\\]|^<"
)
_PROCESSES = Path("/proc")
_LOOK_S = 0.5
"""Seconds from one look at a process to the next."""
_LEAST_S = 2.0
"""A process that starts may wait so long for a disk."""
_ANSWER_S = 2.0
"""Time in which a process writes its stack."""


class Idle:
    """Watches a process. ``hangs`` is asked again and again, with what was recorded so far."""

    def __init__(self, process: subprocess.Popen[bytes] | Fork, longest_s: float) -> None:
        self._process, self._longest_s = process, longest_s
        self._looked = self._since = time.monotonic()
        self._used, self._seen = _used_s(process.pid), ""

    def hangs(self, recorded: str) -> bool:
        """True if for so long the process did nothing; False where that cannot be known."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return False
        self._looked, used = now, _used_s(self._process.pid)
        if used is None:
            return False
        busy = self._used is None or abs(used - self._used) > _BUSY * self._longest_s
        if busy or recorded != self._seen:
            self._since, self._used, self._seen = now, used, recorded
        return now - self._since >= max(self._longest_s, _LEAST_S)

    def place(self, stack: Path) -> str:
        """The line that the script's main thread is at; empty if it does not say."""
        if ASKED is None or not stack.exists():
            return ""
        self._process.send_signal(ASKED)
        until = time.monotonic() + _ANSWER_S
        while not (text := stack.read_text("utf-8", "replace")) and time.monotonic() < until:
            time.sleep(_LOOK_S / 10)
        return innermost(text)


def innermost(stack: str) -> str:
    """The innermost line of a stack, as ``faulthandler`` writes it, that is no library's."""
    frames = _FRAME.findall(stack)
    if not frames:
        return ""
    file, line, function = next((each for each in frames if not _LIBRARY.search(each[0])), frames[0])
    text = linecache.getline(file, int(line)).strip()[:160]
    return f"{file}:{line} in {function}" + (f": {text}" if text else "")


def _used_s(process: int) -> float | None:
    """Seconds of processors that a process and its descendants have used, or have waited for while other processes had
    them: on a busy machine one that works may get none for minutes. None where that is not known."""
    folder = _PROCESSES / str(process)
    try:
        children = [each.read_text().split() for each in folder.glob("task/*/children")]
        queued = [int(each.read_text().split()[1]) for each in folder.glob("task/*/schedstat")]
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    used = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + sum(queued) / 1e9
    # one that has ended meanwhile counts as one that was waited for
    return used + sum(_used_s(int(each)) or 0 for some in children for each in some)
