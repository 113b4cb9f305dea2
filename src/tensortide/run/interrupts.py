"""Signals that arrive in the midst of an op: their handlers, which may raise, run when the op is over."""

from __future__ import annotations

import _thread
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from tensortide.errors import RunError
from tensortide.recorder.surroundings import replaced
from tensortide.run.storages import Storages

LOCK_TIMEOUT_S = 60.0
"""Longest time that a thread waits for the op of another one."""


class _Deferred:
    """The ``handler`` of a signal."""

    def __init__(self, handler: Callable[[int, Any], Any], interrupts: Interrupts) -> None:
        self.handler, self.interrupts = handler, interrupts

    def __call__(self, number: int, frame: Any) -> None:
        if self.interrupts.busy:
            self.interrupts.waiting.append((self.handler, number, frame))
        elif _releasing(frame):
            _start(_again, (number,))
        else:
            self.handler(number, frame)


_start = _thread.start_new_thread
"""As it was before anybody replaced it."""


def _again(number: Any) -> None:
    """Let a signal arrive once more, a little later."""
    time.sleep(0.001)
    _thread.interrupt_main(number)


def _releasing(frame: Any) -> bool:
    """True if the program is being told that a storage is released: an error there would be lost, and so would the
    news."""
    while frame is not None and frame.f_code is not Storages.dropped.__code__:
        frame = frame.f_back
    return frame is not None


def _plain(handler: Any) -> Any:
    return handler.handler if isinstance(handler, _Deferred) else handler


class Interrupts:
    """Handlers of signals that wait. ``lock``: held by a thread while an op of it is under way."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.waiting: list[tuple[Callable[[int, Any], Any], int, Any]] = []

    @property
    def busy(self) -> bool:
        """True if an op of this thread is under way."""
        return bool(self.lock._is_owned())  # type: ignore[attr-defined]

    def enter(self) -> None:
        """Begin an op: take ``lock``, once no other thread has it."""
        if not self.lock.acquire(timeout=LOCK_TIMEOUT_S):
            raise RunError(
                f"an op of another thread has not ended for {LOCK_TIMEOUT_S:.0f} s; under a memory budget one op runs "
                "at a time, and must not wait for those of other threads"
            )

    def deliver(self) -> None:
        """Run those that wait, unless an op is under way still."""
        while self.waiting and threading.current_thread() is threading.main_thread() and not self.busy:
            handler, number, frame = self.waiting.pop(0)
            handler(number, frame)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Defer the handlers of all signals, also of those set in the meantime."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        set_, get = signal.signal, signal.getsignal

        def deferred(number: Any, handler: Any) -> Any:
            return _plain(set_(number, _Deferred(handler, self) if callable(handler) else handler))

        try:
            for number in signal.valid_signals():
                handler = get(number)
                if callable(handler):
                    deferred(number, handler)
            with (
                replaced(signal, "signal", deferred),
                replaced(signal, "getsignal", lambda number: _plain(get(number))),
            ):
                yield
        finally:
            if threading.current_thread() is threading.main_thread():
                for number in signal.valid_signals():
                    if isinstance(handler := get(number), _Deferred):
                        set_(number, handler.handler)
