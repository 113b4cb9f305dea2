"""Standard output, progress, and what is said beside the answer: a terminal or a pipe."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensortide.cli.messages import one_line, say
from tensortide.errors import RunWarning
from tensortide.progress import Say, silent

if TYPE_CHECKING:
    from rich.console import Console

LINE_S = 10.0
"""Seconds from one line of progress to the next where standard error is no terminal."""


@contextmanager
def progress(quiet: bool) -> Iterator[Say]:
    """Yield a function that shows a message: on a terminal after a second of work, else as a line now and then."""
    if quiet:
        yield silent
    elif sys.stderr.isatty():
        with _on_terminal() as show:
            yield show
    else:
        with _now_and_then() as show:
            yield show


@contextmanager
def _on_terminal() -> Iterator[Say]:
    from rich.console import Console
    from rich.status import Status
    from rich.text import Text

    status = Status("", console=Console(stderr=True))
    late = threading.Timer(1.0, status.start)
    late.daemon = True

    def show(message: str) -> None:
        status.update(Text(f"{one_line(message)} ..."))
        if late.ident is None:
            late.start()

    try:
        yield show
    finally:
        late.cancel()
        status.stop()


@contextmanager
def _now_and_then() -> Iterator[Say]:
    """Yield a function that prints a message as a line, ``LINE_S`` after the last line or the start; of several until
    then the last."""
    start = printed = time.monotonic()
    latest = ""
    waiting: threading.Timer | None = None

    def print_line() -> None:
        nonlocal printed, waiting
        printed, waiting = time.monotonic(), None
        sys.stderr.write(f"{printed - start:.0f} s: {one_line(latest)}\n")
        sys.stderr.flush()

    def show(message: str) -> None:
        nonlocal latest, waiting
        latest = message
        left = printed + LINE_S - time.monotonic()
        if left <= 0 and waiting is None:
            print_line()
        elif waiting is None:
            waiting = threading.Timer(left, print_line)
            waiting.daemon = True
            waiting.start()

    try:
        yield show
    finally:
        if waiting is not None:
            waiting.cancel()


class _Told(logging.Handler):
    """Prints warnings and notes of the other rooms."""

    def emit(self, record: logging.LogRecord) -> None:
        say("warning" if record.levelno >= logging.WARNING else "note", record.getMessage())


@contextmanager
def told() -> Iterator[None]:
    """Have what other rooms log, and warnings about live runs, printed as lines while the body runs."""
    log, handler = logging.getLogger("tensortide"), _Told()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            usual = warnings.showwarning

            def show(message: Warning | str, category: type[Warning], *where: Any, **to: Any) -> None:
                if issubclass(category, RunWarning):
                    say("warning", message)
                else:
                    usual(message, category, *where, **to)

            warnings.showwarning = show
            yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def console() -> Console:
    """Return a console for standard output: styled on a terminal, plain and 100 columns wide in a pipe."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            """Leave the error to whoever prints: the program ends with the status of a broken pipe, not with rich's."""
            raise  # noqa: PLE0704 # rich calls this where it handles the error

    terminal = sys.stdout is not None and sys.stdout.isatty()  # None if it was closed
    if terminal:
        return PipeConsole(highlight=False, emoji=False)  # a target called train.py:fire: is no picture
    return PipeConsole(width=100, highlight=False, no_color=True, emoji=False)


def is_stdout(path: Path | None) -> bool:
    """Return whether ``path`` is standard output, whose contents must not be mixed with text."""
    return path is not None and str(path) in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Print in the body, and drop what is left of it where the reader of standard output leaves (``| head``): the
    status of the verb is that of its answer."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
