"""Processes that tests fork others from: forks of the one that runs the tests, as it is when it has collected them.

So they have imported what takes seconds, and pay for it no more. What pytest has changed is as in a new interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import itertools
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path
from types import TracebackType
from typing import NoReturn
from unittest.mock import patch

from tensortide.executors.forks import prepared

ROOT = str(Path(__file__).resolve().parent.parent)


def start() -> None:
    """Start those of ``multiprocessing`` and, where tests of it were collected, of the command line."""
    if sys.platform == "linux":
        resource_tracker.ensure_running()  # or else it would be forked as well
        with patch.object(util, "spawnv_passfds", _forked_server):
            prepared(print)
    if command := sys.modules.get("tests.cli.command"):
        command.server()


def forked(serve: Callable[[], object], kept: Sequence[int]) -> int:
    """The number of a fork of this process that calls ``serve`` and ends; of open files it has those ``kept``."""
    number = os.fork()
    if not number:
        with contextlib.ExitStack() as stack:
            stack.push(_end)
            _be_as_new(kept)
            serve()
    return number


def _forked_server(_: str, arguments: Sequence[str], kept: Sequence[int]) -> int:
    """Fork what would be a new interpreter that runs the last of ``arguments``."""

    def serve() -> None:
        vars(vars(forkserver)["_forkserver"])["_lock"] = threading.Lock()  # it is held while this one is started
        exec(arguments[-1], {})

    return forked(serve, kept)


def _be_as_new(kept: Sequence[int]) -> None:
    """Be as a new interpreter is that has imported what this one has."""
    faulthandler.disable()
    vars(vars(resource_tracker)["_resource_tracker"]).update(_fd=None, _pid=None)  # that one is of the other process
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for last, following in itertools.pairwise([2, *sorted(kept), os.sysconf("SC_OPEN_MAX")]):
        os.closerange(last + 1, following)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    sys.excepthook, sys.unraisablehook = sys.__excepthook__, sys.__unraisablehook__
    threading.excepthook = threading.__excepthook__
    sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_pytest.")]
    sys.path[:] = [folder for folder in sys.path if folder not in ("", ROOT)]
    logging.getLogger().handlers.clear()
    warnings.resetwarnings()
    for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", category)
    warnings.filterwarnings("default", category=DeprecationWarning, module="__main__")


def _end(kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> NoReturn:
    """End as an interpreter does, but free no modules: that takes longer than most runs."""
    code = 0
    if isinstance(error, SystemExit) and isinstance(error.code, int | None):
        code = error.code or 0
    elif kind is not None and error is not None:
        code = 1
        sys.excepthook(kind, error, trace)
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
