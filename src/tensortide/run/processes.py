"""Forked processes: they run free of the budget that the process they come from has open."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tensortide.errors import RunError
from tensortide.recorder.recorder import Mode
from tensortide.run.block import ORDINARY, PENDING, Storage, storage_of, tensors_of
from tensortide.run.interrupts import LOCK_TIMEOUT_S
from tensortide.run.reads import readers
from tensortide.run.runtime import Runtime
from tensortide.run.writers import Handed

_open: list[tuple[Runtime, Callable[[], None]]] = []
"""The budget that is open: its Runtime, and how to leave it without bringing anything back."""


@contextlib.contextmanager
def forks_seen(runtime: Runtime, leave: Callable[[], None]) -> Iterator[None]:
    """Let processes that are forked while it is open ``leave`` the budget at once. What was evicted is lost there."""
    _open.append((runtime, leave))
    try:
        yield
    finally:
        _open.clear()


class _Lost(Mode):
    """Mode of a forked process under which any use of ``lost`` storages raises RunError."""

    def __init__(self, lost: Sequence[Storage]) -> None:
        super().__init__()
        self.lost = {storage._cdata: weakref.ref(storage) for storage in lost}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        for tensor in tensors_of([*args, *kwargs.values()]):
            if type(tensor) in ORDINARY and tensor.layout is torch.strided:
                self.check(tensor)
        return func(*args, **kwargs)

    def check(self, tensor: torch.Tensor) -> None:
        storage = storage_of(tensor)
        found = self.lost.get(storage._cdata)
        if found is not None and found() is storage:
            raise RunError(
                "a tensor that was evicted under the memory budget when this process was forked has no contents here: "
                "keep it in memory with tensortide.live.pin(tensor) before forking, or compute it before the budget"
            )

    @contextlib.contextmanager
    def reading(self, tensor: torch.Tensor, how: Handed) -> Iterator[Callable[[Any], None]]:
        """``check`` a tensor that is read outside of the dispatcher."""
        if tensor.layout is torch.strided:
            self.check(tensor)
        yield lambda _: None


def _before() -> None:
    for runtime, _ in _open:  # no op of another thread is under way
        runtime.lock.acquire(timeout=LOCK_TIMEOUT_S)


def _after_in_parent() -> None:
    for runtime, _ in _open:
        if runtime.interrupts.busy:
            runtime.lock.release()


def _after_in_child() -> None:
    while _open:
        runtime, leave = _open.pop()
        runtime.lock = runtime.interrupts.lock = threading.RLock()
        runtime.streams = None  # a device cannot be used here
        blocks = [value.block for value in runtime.known.values()]
        away = [block() for block in blocks if block.storage != PENDING and not runtime.engine.resident[block.storage]]
        leave()
        if away:
            lost = _Lost([storage for storage in away if storage is not None])
            lost.__enter__()
            _lasting.enter_context(readers(lost.reading))


_lasting = contextlib.ExitStack()
"""Left never: what a forked process checks as long as it lives."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
