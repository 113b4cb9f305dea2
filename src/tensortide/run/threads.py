"""Threads beside the one that opened the budget: their ops on tensors under the budget take part in it, one op at a
time."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tensortide.recorder.recorder import Mode
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import OpOverload
from tensortide.run.block import ORDINARY, storage_of, stored, tensors_of
from tensortide.run.torch_compat import ModeKind, mode_at, mode_of_kind, modes, pop_mode, push_mode

if TYPE_CHECKING:
    from tensortide.run.runtime import Runtime


def active(mode: Mode) -> bool:
    """True if ``mode`` is on in this thread."""
    return any(mode_at(at) is mode for at in range(modes()))


def take_off(mode: Mode) -> None:
    """Switch ``mode`` off in this thread, wherever in the stack of modes it is. Nothing happens if it is not on."""
    if not active(mode):
        return
    above = []
    while (top := pop_mode(None)) is not mode:
        above.append(top)
    for other in reversed(above):
        push_mode(other)


_TRACING = (ModeKind.FAKE, ModeKind.FUNCTIONAL)


def tracing() -> bool:
    """True, in the handler of a mode, if ops are traced on fake tensors in this thread, as exports do."""
    return bool(modes()) and any(mode_of_kind(key) is not None for key in _TRACING)


class _Visitor(Mode):
    """Mode of every thread but the one that opened the budget. Ops that cannot touch what may be evicted pass."""

    def __init__(self) -> None:
        super().__init__()
        self.runtime: Runtime | None = None
        """The budget's, while one is open."""
        self.left: weakref.ref[Runtime] | None = None
        """That of the budget before: it may still be on in its thread, if another one left it."""
        self.handling: set[int] = set()
        """Threads in the midst of an op: it is off there until the op is over."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        runtime = self.runtime
        if runtime is None or tracing():
            return func(*args, **kwargs)
        if not all(kind in ORDINARY or issubclass(kind, torch.nn.Parameter) for kind in types):
            return NotImplemented
        here = threading.get_ident()
        self.handling.add(here)
        try:
            if not _concerned(runtime, func, args, kwargs):
                return func(*args, **kwargs)
            runtime.crowded = True
            return runtime.__torch_dispatch__(func, types, args, kwargs)
        finally:
            self.handling.discard(here)

    def switch(self) -> bool:
        """Be on in this thread while a budget is open, and off afterwards; False if that has to wait."""
        if threading.get_ident() in self.handling:
            return False
        if self.runtime is None:
            take_off(self)
            if self.left is not None and (left := self.left()) is not None:
                left.disarm()
                take_off(left)
        elif threading.get_ident() != self.runtime.thread and not active(self):
            push_mode(self)
        return True


def _concerned(runtime: Runtime, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """True if an op reads what may be evicted, or writes what others may have been computed from."""
    writes = isinstance(func, OpOverload) and func._schema.is_mutable
    for tensor in stored(tensors_of([*args, *kwargs.values()])):
        try:
            handle = storage_of(tensor)
        except NotImplementedError:
            continue
        value = runtime.known.get(handle._cdata)
        if value is None:
            if writes and not handle.resizable():
                return True
        elif writes or runtime.engine.tiers is not None or not runtime.storages.all_fixed([value]):
            return True
    return False


_visitor = _Visitor()


@contextlib.contextmanager
def threads_seen(runtime: Runtime) -> Iterator[None]:
    """Let the ops of all threads take part: of those that run already, and of those that start while it is open."""
    starts = ("start_new_thread", "start_new", "start_joinable_thread")
    places: list[tuple[Any, str]] = [(_thread, name) for name in starts]
    places += [(threading, f"_{name}") for name in starts]
    with contextlib.ExitStack() as stack:
        _visitor.runtime, _visitor.left = runtime, weakref.ref(runtime)
        stack.callback(_everywhere)
        stack.callback(setattr, _visitor, "runtime", None)
        for place, name in places:
            if hasattr(place, name):
                stack.enter_context(replaced(place, name, _starting(getattr(place, name))))
        _everywhere()
        yield


def _starting(start: Callable[..., Any]) -> Callable[..., Any]:
    """``start``, a function that starts a thread; the ops of the thread take part from the first one on."""

    @functools.wraps(start)
    def started(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        @functools.wraps(function)
        def taking_part(*args: Any, **kwargs: Any) -> Any:
            _visitor.switch()
            return function(*args, **kwargs)

        return start(taking_part, *args, **kwargs)

    return started


# -- threads that run already --------------------------------------------------------------------------
#
# Modes belong to threads, and only the thread itself can change its own. So all are given a profile function, which
# Python calls in each of them when it next calls a function or returns from one: before it can have got hold of a
# tensor that did not exist earlier. That function removes itself at once.


def _profile(*_: Any) -> int:
    if _visitor.switch():
        sys.setprofile(threading.getprofile())
    return 0


def _everywhere() -> None:
    """Switch the visitor in all other threads, each when it next calls a function."""
    own = sys.getprofile()
    if hasattr(sys, "_setprofileallthreads"):
        sys._setprofileallthreads(_profile)
        sys.setprofile(own)
    elif len(sys._current_frames()) > 1:
        _each_thread()


_api = ctypes.pythonapi
_Trace = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_traced = _Trace(_profile)


def _each_thread() -> None:
    """Give other threads the profile function: before Python 3.12 there is no function for that in Python."""
    _api.PyThreadState_Next.argtypes = [ctypes.c_void_p]
    _api.PyInterpreterState_ThreadHead.argtypes = [ctypes.c_void_p]
    for name in ("PyThreadState_Get", "PyThreadState_Next", "PyInterpreterState_Get", "PyInterpreterState_ThreadHead"):
        getattr(_api, name).restype = ctypes.c_void_p
    _api._PyEval_SetProfile.argtypes = [ctypes.c_void_p, _Trace, ctypes.c_void_p]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1)  # no thread may run, and so end, between two of these calls
    try:
        time.sleep(0)
        own = _api.PyThreadState_Get()
        state = _api.PyInterpreterState_ThreadHead(_api.PyInterpreterState_Get())
        while state:
            if state != own:
                _api._PyEval_SetProfile(state, _traced, None)
            state = _api.PyThreadState_Next(state)
    finally:
        sys.setswitchinterval(interval)
        time.sleep(0)  # those that wait learn of the shorter interval
