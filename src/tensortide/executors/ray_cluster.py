"""Tasks on a Ray cluster: one that runs, or one started on this machine."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable
from typing import Any

from tensortide.errors import RunError
from tensortide.executors.pool import Ended

LOCAL = "local"
"""The cluster that Ray starts on this machine for the time of the call."""
PATIENCE_S = 30.0
"""Seconds in which a cluster answers; Ray itself would try for minutes."""
_QUIET = {"log_to_driver": False, "logging_level": "ERROR"}
_kept: dict[str, Callable[[Any], Any]] = {}
"""In a worker: the function of its tasks, by the reference that it came with."""


class RayPool:
    """Workers of a cluster that call ``function``, one for each core (or ``workers``). It travels to each once."""

    def __init__(self, function: Callable[[Any], Any], cluster: str, workers: int | None) -> None:
        try:
            import ray
        except ImportError:
            raise RunError("a cluster needs Ray: pip install 'tensortide[cluster]'.") from None
        self._ray: Any = ray  # without types
        self._began = not ray.is_initialized()
        if self._began:
            _connect(ray, cluster, workers)
        self.size = workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        lost = ray.exceptions
        self._died = lost.WorkerCrashedError, lost.NodeDiedError, lost.ObjectLostError, lost.OutOfMemoryError
        self._call = ray.remote(max_retries=0)(_called)
        self._function = ray.put(function)
        self._running: dict[Any, int] = {}

    def submit(self, place: int, item: Any) -> None:
        """Begin a task. The reference is in a list: Ray would fetch it anew for each task otherwise."""
        self._running[self._call.remote([self._function], item)] = place

    def ended(self, timeout_s: float) -> list[Ended]:
        done, _ = self._ray.wait([*self._running], num_returns=1, timeout=timeout_s)
        return [self._ended(self._running.pop(each), each) for each in done]

    def _ended(self, place: int, reference: Any) -> Ended:
        try:
            return Ended(place, self._ray.get(reference))
        except self._died:
            return Ended(place, lost=True)
        except self._ray.exceptions.RayTaskError as error:
            return Ended(place, error=error.cause)

    def close(self) -> None:
        if self._began:
            self._ray.shutdown()
            return
        for each in self._running:
            self._ray.cancel(each, force=True)


def _called(function: list[Any], item: Any) -> Any:
    """Call the function that is referred to, in a worker."""
    key = function[0].hex()
    if key not in _kept:
        import ray

        _kept.clear()
        _kept[key] = ray.get(function[0])
    return _kept[key](item)


def _connect(ray: Any, cluster: str, workers: int | None) -> None:
    """Start Ray here, or join the cluster at the address, in ``PATIENCE_S``."""
    if cluster == LOCAL:
        ray.init(address=LOCAL, num_cpus=workers, include_dashboard=False, **_QUIET)
        return
    _knock(cluster)
    failed: list[Exception] = []

    def join() -> None:
        try:
            ray.init(address=cluster, **_QUIET)
        except Exception as error:  # noqa: BLE001  # raised below
            failed.append(error)

    joining = threading.Thread(target=join, daemon=True)
    joining.start()
    joining.join(PATIENCE_S)
    if joining.is_alive():
        raise _unreached(cluster, f"it has not answered as Ray does in {PATIENCE_S:.0f} s")
    if failed:
        raise _unreached(cluster, failed[0]) from failed[0]


def _knock(cluster: str) -> None:
    """Raise RunError if nothing listens at the address."""
    if cluster == "auto":
        return
    place = re.fullmatch(r"(?:ray://)?\[?([^\]/]+?)\]?:(\d{1,5})", cluster)
    if place is None or int(place[2]) > 65535:
        raise _unreached(
            cluster, f"an address is HOST:PORT, ray://HOST:PORT, auto (the one of this machine) or {LOCAL}"
        )
    try:
        with contextlib.closing(socket.create_connection((place[1], int(place[2])), PATIENCE_S / 3)):
            pass
    except OSError as error:
        raise _unreached(cluster, error.strerror or error) from error


def _unreached(cluster: str, why: object) -> RunError:
    return RunError(f"no Ray cluster can be reached at {cluster}: {why}.")
