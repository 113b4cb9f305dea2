"""Parallel map over independent items: in threads, in processes or on a Ray cluster. Lost workers are replaced.

>>> for index, result in run_all(function, items, Where(workers=4)):
...     results[index] = result
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from tensortide.errors import WorkersDied
from tensortide.executors.pool import Pool
from tensortide.executors.processes import ProcessPool
from tensortide.executors.ray_cluster import LOCAL, RayPool
from tensortide.executors.threads import ThreadPool

__all__ = ["LOCAL", "SERIAL", "Where", "cores", "run_all"]

Item = TypeVar("Item")
Result = TypeVar("Result")
_POLL_S = 0.2
"""Seconds between two calls of ``stop`` while no task ends."""


@dataclass(frozen=True)
class Where:
    """The workers that run tasks.

    Args:
        workers: how many tasks run at once (None: one per core).
        kind: the workers on this machine, if there is no ``cluster``.
        cluster: address of a Ray cluster; "local" starts one on this machine.
        retries: further attempts at a task whose worker died. An exception of the task itself is never retried.
        serial_s: seconds for which tasks run in this process before other processes are started, which takes a second
            or more.
    """

    workers: int | None = None
    kind: Literal["processes", "threads"] = "processes"
    cluster: str | None = None
    retries: int = 3
    serial_s: float = 0.0

    @property
    def at_once(self) -> int:
        """Tasks that run at once on this machine."""
        return self.workers or cores()


SERIAL = Where(workers=1)
"""One task after the other, in this process."""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _never() -> bool:
    return False


def run_all(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    where: Where = Where(),
    stop: Callable[[], bool] = _never,
) -> Iterator[tuple[int, Result]]:
    """Call ``function`` on each of ``items``, and yield the index and the result of each as it completes.

    With one worker on this machine, with a single item, and in the first ``where.serial_s`` seconds tasks run in this
    process. Otherwise ``function`` is sent to each worker once, with everything bound to it (``functools.partial``),
    and items and results one by one; so ``function`` must be importable in other processes. ``stop`` is polled: once it
    returns True, the iteration ends without the remaining results.

    Raises:
        NotHere: Ray is not installed, or its cluster cannot be reached.
        WorkersDied: a task lost more workers than ``where.retries`` allows.
        Exception: the exception that ``function`` raised; if several tasks fail, that of the first of them in the order
            of ``items``, as in a serial run. Tasks that have not started are then dropped and processes are killed, as
            also happens when the caller closes the iterator early.
    """
    done, end = 0, time.monotonic() + where.serial_s * (where.kind == "processes")
    while done < len(items) and where.cluster is None:
        if min(where.at_once, len(items) - done) > 1 and time.monotonic() >= end:
            break
        if stop():
            return
        yield done, function(items[done])
        done += 1
    if rest := items[done:]:
        with contextlib.closing(_pool(function, len(rest), where)) as pool:
            for index, result in _results(pool, rest, where.retries, stop):
                yield done + index, result


def _pool(function: Callable[[Any], Any], tasks: int, where: Where) -> Pool:
    if where.cluster is not None:
        return RayPool(function, where.cluster, where.workers)
    size = min(where.at_once, tasks)
    return ThreadPool(function, size) if where.kind == "threads" else ProcessPool(function, size)


def _results(pool: Pool, items: Sequence[Any], retries: int, stop: Callable[[], bool]) -> Iterator[tuple[int, Any]]:
    """Submit items in their order, and again those whose workers died."""
    queue, attempts, running = [*range(len(items))][::-1], [0] * len(items), set[int]()
    failed, error = len(items), None  # the first item whose task failed; results of later items are discarded
    while not stop():
        while queue and queue[-1] < failed and len(running) < pool.size:
            index = queue.pop()
            attempts[index] += 1
            pool.submit(index, items[index])
            running.add(index)
        if not any(index < failed for index in running):
            if error is not None:
                raise error
            return
        for ended in pool.ended(_POLL_S):
            running.remove(ended.task)
            found = ended.error
            if ended.lost and attempts[ended.task] <= retries:
                queue = sorted([*queue, ended.task], reverse=True)
                continue
            if ended.lost:
                found = WorkersDied(
                    f"workers died {attempts[ended.task]} times on task {ended.task + 1} of {len(items)}, perhaps "
                    "for lack of memory: run fewer at once."
                )
            if found is not None and ended.task < failed:
                failed, error = ended.task, found
            elif ended.task < failed:
                yield ended.task, ended.result
