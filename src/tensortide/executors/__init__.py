"""Tasks over many items, side by side: in threads, in processes, or on a Ray cluster; lost workers are replaced.

>>> for place, result in run_all(function, items, Where(workers=4)):
...     results[place] = result
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from tensortide.errors import RunError
from tensortide.executors.pool import Pool
from tensortide.executors.processes import ProcessPool
from tensortide.executors.ray_cluster import LOCAL, RayPool
from tensortide.executors.threads import ThreadPool

__all__ = ["HERE", "LOCAL", "Where", "cores", "run_all"]

Item = TypeVar("Item")
Result = TypeVar("Result")
_POLL_S = 0.2
"""Seconds after which a request to stop is asked for again while no task ends."""


@dataclass(frozen=True)
class Where:
    """The place where tasks run.

    ``cluster``: the address of a Ray cluster, "local" for one of this machine, None for ``kind`` on this machine alone.
    ``workers``: tasks at a time (None: one per core). ``retries``: attempts beyond the first for a task whose worker
    died; an exception of the task itself is raised at once. ``alone_s``: seconds after which processes are started;
    tasks that begin before run in this one, as processes take a second or more to start.
    """

    workers: int | None = None
    kind: Literal["processes", "threads"] = "processes"
    cluster: str | None = None
    retries: int = 3
    alone_s: float = 0.0

    @property
    def at_once(self) -> int:
        """Tasks at a time on this machine."""
        return self.workers or cores()


HERE = Where(workers=1)
"""This process alone."""


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
    """Yield the number and the result of each of ``items`` as they come.

    One task at a time on this machine, or a single one, or what begins in the first ``where.alone_s`` seconds, runs in
    this process. Otherwise ``function`` travels to each
    worker once, with all that is bound to it (``functools.partial``), and items and results travel one by one:
    ``function`` is of a module that other processes can import. ``stop`` is asked now and then whether to end without
    the results that are still missing.

    Raises:
        RunError: Ray is not installed, its cluster cannot be reached, or the workers of a task died more often than
            ``retries`` allow.
        Exception: whatever ``function`` raised, of several tasks that of the first in the order of ``items``, as if
            they ran one after the other. Tasks that have not begun are dropped, those in processes ended; so are they
            where the caller stops before the last result.
    """
    done, end = 0, time.monotonic() + where.alone_s * (where.kind == "processes")
    while done < len(items) and where.cluster is None:
        if min(where.at_once, len(items) - done) > 1 and time.monotonic() >= end:
            break
        if stop():
            return
        yield done, function(items[done])
        done += 1
    if rest := items[done:]:
        with contextlib.closing(_pool(function, len(rest), where)) as pool:
            for place, result in _driven(pool, rest, where.retries, stop):
                yield done + place, result


def _pool(function: Callable[[Any], Any], tasks: int, where: Where) -> Pool:
    if where.cluster is not None:
        return RayPool(function, where.cluster, where.workers)
    size = min(where.at_once, tasks)
    return ThreadPool(function, size) if where.kind == "threads" else ProcessPool(function, size)


def _driven(pool: Pool, items: Sequence[Any], retries: int, stop: Callable[[], bool]) -> Iterator[tuple[int, Any]]:
    """Hand out items in their order, and those of lost workers again."""
    left, attempts, running = [*range(len(items))][::-1], [0] * len(items), set[int]()
    failed, error = len(items), None  # the first item whose task failed: none after it counts
    while not stop():
        while left and left[-1] < failed and len(running) < pool.size:
            place = left.pop()
            attempts[place] += 1
            pool.submit(place, items[place])
            running.add(place)
        if not any(place < failed for place in running):
            if error is not None:
                raise error
            return
        for ended in pool.ended(_POLL_S):
            running.remove(ended.place)
            found = ended.error
            if ended.lost and attempts[ended.place] <= retries:
                left = sorted([*left, ended.place], reverse=True)
                continue
            if ended.lost:
                found = RunError(
                    f"workers died {attempts[ended.place]} times on task {ended.place + 1} of {len(items)}, perhaps "
                    "for want of memory: let fewer run at a time."
                )
            if found is not None and ended.place < failed:
                failed, error = ended.place, found
            elif ended.place < failed:
                yield ended.place, ended.result
