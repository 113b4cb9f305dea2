"""A pool of processes on this machine. Each has its own pipe, so a process that dies loses one task only."""

from __future__ import annotations

import contextlib
import pickle
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from tensortide.errors import RunError
from tensortide.executors.forks import prepared
from tensortide.executors.pool import Ended
from tensortide.search_limit import attended


class ProcessPool:
    """Up to ``size`` processes that call ``function``, started on demand. The function is pickled once."""

    def __init__(self, function: Callable[[Any], Any], size: int) -> None:
        self._function, self.size = pickle.dumps(function), size
        self._idle: list[Connection] = []
        self._running: dict[Connection, int] = {}
        self._processes: dict[Connection, BaseProcess] = {}

    def submit(self, index: int, item: Any) -> None:
        data = pickle.dumps(item)
        pipe = self._idle.pop() if self._idle else self._started()
        self._running[pipe] = index
        with contextlib.suppress(OSError):  # if the process has died, ``ended`` reports it
            pipe.send_bytes(data)

    def _started(self) -> Connection:
        own, other = Pipe()
        process = prepared(_serve, other)
        # in a thread, which Ctrl-C does not reach: a process of which half was sent to start shows a traceback
        attended(process.start)
        other.close()
        self._processes[own] = process
        with contextlib.suppress(OSError):
            own.send_bytes(self._function)
        return own

    def ended(self, timeout_s: float) -> list[Ended]:
        found = []
        ready: list[Any] = wait([*self._running], timeout_s)  # of another class on Windows
        for pipe in ready:
            index = self._running.pop(pipe)
            try:
                data = pipe.recv_bytes()
            except (EOFError, OSError):
                pipe.close()
                self._processes.pop(pipe).join()
                found.append(Ended(index, lost=True))
                continue
            self._idle.append(pipe)
            found.append(Ended(index, *pickle.loads(data)))
        return found

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
        for pipe, process in self._processes.items():
            process.join()
            pipe.close()


def _serve(pipe: Connection) -> None:
    """Call the function, which is received first, on each item received then, until the pipe is closed."""
    function = None
    with contextlib.suppress(EOFError, OSError):
        data = pipe.recv_bytes()
        while True:
            item = pipe.recv_bytes()
            try:
                function = function or pickle.loads(data)
                answer = pickle.dumps((function(pickle.loads(item)), None))
            except Exception as error:  # noqa: BLE001  # reported to the parent, whatever it is
                answer = _failed(error)
            pipe.send_bytes(answer)


def _failed(error: Exception) -> bytes:
    """Pickle an error with its traceback as a note, or its text alone if the error cannot be pickled."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        data = pickle.dumps((None, error))
        pickle.loads(data)
    except Exception:  # noqa: BLE001  # of another library
        return pickle.dumps((None, RunError(f"{type(error).__name__}: {error}")))
    return data
