"""A pool of threads in this process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from tensortide.executors.pool import Ended


class ThreadPool:
    """``size`` threads that call ``function``. A running task cannot be cancelled."""

    def __init__(self, function: Callable[[Any], Any], size: int) -> None:
        self._function, self.size = function, size
        self._threads = ThreadPoolExecutor(size)
        self._running: dict[Future[Any], int] = {}

    def submit(self, index: int, item: Any) -> None:
        self._running[self._threads.submit(self._function, item)] = index

    def ended(self, timeout_s: float) -> list[Ended]:
        done = wait(self._running, timeout_s, return_when=FIRST_COMPLETED).done
        return [self._ended(self._running.pop(future), future) for future in done]

    def _ended(self, index: int, future: Future[Any]) -> Ended:
        error = future.exception()
        if isinstance(error, Exception):
            return Ended(index, error=error)
        return Ended(index, future.result())

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
