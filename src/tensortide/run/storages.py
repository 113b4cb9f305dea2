"""Storages that the program holds, and the value of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tensortide.run.block import PENDING, Block, Recomputable, Value
from tensortide.run.engine import LiveEngine
from tensortide.run.operators import Operator, written_by
from tensortide.run.pending import Pending
from tensortide.run.template import Storage, storage_of, stored, tensors_of


def _is_null(handle: Storage) -> bool:
    """True if it has a size but no memory."""
    try:
        handle.data_ptr()
    except RuntimeError:
        return True
    return False


class Storages:
    """Storages of the program. ``known``: value of each, by the address of the storage. ``shared``: likewise,
    blocks whose memory others may hold. ``pending``: ops not yet reported to ``engine``. Storages on other devices than
    ``device`` count nothing and are left alone."""

    def __init__(self, engine: LiveEngine, device: torch.device) -> None:
        self.engine = engine
        self.pending = Pending(engine)
        self.device = device
        self.known: dict[int, Value] = {}
        self.shared: dict[int, Block] = {}
        self._when_dropped = self._dropped

    def read(self, tensors: Sequence[torch.Tensor]) -> tuple[list[Value], list[Storage], bool]:
        """Values that an op is about to read; the storages of those that cannot be recomputed; True if all are
        resident. Raises NotImplementedError for a tensor without storage or memory."""
        known, engine = self.known, self.engine
        now = engine.clock_ns
        values, held, resident = [], [], True
        for tensor in tensors:
            handle = storage_of(tensor)
            value = known.get(handle._cdata)
            if value is None:
                value = self._given(handle)
            block = value.block
            storage = block.storage
            if storage == PENDING:
                block.seen_ns = now
            else:
                engine.last_access_ns[storage] = now
                if engine.fixed[storage]:
                    held.append(handle)
                else:
                    block.read = engine.epoch
                    resident = resident and engine.defined[engine.values[storage][-1]]
            values.append(value)
        return values, held, resident

    def written(
        self, operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[list[Value], list[Value]]:
        """Values that a call overwrites, and those of them that its results do not depend on."""
        if operator.target >= 0:
            value = self.value(args[operator.target])
            if value.block.aliases is None:
                return [value], []
        return self.all_written(operator, args, kwargs)

    def all_written(
        self, operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[list[Value], list[Value]]:
        """The same for storages that may share memory."""
        arguments, blind = written_by(operator, args, kwargs)
        written = dict.fromkeys(map(self.value, stored(tensors_of(arguments))))
        for value in list(written):
            for block in value.block.aliases or ():
                if block() is not None:
                    written[self.known[block.key]] = None
        return list(written), list(map(self.value, blind))

    def value(self, tensor: torch.Tensor) -> Value:
        handle = storage_of(tensor)
        value = self.known.get(handle._cdata)
        return self._given(handle) if value is None else value

    def settled(self, values: Sequence[Value]) -> bool:
        """True if none of ``values`` can be recomputed, and the engine knows."""
        fixed = self.engine.fixed
        return all(value.block.storage != PENDING and fixed[value.block.storage] for value in values)

    def _given(self, handle: Storage) -> Value:
        """Value of a storage that no op made: it existed before. Raises NotImplementedError if it has no memory."""
        if _is_null(handle):
            raise NotImplementedError
        block = Block.of(handle, self.nbytes(handle), self._when_dropped)
        block.given = True
        self.engine.add_constant(block)
        value = self.known[block.key] = Value(block, None, 0)
        if not handle.resizable():
            self.share(block)
        return value

    def share(self, block: Block) -> None:
        """Note that others hold the memory of ``block``, or may, and which storages of the program are among them."""
        if block.key in self.shared:
            return
        handle = block.bytes()
        begin, end = handle.data_ptr(), handle.data_ptr() + handle.nbytes()
        for other in self.shared.values():
            memory = other.bytes()
            if memory.data_ptr() < end and begin < memory.data_ptr() + memory.nbytes():
                block.aliases = [*(block.aliases or ()), other]
                other.aliases = [*(other.aliases or ()), block]
        self.shared[block.key] = block

    def fresh(self, result: Any, call: Recomputable | None) -> tuple[list[Value], int]:
        """Values in the new storages of a ``result`` of ``call``, and their bytes. Unless all of them can be evicted
        and restored, the call counts as one that cannot be recomputed."""
        known, pending = self.known, self.pending.values
        made: list[Value] = []
        grown = 0
        movable = True
        tensors = [result] if type(result) is torch.Tensor else tensors_of((result,))
        for place, tensor in enumerate(tensors):
            try:
                handle = storage_of(tensor)
            except NotImplementedError:
                tensors += stored([tensor])  # which come next
                movable = False
                continue
            key = handle._cdata
            if key in known:
                continue
            if call is None and _is_null(handle):
                continue
            nbytes = 0
            if handle.device == self.device:
                nbytes = handle.nbytes()
                movable = movable and handle.resizable()
            else:
                movable = False
            block = Block.of(handle, nbytes, self._when_dropped)
            block.counted = True
            value = known[key] = pending[key] = Value(block, call, place)
            made.append(value)
            grown += nbytes
        if not movable:
            for value in made:
                value.call = None
        return made, grown

    def nbytes(self, handle: Storage) -> int:
        return handle.nbytes() if handle.device == self.device else 0

    def _dropped(self, block: Block) -> None:
        value = self.known.get(block.key)
        if value is not None and value.block is block:
            del self.known[block.key]
            self.shared.pop(block.key, None)
            self.pending.values.pop(block.key, None)
            self.engine.freed.append(block)
