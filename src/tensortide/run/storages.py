"""Storages that the program holds, and the value of each; ops not yet reported to the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from tensortide.plans.immovable import SMALL
from tensortide.run.block import (
    PENDING,
    Block,
    Recomputable,
    Storage,
    Value,
    address_of,
    storage_of,
    stored,
    tensors_of,
)
from tensortide.run.engine import AWAITED, DEEPEST, LiveEngine
from tensortide.run.operators import Operator, written_by
from tensortide.run.queues import Streams
from tensortide.run.unfilled import UnfilledStorages
from tensortide.run.writers import Mappings, add_writer, from_outside

SELDOM = 1000
"""Fewest ops between two searches of the histories for values that can no longer be recomputed."""
NEVER = DEEPEST + 1
_INTEGERS = frozenset({torch.int64, torch.int32})


class Pending:
    """Ops not yet reported to the engine. While memory is plentiful most results die before an eviction decision is
    needed, so bookkeeping is deferred until the budget is nearly reached.

    Until then references record them: a tensor of the program refers to the call that made it, the call to its inputs,
    and so on. Whatever cannot be needed any more is freed with the last reference. ``values``: results that the program
    holds, by the address of the storage. ``due``: number of the op after which histories are searched.
    """

    __slots__ = ("due", "engine", "search", "values")

    def __init__(self, engine: LiveEngine) -> None:
        self.engine = engine
        self.values: dict[int, Value] = {}
        self.due = SELDOM
        self.search: Callable[[int], list[tuple[Recomputable, list[Value]]]] | None = None
        """``sweep`` of the compiled core."""

    def sweep(self, number: int) -> list[tuple[Recomputable, list[Value]]]:
        """End the histories of values that can no longer be recomputed; ``number`` is that of the latest op. Returns
        the calls behind the others, in the order in which they ran, each with the values that it made."""
        if self.search is not None:
            return self.search(number)
        behind = self._behind()
        depths: dict[Recomputable, int] = {}
        readers: dict[Block, list[tuple[Recomputable, list[Value]]]] = {}
        for call, made in behind:
            depth = self._depth(call, depths)
            if depth < NEVER:
                depths[call] = depth
            for value in made:
                if value.place < 0:
                    self._overwritten(value.block, readers, depths)
            for near in call.inputs:
                if near is not None and near.block.storage == PENDING:
                    readers.setdefault(near.block, []).append((call, made))
        cut = [value for value in list(self.values.values()) if value.call is not None and value.call not in depths]
        for value in cut:
            value.call = None
        self.due = number + max(SELDOM, 2 * len(behind))
        return self._behind() if cut else behind

    def _overwritten(
        self,
        block: Block,
        readers: dict[Block, list[tuple[Recomputable, list[Value]]]],
        depths: dict[Recomputable, int],
    ) -> None:
        """End the histories of values made from ``block`` so far: directly, or from values that are gone."""
        queue = [block]
        for at in queue:
            for call, made in readers.pop(at, ()):
                for value in made:
                    if value.block is not block:
                        depths.pop(call, None)
                        if self.values.get(value.block.key) is not value:
                            queue.append(value.block)

    def promote(self, number: int) -> None:
        """Report every op to the engine, as if it had been reported when it ran; the engine decides from now on."""
        engine = self.engine
        engine.collect()
        dropped: list[Block] = []
        if self.values:
            calls, peak_bytes = self.sweep(number), engine.peak
            for value in list(self.values.values()):
                if value.call is None:
                    engine.uncount(value.block)
                    engine.add_constant(value.block)
            engine.summed.clear()
            for call, made in calls:
                engine.complete(call, made)
                for value in made:
                    if value.block() is None:
                        engine.references[value.block.storage] = AWAITED
                        dropped.append(value.block)
            self.values.clear()
            engine.peak = peak_bytes
        engine.begin_epoch(dropped)

    def _behind(self) -> list[tuple[Recomputable, list[Value]]]:
        """Calls behind the values that the program holds, in the order in which they ran, each with those it made."""
        found: dict[Recomputable, list[Value]] = {}
        queue = list(self.values.values())
        seen = set(queue)
        for value in queue:
            call = value.call
            if call is None:
                continue
            if call.count:
                fresh = value.place >= 0
                call = value.call = call.part(value.place if fresh else -1 - value.place)
                value.place = 0 if fresh else -1
            if call in found:
                found[call].append(value)
                continue
            found[call] = [value]
            for near in call.inputs:
                if near is not None and near not in seen:
                    seen.add(near)
                    queue.append(near)
        return sorted(found.items(), key=lambda item: item[0].number)

    def _depth(self, call: Recomputable, depths: dict[Recomputable, int]) -> int:
        """Length of the longest chain of ops that recomputing ``call`` may take; NEVER if it cannot be recomputed."""
        engine, deepest = self.engine, 0
        for value in call.inputs:
            if value is None:
                continue
            block = value.block
            storage = block.storage
            if storage != PENDING:
                gone = engine.memories[storage] is not block or engine.dead[storage]
                if gone or (engine.fixed[storage] and block.written > call.number):
                    return NEVER
                depth = engine.depth[storage]
            elif self._lost(value):
                return NEVER
            elif value.call in depths:
                depth = depths[value.call]
            elif self.values.get(block.key) is value:
                depth = 0
            else:
                return NEVER
            deepest = max(deepest, depth)
        return deepest + 1

    def _lost(self, value: Value) -> bool:
        """True if an op that cannot be recomputed has overwritten ``value``."""
        now = self.values.get(value.block.key)
        return now is not None and now is not value and now.call is None and now.block is value.block


def _is_null(handle: Storage) -> bool:
    """True if it has a size but no memory."""
    try:
        address_of(handle)
    except RuntimeError:
        return True
    return False


class Storages:
    """Storages of the program. ``known``: value of each, by the address of the storage. ``shared``: likewise,
    blocks whose memory others may hold. ``unfilled``: those that no op has used so far. ``pending``: ops not yet
    reported to ``engine``. Storages on other devices than ``device`` count nothing and are left alone."""

    def __init__(self, engine: LiveEngine, device: torch.device) -> None:
        self.engine = engine
        self.pending = Pending(engine)
        self.unfilled = UnfilledStorages(engine)
        self.device = device
        self.streams: Streams | None = None
        self.known: dict[int, Value] = {}
        self.shared: dict[int, Block] = {}
        self.when_dropped = self.dropped
        self.loaded: Callable[[], Mappings] = tuple
        """Where files are mapped, asked while the budget meets what is there."""

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
                if block.stays:
                    held.append(handle)  # so that what is made of it can be recomputed
            else:
                engine.last_access_ns[storage] = now
                if engine.fixed[storage]:
                    held.append(handle)
                    resident = resident and engine.resident[storage]
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
        """Values that a call overwrites, those over shared memory included, and those its results do not depend on."""
        arguments, blind = written_by(operator, args, kwargs)
        return self.with_aliases(map(self.value, stored(tensors_of(arguments)))), list(map(self.value, blind))

    def with_aliases(self, values: Iterable[Value]) -> list[Value]:
        """``values``, each once, and those of other storages over the same memory."""
        found = dict.fromkeys(values)
        for value in list(found):
            for block in value.block.aliases or ():
                other = self.known.get(block.key)
                if block() is not None and other is not None:
                    found[other] = None
        return list(found)

    def value(self, tensor: torch.Tensor) -> Value:
        return self.of(storage_of(tensor))

    def of(self, handle: Storage) -> Value:
        value = self.known.get(handle._cdata)
        return self._given(handle) if value is None else value

    def found(self, tensor: torch.Tensor) -> Value | None:
        """As ``value``; None if it has no memory."""
        try:
            return self.value(tensor)
        except NotImplementedError:
            return None

    def all_fixed(self, values: Sequence[Value]) -> bool:
        """True if the storages of all ``values`` are fixed."""
        fixed = self.engine.fixed
        return all(value.block.storage != PENDING and fixed[value.block.storage] for value in values)

    def _given(self, handle: Storage) -> Value:
        """Value of a storage that no op made: it existed before. Raises NotImplementedError if it has no memory."""
        if _is_null(handle):
            raise NotImplementedError
        block = Block.of(handle, self.nbytes(handle), self.when_dropped)
        block.given = True
        self.engine.add_constant(block)
        value = self.known[block.key] = Value(block, None, 0)
        if not handle.resizable():
            self.share(block)
            if from_outside(handle, self.loaded):
                add_writer(block)
        return value

    def share(self, block: Block) -> None:
        """Note that others hold the memory of ``block``, or may, and which storages of the program are among them."""
        if block.key in self.shared:
            return
        handle = block.bytes()
        begin, end = address_of(handle), address_of(handle) + handle.nbytes()
        for other in list(self.shared.values()):
            memory = other.own if other.own is not None else other()
            if memory is None:  # another thread has released it
                continue
            if address_of(memory) < end and begin < address_of(memory) + memory.nbytes():
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
            block = Block.of(handle, nbytes, self.when_dropped)
            block.counted = True
            block.stays = nbytes <= SMALL and tensor.dtype in _INTEGERS and tensor.dim() <= 1
            if self.streams is not None:
                self.streams.taken(block)
            value = known[key] = pending[key] = Value(block, None if block.stays else call, place)
            made.append(value)
            grown += nbytes
        if not movable:
            for value in made:
                value.call = None
        return made, grown

    def nbytes(self, handle: Storage) -> int:
        return handle.nbytes() if handle.device == self.device else 0

    def dropped(self, block: Block) -> None:
        """Note that the program has released the storage of ``block``."""
        value = self.known.get(block.key)
        if value is not None and value.block is block:
            del self.known[block.key]
            if self.shared.pop(block.key, None) is not None:
                for other in block.aliases or ():
                    other.aliases = [near for near in other.aliases or () if near is not block] or None
            block.writers = None
            self.unfilled.found.pop(block.key, None)
            self.engine.gradients.discard(block)
            self.pending.values.pop(block.key, None)
            self.engine.freed.append(block)
