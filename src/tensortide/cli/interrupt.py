"""Ctrl-C and requests to terminate: raised again where Python drops the exception, or counted as requests to end a
search."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_AGAIN_S = 0.1
_requests: list[int] = []
"""Signals that asked searches of the verb that runs to end."""
_usual: dict[int, Callable[[int, FrameType | None], object]] = {}
"""What handles those signals but for a search, until ``end_requests``."""


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
def heard() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt with the number of the signal on Ctrl-C, SIGTERM or SIGHUP, and again every tenth of a
    second while the body still runs.

    A capture watches storages by weak references with callbacks, and an exception raised in one of them is lost. It is
    not repeated while a KeyboardInterrupt is handled, so that clean-up code runs to its end. Where there is no timer,
    or no main thread to take signals, signals are left as they are; so is one that is ignored. Yields the
    signals that ended a search (``counted``): SIGTERM is to end the program, too, once the result is shown.
    """
    _requests.clear()
    _usual.clear()
    if not hasattr(signal, "setitimer"):
        yield _requests
        return
    first: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        del frame
        first.append(number)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        if number != signal.SIGALRM or not isinstance(sys.exception(), KeyboardInterrupt):
            raise KeyboardInterrupt(first[0])

    ends = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    ends += [signal.SIGINT] if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN else []
    with _handled(interrupt, signal.SIGALRM, *ends):
        try:
            yield _requests
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
    """Yield a list that is empty until Ctrl-C or SIGTERM arrives: a request to end a search and show its result.

    Once there is one, it holds for what follows the body, too, other searches included, until ``end_requests``: a
    second request changes nothing, as two often come together, and a third ends the program as usual. A signal that is
    ignored, or would end Python, is left as it is.
    """
    if _requests or threading.current_thread() is not threading.main_thread():
        yield _requests
        return

    def hear(number: int, frame: FrameType | None) -> None:
        _requests.append(number)
        if len(_requests) > 2:
            _usual[number](number, frame)

    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        if callable(handler):
            _usual[number] = handler
            signal.signal(number, hear)
    try:
        yield _requests
    finally:
        if not _requests:
            end_requests()


def end_requests() -> None:
    """Have Ctrl-C and SIGTERM end the program again, once a search has ended and what takes long follows. Raises
    KeyboardInterrupt with the number of the signal if SIGTERM ended the search: what follows is not wanted then."""
    for number, handler in _usual.items():
        signal.signal(number, handler)
    _usual.clear()
    if signal.SIGTERM in _requests:
        raise KeyboardInterrupt(signal.SIGTERM)
