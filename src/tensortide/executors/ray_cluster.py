"""A pool of workers on a Ray cluster: a running one, or one started on this machine."""

from __future__ import annotations

import contextlib
import pickle
import re
import socket
import threading
from collections.abc import Callable
from typing import Any

from tensortide.errors import MissingExtra, NotHere, RequestError, TensortideError
from tensortide.executors.pool import Ended

LOCAL = "local"
"""Address that stands for a cluster started on this machine and stopped when the pool is closed."""
TIMEOUT_S = 30.0
"""Seconds after which a cluster counts as unreachable; Ray itself would try for minutes."""
_QUIET = {"log_to_driver": False, "logging_level": "ERROR"}
_functions: dict[str, Callable[[Any], Any]] = {}
"""In a worker: the function of its tasks, by its object reference."""


class RayPool:
    """Workers of a cluster that call ``function``, one per core or ``workers`` of them. It is sent to each once.

    What is sent is pickled here: arrays that Ray itself hands over cannot be written, and compiled functions would be
    compiled anew for those.
    """

    def __init__(self, function: Callable[[Any], Any], cluster: str, workers: int | None) -> None:
        try:
            import ray
        except ImportError:
            raise MissingExtra("a cluster needs Ray: pip install 'tensortide[cluster]'.") from None
        self._ray: Any = ray  # without types
        self._owned = not ray.is_initialized()
        if self._owned:
            _connect(ray, cluster, workers)
        self.size = workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        errors = ray.exceptions
        self._died = errors.WorkerCrashedError, errors.NodeDiedError, errors.ObjectLostError, errors.OutOfMemoryError
        self._call = ray.remote(max_retries=0)(_called)
        self._pickled: Callable[[Any], bytes] = self._ray.cloudpickle.dumps
        self._function = ray.put(self._pickled(function))
        self._running: dict[Any, int] = {}

    def submit(self, index: int, item: Any) -> None:
        """Start a task. The function's reference is wrapped in a list: a bare one would be fetched for each task."""
        self._running[self._call.remote([self._function], self._pickled(item))] = index

    def ended(self, timeout_s: float) -> list[Ended]:
        done, _ = self._ray.wait([*self._running], num_returns=1, timeout=timeout_s)
        return [self._ended(self._running.pop(each), each) for each in done]

    def _ended(self, index: int, reference: Any) -> Ended:
        try:
            return Ended(index, self._ray.get(reference))
        except self._died:
            return Ended(index, lost=True)
        except self._ray.exceptions.RayTaskError as error:
            return Ended(index, error=error.cause)

    def close(self) -> None:
        if self._owned:
            self._ray.shutdown()
            return
        for each in self._running:
            self._ray.cancel(each, force=True)


def _called(function: list[Any], item: bytes) -> Any:
    """Call the function behind a reference, in a worker."""
    key = function[0].hex()
    if key not in _functions:
        import ray

        _functions.clear()
        _functions[key] = pickle.loads(ray.get(function[0]))
    return _functions[key](pickle.loads(item))


def _connect(ray: Any, cluster: str, workers: int | None) -> None:
    """Start Ray on this machine, or connect to the cluster at the address within ``TIMEOUT_S``."""
    if cluster == LOCAL:
        ray.init(address=LOCAL, num_cpus=workers, include_dashboard=False, **_QUIET)
        return
    _check_listens(cluster)
    failed: list[Exception] = []

    def connect() -> None:
        try:
            ray.init(address=cluster, **_QUIET)
        except Exception as error:  # noqa: BLE001  # raised below
            failed.append(error)

    connecting = threading.Thread(target=connect, daemon=True)
    connecting.start()
    connecting.join(TIMEOUT_S)
    if connecting.is_alive():
        raise _unreached(cluster, f"it has not answered as Ray does in {TIMEOUT_S:.0f} s")
    if failed:
        raise _unreached(cluster, failed[0]) from failed[0]


def _check_listens(cluster: str) -> None:
    """Raise NotHere if nothing listens at the address, RequestError if it is none."""
    if cluster == "auto":
        return
    address = re.fullmatch(r"(?:ray://)?\[?([^\]/]+?)\]?:(\d{1,5})", cluster)
    if address is None or int(address[2]) > 65535:
        forms = f"HOST:PORT, ray://HOST:PORT, auto (the one of this machine) or {LOCAL}"
        raise _unreached(cluster, f"an address is {forms}", RequestError)
    try:
        with contextlib.closing(socket.create_connection((address[1], int(address[2])), TIMEOUT_S / 3)):
            pass
    except OSError as error:
        raise _unreached(cluster, error.strerror or error) from error


def _unreached(cluster: str, why: object, kind: type[TensortideError] = NotHere) -> TensortideError:
    return kind(f"no Ray cluster can be reached at {cluster}: {why}.")
