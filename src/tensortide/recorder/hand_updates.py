"""Training steps of a loop without an optimizer, which writes to its parameters itself after a backward pass."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch

from tensortide.recorder.fake_mode import device_of
from tensortide.recorder.reading import reader
from tensortide.recorder.torch_compat import OpOverload, TorchDispatchMode

_DEVICE = torch.ops.prim.device.default
UNSEEN = 32
"""Backward passes without a write to a parameter after which each of them counts as a training step."""


class HandUpdates:
    """Tells which backward passes end a training step: those after which a parameter of the modules ``called`` changes
    before the next forward pass. Gradients of the others accumulate. Where there is no parameter, each ends one."""

    def __init__(self, called: Mapping[int, torch.nn.Module]) -> None:
        self._called = called
        self._line: int | None = None
        self._passes = 0
        self._seen = False
        self.writes = Writes(self._parameters())

    def passed(self, frame: FrameType | None) -> None:
        """Note the end of a backward pass that a program runs in ``frame``."""
        user, _ = reader(frame)
        self._line = 0 if user is None else hash((user.f_code, user.f_lineno))
        self._passes += 1

    def ended(self) -> int | None:
        """Return a number for the line of the last backward pass if that ended a training step, as a forward pass
        begins."""
        line, self._line = self._line, None
        if line is None:
            return None
        now = self._parameters()
        written = self.writes.happened or not now or not now <= self.writes.watched
        self._seen |= written
        self.writes.watched, self.writes.happened = now, False
        return line if written or (not self._seen and self._passes > UNSEEN) else None

    def _parameters(self) -> set[int]:
        modules = [*self._called.values()]
        return {*_storages([*module._parameters.values()] for module in modules)}

    @property
    def note(self) -> str:
        """The assumption by which training steps were told apart."""
        how = "a parameter has changed" if self._seen else "a backward pass"
        return f"no optimizer steps: a training step ends before the first forward pass after {how}"


class Writes(TorchDispatchMode):
    """Notes ops that write to watched storages, which are known by their addresses."""

    supports_higher_order_operators = True

    def __init__(self, watched: set[int]) -> None:
        super().__init__()
        self.watched = watched
        self.happened = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func``."""
        if func is _DEVICE and (known := device_of(args[0])) is not None:
            return known
        if not self.happened and isinstance(func, OpOverload) and func._schema.is_mutable:
            given = {**dict(zip((each.name for each in func._schema.arguments), args, strict=False)), **(kwargs or {})}
            written = [
                given.get(each.name)
                for each in func._schema.arguments
                if each.alias_info is not None and each.alias_info.is_write
            ]
            self.happened = not self.watched.isdisjoint(_storages(written))
        return func(*args, **(kwargs or {}))


def _storages(values: Iterable[Any]) -> Iterator[int]:
    """Addresses of the storages of tensors, and of those in lists."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _storages(value)
        elif isinstance(value, torch.Tensor):
            with contextlib.suppress(NotImplementedError, RuntimeError):  # it has no storage
                yield torch.Tensor.untyped_storage(value)._cdata
