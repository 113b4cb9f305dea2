"""Ctrl-C and requests to terminate: raised again where Python drops the exception, or counted as a request to end a
search."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_AGAIN_S = 0.1


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], *numbers: int) -> Iterator[None]:
    """Set ``handler`` for signals while the body runs; only the main thread takes signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [(number, signal.signal(number, handler)) for number in numbers]
    try:
        yield
    finally:
        for number, old in before:
            signal.signal(number, old)


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Raise KeyboardInterrupt with the number of the signal on Ctrl-C, SIGTERM or SIGHUP, and again every tenth of a
    second while the body still runs.

    A capture watches storages by weak references with callbacks, and an exception raised in one of them is lost. It is
    not repeated while a KeyboardInterrupt is handled, so that clean-up code runs to its end. Where there is no timer,
    or no main thread to take signals, signals are left as they are; so is one that is ignored.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return
    first: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        del frame
        first.append(number)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        if number != signal.SIGALRM or not isinstance(sys.exception(), KeyboardInterrupt):
            raise KeyboardInterrupt(first[0])

    ends = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    with _handled(interrupt, signal.SIGINT, signal.SIGALRM, *ends):
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


@contextlib.contextmanager
def postponed() -> Iterator[list[KeyboardInterrupt]]:
    """Catch the KeyboardInterrupt that ends the body and append it to the yielded list, for the caller to raise;
    ``heard`` no longer repeats it."""
    found: list[KeyboardInterrupt] = []
    try:
        yield found
    except KeyboardInterrupt as error:
        found.append(error)
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)


@contextlib.contextmanager
def counted() -> Iterator[list[int]]:
    """Yield a list that is empty until Ctrl-C is typed; a second Ctrl-C ends the program as usual."""
    requests: list[int] = []
    usual = signal.getsignal(signal.SIGINT)

    def hear(number: int, frame: FrameType | None) -> None:
        if requests and callable(usual):
            usual(number, frame)
        requests.append(number)

    with _handled(hear, signal.SIGINT):
        yield requests
