"""Limits of searches, in counted work and in seconds; and solvers attended while they run, so that the limits hold."""

from __future__ import annotations

import ctypes
import math
import sys
import threading
import time
from collections.abc import Callable
from numbers import Real
from typing import TypeAlias, TypeVar

from tensortide.errors import check_argument

Look: TypeAlias = Callable[[], None]
"""Called regularly during long work; it may raise an exception to end that."""
Result = TypeVar("Result")
_LOOK_S = 0.1


def no_look() -> None:
    """End nothing."""


class SearchLimit:
    """Limit of a search in counted ``work``, in ``seconds`` from now on by ``clock`` (default: that on the wall), or in
    both; the first that is reached ends the search.

        >>> limit = SearchLimit(work=100)
        >>> limit.spend(60)
        >>> limit.part(0.5).work_left
        20.0

    Each search says what it counts. With a limit of work alone no clock is read, so the result is the same on any
    machine, however loaded. What is spent of a ``part`` is spent of the whole, too.
    """

    __slots__ = ("_clock", "_end", "_left", "_whole")

    def __init__(
        self,
        *,
        work: float = math.inf,
        seconds: float = math.inf,
        whole: SearchLimit | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._left, self._whole, self._clock = work, whole, clock or time.monotonic
        self._end = math.inf if seconds == math.inf else self._clock() + seconds

    @classmethod
    def given(
        cls,
        seconds: float | None,
        work: float | None,
        *,
        otherwise_s: float,
        apart_s: Callable[[], float] = lambda: 0.0,
    ) -> SearchLimit:
        """The limits that are not None; if both are, ``otherwise_s`` seconds of the processor's time for this process,
        so that a loaded machine takes longer, and finds no less. ``apart_s``: seconds so far that do not count.

        Raises RequestError for what is no limit.
        """
        for name, value, unit in (("time_limit_s", seconds, "seconds"), ("work_limit", work, "steps")):
            if value is not None:
                check_argument(name, value, (Real,), f"a number of {unit}, 0 or more", least=0)
        is_given = seconds is not None or work is not None
        clock = time.monotonic if is_given else time.process_time
        return cls(
            seconds=seconds if seconds is not None else math.inf if is_given else otherwise_s,
            work=math.inf if work is None else work,
            clock=lambda: clock() - apart_s(),
        )

    def spend(self, work: float) -> None:
        """Count ``work`` that is done."""
        self._left -= work
        if self._whole is not None:
            self._whole.spend(work)

    @property
    def work_left(self) -> float:
        """Work that is still allowed, 0 at least."""
        left = max(0.0, self._left)
        return left if self._whole is None else min(left, self._whole.work_left)

    @property
    def seconds_left(self) -> float:
        """Seconds that are still allowed, 0 at least."""
        left = math.inf if self._end == math.inf else max(0.0, self._end - self._clock())
        return left if self._whole is None else min(left, self._whole.seconds_left)

    @property
    def spent(self) -> bool:
        """True once the limit is reached."""
        return not self.work_left or not self.seconds_left

    def part(self, share: float, *, work: float = math.inf) -> SearchLimit:
        """A share of what is left, ``work`` at most."""
        work, seconds = min(work, share * self.work_left), share * self.seconds_left
        return SearchLimit(work=work, seconds=seconds, whole=self, clock=self._clock)


def attended(work: Callable[[], Result], look: Look = no_look, stop: Callable[[], None] | None = None) -> Result:
    """Return what ``work`` does, in a thread of its own; meanwhile call ``look`` ten times a second, which may raise.

    For calls of solvers and of compiled functions, during which Python hears no signal. What ends the wait calls
    ``stop`` until ``work`` returns; without ``stop`` it is left to itself.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 -- raised again in the thread that waits
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        thread.join(_LOOK_S)
        while thread.is_alive():
            look()
            thread.join(_LOOK_S)
    except BaseException:
        while stop is not None and thread.is_alive():
            stop()
            thread.join(_LOOK_S)
        raise
    if errors:
        raise errors[0]
    return results[0]


class _Unwanted(SystemExit):
    """Ends a thread for whose result nobody waits: no ``except Exception`` catches it, and it shows nothing."""


class _UnraisableHook:
    """Hook that shows all but ``_Unwanted``, which may arrive in a ``__del__`` or in a callback of the garbage
    collector: Python reports such exceptions, and the thread goes on until the next."""

    def __init__(self, shown: Callable[[sys.UnraisableHookArgs], object]) -> None:
        self._shown = shown

    def __call__(self, unraisable: sys.UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, _Unwanted):
            self._shown(unraisable)


def interruptible(work: Callable[[], Result], look: Look = no_look) -> Result:
    """As ``attended``, for long Python code that never calls ``look``: what ends the wait also ends ``work``, by an
    exception at its next instruction, as Ctrl-C would."""
    running: list[int] = []

    def run() -> Result:
        running.append(threading.get_ident())
        try:
            return work()
        finally:
            running.clear()

    def stop() -> None:
        if not isinstance(sys.unraisablehook, _UnraisableHook):
            sys.unraisablehook = _UnraisableHook(sys.unraisablehook)
        for thread in running:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_Unwanted))

    return attended(run, look, stop)
