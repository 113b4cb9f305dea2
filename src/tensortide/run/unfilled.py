"""Storages that an op has just allocated, and that native code may have filled by their address since."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tensortide.graph.written_parts import WrittenParts
from tensortide.run.block import PENDING, Hole, Recomputable, Storage, Value, storage_of
from tensortide.run.torch_compat import NoModes, is_dense

if TYPE_CHECKING:
    from tensortide.run.engine import LiveEngine
    from tensortide.run.operators import Operator

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


class Unfilled(NamedTuple):
    """A value that ops have written in ``parts`` only, and none has read. The other elements, of ``dtype``, are
    ``number``; None: they have no contents."""

    value: Value
    dtype: torch.dtype
    number: Any
    parts: WrittenParts


class UnfilledStorages:
    """Storages without contents, or with one number everywhere, that no op has read or filled, by address.

    Native code (extensions, Triton, ctypes) allocates its results by PyTorch's ops, and writes them without one. So the
    next op to use a storage decides. If it overwrites the storage as a whole, or finds it as it was made, the storage
    can be recomputed like any other; else never. One that overwrites a part leaves that to the next op, unless no part
    is left. Until then the storage is not evicted.
    """

    def __init__(self, engine: LiveEngine) -> None:
        self.engine = engine
        self.found: dict[int, Unfilled] = {}
        self._unpinned: list[Value] = []
        """Those that the engine had not heard of, and some that are not found any more."""

    def add(self, operator: Operator, call: Recomputable, values: Iterable[Value], tensor: torch.Tensor) -> None:
        """Note that ``call`` of ``operator`` has made ``values``, in the storage of ``tensor``."""
        number: Any = operator.constant
        if number is None and operator.number >= 0:
            given = len(call.args)
            number = call.args[operator.number] if operator.number < given else call.kwargs.get("fill_value")
        if isinstance(number, Hole):
            return
        for value in values:
            if value.block.storage != PENDING:
                self.found[value.block.key] = Unfilled(value, tensor.dtype, number, _no_parts(tensor))
                self.engine.pin(value.block.storage)
            elif value.call is not None:
                self.found[value.block.key] = Unfilled(value, tensor.dtype, number, _no_parts(tensor))
                self._unpinned.append(value)
        if len(self._unpinned) > 2 * len(self.found) + 16:
            self._unpinned = [value for value in self._unpinned if self._is_found(value)]

    def clear(self) -> None:
        """Forget all."""
        self.found.clear()
        self._unpinned.clear()

    def pin_reported(self) -> None:
        """Pin those that have been reported to the engine."""
        waiting = []
        for value in self._unpinned:
            if self._is_found(value):
                if value.block.storage == PENDING:
                    waiting.append(value)
                else:
                    self.engine.pin(value.block.storage)
        self._unpinned = waiting

    def _is_found(self, value: Value) -> bool:
        unfilled = self.found.get(value.block.key)
        return unfilled is not None and unfilled.value is value

    def used(self, fills: bool, tensors: Sequence[torch.Tensor], written: Sequence[Value]) -> None:
        """Note that an op is about to use ``tensors``, and to write the values ``written``: whatever was in its tensor
        of one, if it ``fills``."""
        keys = [storage_of(tensor)._cdata for tensor in tensors]
        for tensor, key in zip(tensors, keys, strict=True):
            unfilled = self.found.pop(key, None)
            if unfilled is None:
                continue
            alone = fills and [unfilled.value.block] == [value.block for value in written] and keys.count(key) == 1
            part = alone and _writes(tensor, unfilled.parts)
            if part and unfilled.number is None and unfilled.parts.missing:
                self.found[key] = unfilled
            else:
                written_all = part and not unfilled.parts.missing
                self._decide(unfilled.value, written_all or _as_made(unfilled, storage_of(tensor)))

    def _decide(self, value: Value, recomputable: bool) -> None:
        """End the wait of ``value``: evict it like any other from now on, or fix it."""
        storage, engine = value.block.storage, self.engine
        if storage == PENDING:
            if not recomputable:
                value.call = None
        elif not engine.fixed[storage]:
            if recomputable:
                engine.unpin(storage)
            else:
                engine.fix(storage)


def _no_parts(tensor: torch.Tensor) -> WrittenParts:
    return WrittenParts(tensor.shape, tensor.stride(), tensor.itemsize, storage_of(tensor).nbytes())


def _writes(tensor: torch.Tensor, parts: WrittenParts) -> bool:
    """Note in ``parts`` that ``tensor`` is overwritten. False if it is no part of its own."""
    if covers(tensor):
        parts.add_all()
        return True
    return parts.add(tensor.shape, tensor.stride(), int(tensor.storage_offset()), tensor.itemsize)


def covers(tensor: torch.Tensor) -> bool:
    """True if ``tensor`` is all of its storage, each element once."""
    return is_dense(tensor) and tensor.numel() * tensor.itemsize == storage_of(tensor).nbytes()


def _as_made(unfilled: Unfilled, storage: Storage) -> bool:
    """True if every element is still the number that it was given."""
    dtype, number = unfilled.dtype, unfilled.number
    if number is None or storage.nbytes() % dtype.itemsize:
        return False
    if not storage.nbytes():
        return True
    with NoModes():
        words = max(1, dtype.itemsize // 8)
        given = torch.full((1,), number, dtype=dtype, device=storage.device).view(_BITS[dtype.itemsize])
        found = torch.empty(0, dtype=given.dtype, device=storage.device).set_(storage)
        return torch.equal(found[:words], given) and torch.equal(found[words:], found[:-words])
