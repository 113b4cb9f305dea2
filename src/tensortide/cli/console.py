"""Standard output, progress, and what is said beside the answer: a terminal or a pipe."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tensortide.cli.messages import one_line, say
from tensortide.errors import RunWarning
from tensortide.progress import Say, silent

if TYPE_CHECKING:
    from rich.console import Console

LINE_S = 10.0
"""Seconds from one line of progress to the next where standard error is no terminal."""
STILL_S = 30.0
"""Seconds after which a line is printed again, if there is no other."""
_TICK_S = 1.0
"""Seconds from one look at the clock to the next; a terminal shows nothing before."""
_PIPE = 100
"""Columns of a pipe where nobody says how many."""
_WIDEST_PIPE = 10_000
"""From so many columns on a number is no width."""
_details: ContextVar[bool] = ContextVar("details", default=False)
_END = 30
"""Characters that are shown of the end of a line that is too long for the terminal."""


@contextmanager
def progress(quiet: bool) -> Iterator[Say]:
    """Yield a function that shows a message: on a terminal after a second of work, else as a line now and then.

    Standard output is for the answer, which comes later: what a program prints meanwhile goes to standard error.
    Where details are asked for (``detailed``), every message is a line.
    """
    how = _every_line if _details.get() else _on_terminal if sys.stderr.isatty() else _now_and_then
    with nullcontext(silent) if quiet else how() as show, redirect_stdout(sys.stderr):
        yield show


class _Line:
    r"""The line of progress on a terminal. It is written over by ``\r`` and blanks, which a notebook understands, too,
    and is gone when it has ended."""

    def __init__(self) -> None:
        self._stream, self._lock = sys.stderr, threading.RLock()
        self._width, self._start = 0, time.monotonic()
        self._text, self._open = "", False

    def show(self, message: str) -> None:
        """Show a message from the next tick on."""
        self._text = one_line(message)

    def draw(self) -> None:
        """Write the line anew."""
        with self._lock:
            if not self._text or self._open:
                return
            room = shutil.get_terminal_size().columns - 1
            text = f"{time.monotonic() - self._start:.0f} s: {self._text} ..."
            if len(text) > room:  # its end says how far it is
                text = f"{text[: room - _END - 3]}...{text[-_END:]}"
            self._put(f"\r{text.ljust(self._width)}")
            self._width = len(text)

    def hide(self) -> None:
        """Blank the line, so that other text can stand in its place."""
        with self._lock:
            if self._width:
                self._put(f"\r{' ' * self._width}\r")
            self._width = 0

    def aside(self, stream: TextIO, text: str) -> int:
        """Write ``text`` to ``stream``, where the line would stand; it comes back below a line that has ended."""
        with self._lock:
            self.hide()
            self._open = not text.endswith("\n") if text else self._open
            return stream.write(text)

    def _put(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)
            self._stream.flush()


class _Aside:
    """A stream of a program that shows a line of progress on the same terminal."""

    def __init__(self, stream: TextIO, line: _Line) -> None:
        self._stream, self._line = stream, line

    def write(self, text: str) -> int:
        """Write ``text`` in place of the line."""
        return self._line.aside(self._stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _ticking(tick: Callable[[], None]) -> Iterator[None]:
    """Call ``tick`` every second while active, in a thread."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_TICK_S):
            tick()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _on_terminal() -> Iterator[Say]:
    line = _Line()
    try:
        with redirect_stderr(_Aside(sys.stderr, line)), _ticking(line.draw):
            yield line.show
    finally:
        line.hide()


@contextmanager
def _now_and_then() -> Iterator[Say]:
    """Yield a function that prints the latest message as a line, at most every ``LINE_S``, and an unchanged one every
    ``STILL_S``."""
    start = printed = time.monotonic()
    latest = said = ""
    lock = threading.RLock()

    def look() -> None:
        nonlocal printed, said
        with lock:
            now = time.monotonic()
            if latest and now - printed >= (STILL_S if latest == said else LINE_S):
                printed, said = now, latest
                with suppress(OSError):
                    sys.stderr.write(f"{now - start:.0f} s: {one_line(latest)}\n")
                    sys.stderr.flush()

    def show(message: str) -> None:
        nonlocal latest
        latest = message
        look()

    with _ticking(look):
        yield show


@contextmanager
def _every_line() -> Iterator[Say]:
    """Yield a function that prints each message as a line, once in a row."""
    start, latest = time.monotonic(), ""
    lock = threading.RLock()

    def show(message: str) -> None:
        nonlocal latest
        with lock, suppress(OSError):
            if message != latest:
                sys.stderr.write(f"{time.monotonic() - start:.1f} s: {one_line(message)}\n")
            latest = message

    yield show


class _Told(logging.Handler):
    """Prints warnings and notes of the other rooms, and details, each once, which say themselves what they are."""

    def __init__(self) -> None:
        super().__init__()
        self._details: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.INFO:
            say("warning" if record.levelno >= logging.WARNING else "note", text)
        elif text not in self._details:
            self._details.add(text)
            kind, _, what = text.partition(": ")
            say(kind, what)


@contextmanager
def detailed(asked: bool) -> Iterator[None]:
    """Have all messages of progress and all details printed as lines while the body runs, if that is ``asked``."""
    if not asked:
        yield
        return
    log, token = logging.getLogger("tensortide"), _details.set(True)
    level = log.level
    log.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        log.setLevel(level)
        _details.reset(token)


@contextmanager
def told() -> Iterator[None]:
    """Have what other rooms log, and warnings about live runs, printed as lines while the body runs. Any other warning
    is printed once, however often a step is captured."""
    log, handler = logging.getLogger("tensortide"), _Told()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            usual, shown = warnings.showwarning, set[tuple[object, ...]]()

            def show(message: Warning | str, category: type[Warning], *where: Any, **to: Any) -> None:
                one = (str(message), category, *where[:2])
                if issubclass(category, RunWarning):
                    say("warning", message)
                elif one not in shown:
                    shown.add(one)
                    usual(message, category, *where, **to)

            warnings.showwarning = show
            yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def console() -> Console:
    """Return a console for standard output: styled on a terminal; plain in a pipe, and as wide as ``COLUMNS`` says, or
    100 columns."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            """Leave the error to whoever prints: the program ends with the status of a broken pipe, not with rich's."""
            raise  # noqa: PLE0704 # rich calls this where it handles the error

    if is_terminal():
        return PipeConsole(highlight=False, emoji=False)  # a target called train.py:fire: is no picture
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and 0 < int(columns) < _WIDEST_PIPE else _PIPE
    return PipeConsole(width=width, highlight=False, no_color=True, emoji=False)


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()  # None if it was closed


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
