"""Tasks in processes of this machine, each with a pipe of its own: one that dies takes its own task with it alone."""

from __future__ import annotations

import contextlib
import pickle
import signal
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from tensortide.errors import RunError
from tensortide.executors.pool import Ended

_SPAWN = get_context("spawn")
"""New interpreters: a fork of a process with threads (PyTorch, Numba, Ray) may hang."""


class ProcessPool:
    """Up to ``size`` processes that call ``function``, started when they are needed. It is pickled once."""

    def __init__(self, function: Callable[[Any], Any], size: int) -> None:
        self._function, self.size = pickle.dumps(function), size
        self._idle: list[Connection] = []
        self._running: dict[Connection, int] = {}
        self._processes: dict[Connection, SpawnProcess] = {}

    def submit(self, place: int, item: Any) -> None:
        data = pickle.dumps(item)
        pipe = self._idle.pop() if self._idle else self._started()
        self._running[pipe] = place
        with contextlib.suppress(OSError):  # a process that has died is found by whoever waits for it
            pipe.send_bytes(data)

    def _started(self) -> Connection:
        own, other = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_serve, args=(other, self._function), daemon=True)
        process.start()
        other.close()
        self._processes[own] = process
        return own

    def ended(self, timeout_s: float) -> list[Ended]:
        found = []
        for pipe in wait([*self._running], timeout_s):
            assert isinstance(pipe, Connection)
            place = self._running.pop(pipe)
            try:
                result, error = pickle.loads(pipe.recv_bytes())
            except (EOFError, OSError):
                pipe.close()
                self._processes.pop(pipe).join()
                found.append(Ended(place, lost=True))
                continue
            self._idle.append(pipe)
            found.append(Ended(place, result, error))
        return found

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
        for pipe, process in self._processes.items():
            process.join()
            pipe.close()


def _serve(pipe: Connection, data: bytes) -> None:
    """Call the function for each item that comes, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group, and is for the process that asked
    function = None
    with contextlib.suppress(EOFError, OSError):
        while True:
            item = pipe.recv_bytes()
            try:
                function = function or pickle.loads(data)
                answer = pickle.dumps((function(pickle.loads(item)), None))
            except Exception as error:  # noqa: BLE001  # whatever it is, the asker is to hear of it
                answer = _failed(error)
            pipe.send_bytes(answer)


def _failed(error: Exception) -> bytes:
    """An error as it travels: with the place where it was raised, or as a text if it cannot be copied."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        data = pickle.dumps((None, error))
        pickle.loads(data)
    except Exception:  # noqa: BLE001  # of another library
        return pickle.dumps((None, RunError(f"{type(error).__name__}: {error}")))
    return data
