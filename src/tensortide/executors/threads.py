"""A pool of threads in this process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any

from tensortide.executors.pool import Ended


class ThreadPool:
    """``size`` threads that call ``function``. A running task cannot be cancelled."""

    def __init__(self, function: Callable[[Any], Any], size: int) -> None:
        self._function, self.size = function, size
        self._threads = ThreadPoolExecutor(size)
        self._running = 0
        # Not concurrent.futures.wait: Ctrl-C in it can release a lock that a thread holds, which then fails.
        self._done: SimpleQueue[tuple[int, Future[Any]]] = SimpleQueue()

    def submit(self, index: int, item: Any) -> None:
        future = self._threads.submit(self._function, item)
        future.add_done_callback(lambda done: self._done.put((index, done)))
        self._running += 1

    def ended(self, timeout_s: float) -> list[Ended]:
        found: list[Ended] = []
        try:
            while self._running:
                found.append(self._ended(*self._done.get(timeout=0 if found else timeout_s)))
                self._running -= 1
        except Empty:
            pass
        return found

    def _ended(self, index: int, future: Future[Any]) -> Ended:
        error = future.exception()
        if isinstance(error, Exception):
            return Ended(index, error=error)
        return Ended(index, future.result())

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
