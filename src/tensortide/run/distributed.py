"""Calls into ``torch.distributed`` that the dispatcher does not see."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import torch.distributed as dist

from tensortide.errors import RunError
from tensortide.recorder.surroundings import replaced
from tensortide.run.access import Access
from tensortide.run.block import tensors_of
from tensortide.run.runtime import Runtime
from tensortide.run.torch_compat import Backend, Future, NoModes, Reducer

LONGEST_S = 600.0
"""Longest wait for communication that a callback waits for."""


@contextlib.contextmanager
def communication_seen(runtime: Runtime) -> Iterator[None]:
    """Follow methods of backends, and note who waits for communication; let callbacks run in this thread, once what
    they wait for is complete; and keep what DistributedDataParallel makes for itself, since C++ writes it too."""
    with contextlib.ExitStack() as stack:
        if dist.is_available():
            stack.enter_context(replaced(dist.Work, "wait", _waiting(runtime, dist.Work.wait)))
            for kind, name in _backend_methods():
                stack.enter_context(replaced(kind, name, _direct(runtime, getattr(kind, name))))
            for owner, name in _frees():
                stack.enter_context(replaced(owner, name, _while(runtime.access, "sizing", getattr(owner, name))))
            for owner, name in ((Reducer, "__init__"), (Reducer, "_rebuild_buckets")):
                stack.enter_context(replaced(owner, name, _while(runtime, "keeping", getattr(owner, name))))
            for name in ("then", "add_done_callback"):
                stack.enter_context(replaced(Future, name, _calling_back(runtime, getattr(Future, name))))
        yield


def _waiting(runtime: Runtime, wait: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(wait)
    def waited(work: Any, *args: Any, **kwargs: Any) -> Any:
        result = wait(work, *args, **kwargs)
        if get_ident() == runtime.thread:
            runtime.in_flight.waited(work)
        return result

    return waited


def _backend_methods() -> Iterator[tuple[Any, str]]:
    """Methods of the backends that are written in C++. Those of process groups run ops instead; these do not."""
    kinds: list[Any] = [Backend]
    for kind in kinds:
        kinds += kind.__subclasses__()
        for name, method in vars(kind).items():
            if type(method).__name__ == "instancemethod" and not name.startswith(("__", "_pybind11")):
                yield kind, name


def _direct(runtime: Runtime, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def without_modes(*args: Any, **kwargs: Any) -> Any:
        with NoModes():
            return method(*args, **kwargs)

    @functools.wraps(method)
    def called(backend: Any, *args: Any, **kwargs: Any) -> Any:
        if runtime.closed or not tensors_of((*args, *kwargs.values())):
            return method(backend, *args, **kwargs)
        runtime.listener.heard = True
        kernel = functools.partial(without_modes, backend)
        return runtime.alone(runtime.in_flight.direct, kernel, args, kwargs)

    return called


def _frees() -> Iterator[tuple[Any, str]]:
    """Functions that change the sizes of storages, and ask for no address: each module has its own name for them."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("torch.distributed.fsdp.", "torch.distributed.utils")):
            for function in ("alloc_storage", "free_storage", "_alloc_storage", "_free_storage"):
                if hasattr(module, function):
                    yield module, function


def _while(owner: Runtime | Access, flag: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = getattr(owner, flag)
        setattr(owner, flag, True)
        try:
            return original(*args, **kwargs)
        finally:
            setattr(owner, flag, before)

    return call


def _calling_back(runtime: Runtime, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def then(future: Any, callback: Callable[[Any], Any]) -> Any:
        until = time.monotonic() + LONGEST_S
        while get_ident() == runtime.thread and not future.done():
            if time.monotonic() > until:
                raise RunError(
                    f"communication was not complete after {LONGEST_S:.0f} s, and a callback would run in another "
                    "thread: a memory budget covers one thread; wait for the communication before adding callbacks"
                )
            time.sleep(0.0002)
        return original(future, callback)

    return then
