"""Processes that start in milliseconds with what takes seconds to import."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import forkserver, resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any

_IMPORTED_IN = os.getpid()
"""The process that imported this module. A fork of it cannot ask the server of its parent for processes."""


def prepared(function: Callable[..., object], *arguments: Any) -> BaseProcess:
    """Make a process that calls ``function``, to be started; it ends with this one, however this one ends.

    On Linux it is a fork of a process that has imported what this one has of tensortide, and done nothing else: forking
    this one, which may have threads (PyTorch, Numba, Ray), may deadlock. The first call starts that process.
    Elsewhere, and in a fork of the process that imported this module, it is a new interpreter. Ctrl-C, which goes to
    the whole process group, is for this process alone: that one ignores it.
    """
    given = ({**os.environ}, function, arguments)
    if sys.platform != "linux" or os.getpid() != _IMPORTED_IN:
        return multiprocessing.get_context("spawn").Process(target=_call, args=given, daemon=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_imported())
    _ensure_server()
    return context.Process(target=_call, args=given, daemon=True)


def _ensure_server() -> None:
    """Start the process that is forked, unless it runs, with SIGINT blocked: Ctrl-C would end it while it imports."""
    resource_tracker.ensure_running()  # which unblocks the signal when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _imported() -> list[str]:
    """Modules to import before forks. Importers are not: some of their frameworks start threads."""
    own = (name for name in sys.modules if name.startswith("tensortide.") and not name.endswith("__main__"))
    shared = [name for name in own if not name.startswith("tensortide.importers.")]
    return [*shared, *(["torch._dynamo"] if "torch" in sys.modules else [])]  # optimizers import it when they step


def _call(environment: dict[str, str], function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    """Call ``function`` in ``environment``: the one that the process was forked from may have another."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    gc.freeze()  # what was imported is no garbage: visiting it would copy the memory that the fork shares
    function(*arguments)


def _end_with_parent() -> None:
    """End this process when the one that asked for it has ended, killed or interrupted before it knew of this one."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
