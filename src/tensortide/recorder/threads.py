"""Threads that a program starts while it is on fake tensors. PyTorch's modes are those of one thread: another would
allocate, and find no GPU."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import TorchDispatchMode, current_modes


@contextlib.contextmanager
def threads_in(
    mode: TorchDispatchMode, entered: Callable[[], contextlib.AbstractContextManager[None]]
) -> Iterator[None]:
    """Have threads that are started in ``mode`` run in ``entered``, which has what that mode needs, while active."""
    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        if mode in current_modes():  # data are loaded outside of it
            vars(thread)["run"] = _within(entered, thread, thread.run)
        start(thread)

    with replaced(threading.Thread, "start", started):
        yield


def _within(
    entered: Callable[[], contextlib.AbstractContextManager[None]], thread: threading.Thread, run: Callable[[], None]
) -> Callable[[], None]:
    def run_within() -> None:
        del vars(thread)["run"]  # which refers to the thread
        with entered():
            run()

    return run_within
