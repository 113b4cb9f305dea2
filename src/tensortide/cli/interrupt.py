"""Reliable Ctrl-C: repeated until it is handled, because Python drops exceptions in weak references' callbacks."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_AGAIN_S = 0.1


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
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [(number, signal.signal(number, _interrupt)) for number in (signal.SIGINT, signal.SIGALRM)]
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before:
            signal.signal(number, handler)
