"""Ctrl-C: raised again where Python drops the exception, or counted as a request to end a search."""

from __future__ import annotations

import contextlib
import signal
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


def _interrupt(signum: int, frame: FrameType | None) -> None:
    del signum, frame
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    raise KeyboardInterrupt


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C, and again every tenth of a second while the body still runs.

    A capture watches storages by weak references with callbacks, and an exception raised in one of them is lost. Where
    there is no timer, or no main thread to take signals, Ctrl-C is left as it is.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return
    with _handled(_interrupt, signal.SIGINT, signal.SIGALRM):
        try:
            yield
        finally:
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
