"""Tasks over many items, side by side: in threads, in processes, or on a Ray cluster; lost workers are replaced.

>>> for place, result in run_all(function, items, Where(workers=4)):
...     results[place] = result
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Literal, TypeVar

from tensortide.errors import RunError

Item = TypeVar("Item")
Result = TypeVar("Result")
LOCAL = "local"
"""The cluster that Ray starts on this machine for the time of the call."""


@dataclass(frozen=True)
class Where:
    """The place where tasks run.

    ``cluster``: the address of a Ray cluster, "local" for one of this machine, None for ``kind`` on this machine alone.
    ``workers``: tasks at a time (None: one per core). ``retries``: attempts beyond the first for a task whose worker
    died; an exception of the task itself is raised at once.
    """

    workers: int | None = None
    kind: Literal["processes", "threads"] = "processes"
    cluster: str | None = None
    retries: int = 3


def run_all(
    function: Callable[[Item], Result], items: Sequence[Item], where: Where = Where()
) -> Iterator[tuple[int, Result]]:
    """Yield the number and the result of each of ``items`` as they come.

    ``function``, items and results travel to other processes: ``function`` is of a module that they can import.

    Raises:
        RunError: Ray is not installed, its cluster cannot be reached, or workers died more often than ``retries``
            allow.
        Exception: whatever ``function`` raised; tasks that have not begun are dropped, those in processes ended. So are
            they where the caller stops before the last result.
    """
    if where.cluster is not None:
        yield from _on_ray(function, items, where)
    elif where.kind == "threads":
        yield from _in_threads(function, items, where)
    else:
        yield from _in_processes(function, items, where)


def _workers(where: Where, items: Sequence[Any]) -> int:
    return max(1, min(where.workers or os.cpu_count() or 1, len(items)))


def _in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], where: Where
) -> Iterator[tuple[int, Result]]:
    pool = ThreadPoolExecutor(_workers(where, items))
    try:
        waiting = {pool.submit(function, item): place for place, item in enumerate(items)}
        yield from _finished(waiting)
    finally:
        pool.shutdown(cancel_futures=True)


def _finished(waiting: dict[Future[Result], int]) -> Iterator[tuple[int, Result]]:
    """Yield results as they come, and take them out of ``waiting``."""
    while waiting:
        done, _ = wait(waiting, return_when=FIRST_COMPLETED)
        for future in done:
            result = future.result()
            yield waiting.pop(future), result


def _in_processes(
    function: Callable[[Item], Result], items: Sequence[Item], where: Where
) -> Iterator[tuple[int, Result]]:
    """Run tasks in processes. One that dies breaks its pool: what is unfinished begins anew in another."""
    left = dict(enumerate(items))
    for _ in range(where.retries + 1):
        pool = ProcessPoolExecutor(
            _workers(where, [*left]),
            mp_context=get_context("spawn"),
            initializer=signal.signal,  # Ctrl-C reaches the whole group, and is for the process that asked
            initargs=(signal.SIGINT, signal.SIG_IGN),
        )
        waiting: dict[Future[Result], int] = {}
        try:
            waiting |= {pool.submit(function, item): place for place, item in left.items()}
            for place, result in _finished(waiting):
                del left[place]
                yield place, result
            return
        except BrokenProcessPool:
            continue
        finally:
            _end(pool, at_once=bool(waiting))
    raise RunError(
        f"worker processes died {where.retries + 1} times, with {len(left)} of {len(items)} tasks unfinished."
    )


def _end(pool: ProcessPoolExecutor, *, at_once: bool) -> None:
    """End the workers, with ``at_once`` before their tasks are done."""
    workers = [*(pool._processes or {}).values()] if at_once else []  # in public only from Python 3.14 on
    pool.shutdown(wait=not at_once, cancel_futures=True)
    for worker in workers:
        worker.terminate()


def _on_ray(function: Callable[[Item], Result], items: Sequence[Item], where: Where) -> Iterator[tuple[int, Result]]:
    try:
        import ray
    except ImportError:
        raise RunError("a cluster needs Ray: pip install 'tensortide[cluster]'.") from None
    began = not ray.is_initialized()
    if began:
        _connect(ray, where)
    try:
        yield from _tasks(ray, function, items, where)
    finally:
        if began:
            ray.shutdown()


def _connect(ray: Any, where: Where) -> None:
    """Start Ray here, or join the cluster at the address."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
    if where.cluster == LOCAL:
        ray.init(num_cpus=where.workers or os.cpu_count(), **quiet)
        return
    del quiet["include_dashboard"]
    try:
        ray.init(address=where.cluster, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise RunError(f"no Ray cluster can be reached at {where.cluster}: {error}") from error


def _called(function: Callable[[Item], Result], item: Item) -> Result:
    return function(item)


def _tasks(
    ray: Any, function: Callable[[Item], Result], items: Sequence[Item], where: Where
) -> Iterator[tuple[int, Result]]:
    """Run a Ray task for each item, a few more at a time than there are workers."""
    remote, lost = ray.remote(max_retries=0)(_called), ray.exceptions
    died = lost.WorkerCrashedError, lost.NodeDiedError, lost.ObjectLostError
    cores = where.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    left, attempts = [*enumerate(items)][::-1], [0] * len(items)
    running: dict[Any, tuple[int, Item]] = {}
    while left or running:
        while left and len(running) < cores:
            place, item = left.pop()
            attempts[place] += 1
            running[remote.remote(function, item)] = place, item
        done, _ = ray.wait([*running], num_returns=1)
        place, item = running.pop(done[0])
        try:
            result: Result = ray.get(done[0])
        except died as error:
            if attempts[place] > where.retries:
                raise RunError(f"the workers of task {place} died {attempts[place]} times.") from error
            left.append((place, item))
            continue
        except lost.RayTaskError as error:
            raise error.cause from None
        yield place, result
