"""The simulator's engine over real memory: what it evicts is freed, what it computes again is computed again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from tensortide.replay.remat.engine import Frame
from tensortide.replay.remat.outcome import EVICT, UNLIMITED, Thrashing
from tensortide.run.tables import NOTHING, Call, Memory, Tables

if TYPE_CHECKING:
    from tensortide.plan.remat.policies import Policy

DEEPEST = 2048
"""What would take a longer chain of ops to make again stays: histories must not grow without end."""
MOST_WRITES = 64
"""So does what was written more often than this."""
ENDLESS = 100_000
"""Ops that are run again for a single op of the program before that counts as failure."""


class LiveEngine(Tables):
    """Plays ops as they happen, and moves real memory with every decision."""

    def __init__(self, policy: Policy, budget_bytes: int) -> None:
        super().__init__(policy, budget_bytes)
        self.gone: deque[tuple[int, Memory]] = deque()
        """Storages that the program has dropped since the last op: told by callbacks at any time, even after the engine
        has let go of one and its number belongs to another."""
        self.made: dict[int, Any] = {}
        self.frames: list[Frame] = []
        """Ops on their way to be run again, each waiting for the next."""
        self.loose = 0
        """How many of the first ``frames`` had to let go of their inputs."""
        self.listeners: list[Callable[[int, int], None]] = []
        """They hear of every event (``replay.remat.outcome``): kind, and value or storage."""
        self.evictions = self.recomputations = self.in_a_row = 0
        self.base_ns = self.again_ns = self.search_ns = 0
        policy.begin()

    def add_constant(self, nbytes: int, memory: Memory) -> int:
        """A storage that is there and cannot be made again; returns its number."""
        storage = self.add_storage(nbytes, memory, fixed=True)
        value = self.add_value(storage, NOTHING, nbytes, NOTHING)
        self.material[storage] = self.defined[value] = True
        self.memory += nbytes
        self.peak = max(self.peak, self.memory)
        self.pin(storage)
        return storage

    # An op of the program

    def prepare(self, inputs: Sequence[int], overwritten: Collection[int], nbytes: int) -> Frame | None:
        """Before an op runs that reads the values ``inputs``, overwrites storages and allocates ``nbytes``: they are
        there, and there is room. Raises OutOfMemory, and then nothing is locked.

        None if nothing had to be done, and so nothing is locked: nobody evicts until the op is complete.
        """
        if self.gone:
            self.collect()
        self.in_a_row = 0
        try:
            for storage in overwritten:
                if self.children[storage]:
                    self.secure(overwritten)
                    break
            if self.memory + nbytes <= self.budget and all(map(self.defined.__getitem__, inputs)):
                for value in inputs:
                    self.last_access_ns[self.storage[value]] = self.clock_ns
                return None
            frame = self._await(inputs)
            self.make_room(nbytes)
        except BaseException:
            self.unlock_all()
            raise
        return frame

    def _await(self, inputs: Sequence[int]) -> Frame:
        for value in inputs:
            self.touch(self.storage[value])
        missing = []
        for value in inputs:
            if self.defined[value]:
                self.lock(self.storage[value])
            else:
                missing.append(value)
        for value in missing:
            if not self.defined[value]:
                self.execute(self.op_of[value], value)
            self.lock(self.storage[value])
        return Frame(NOTHING, NOTHING, list(inputs), [])

    def abandon(self, frame: Frame | None) -> None:
        """The op of ``frame`` is over, or did not come to pass."""
        if frame is not None:
            self.unlock_parents(frame)

    def complete(
        self,
        inputs: list[int],
        call: Call | None,
        made: Sequence[tuple[int, Memory]],
        overwritten: Collection[int],
        blind: Collection[int],
        cost_ns: int,
    ) -> list[int]:
        """An op has run on ``inputs``: it allocated ``made`` (bytes, memory) and wrote ``overwritten`` in place, of
        which no result depends on what was in those of ``blind`` before.

        Without a ``call`` it cannot be run again. Returns the values that it made, those of ``made`` first.
        """
        op = self.add_op(inputs, call, cost_ns)
        self.clock_ns += cost_ns
        self.base_ns += cost_ns
        sources = [self.storage[v] for v in inputs]
        deep = 0
        for storage in sources:
            if self.depth[storage] > deep:
                deep = self.depth[storage]
        deep += 1
        total = 0
        outputs = []
        for nbytes, memory in made:
            total += nbytes
            outputs.append(self._fresh(op, nbytes, memory, sources, deep))
        if overwritten:
            outputs += [self._overwrite(op, storage, sources, deep) for storage in overwritten]
        self.outputs[op], self.unfinished[op], self.totals[op] = outputs, len(outputs), total
        self.memory += total
        if self.memory > self.peak:
            self.peak = self.memory
        if call is None or overwritten or deep > DEEPEST:
            self._fix(op, call, set(overwritten), blind)
            for storage in overwritten:
                if self.fixed[storage]:
                    self.settle(storage)
        if not outputs:
            self.drop_op(op)
        return outputs

    def _fresh(self, op: int, nbytes: int, memory: Memory, sources: Sequence[int], deep: int) -> int:
        """The value of a storage that ``op`` has just allocated."""
        storage = self.add_storage(nbytes, memory, fixed=False)
        value = self.add_value(storage, op, nbytes, NOTHING)
        self.defined[value] = self.material[storage] = True
        self.pool[storage] = None
        self.last_access_ns[storage] = self.clock_ns
        self.work_ns[storage] = self.cost_ns[op]
        self.depth[storage] = deep
        self.parents[storage] = dict.fromkeys(sources)
        for near in sources:
            self.children[near][storage] = None
            if self.fixed[near] and near not in self.waiting:
                self._keep(near)  # its bytes outlive the program's interest in them
        return value

    def _overwrite(self, op: int, storage: int, sources: Sequence[int], deep: int) -> int:
        """The value that ``op`` has just written to ``storage``."""
        old = self.newest(storage)
        value = self.add_value(storage, op, 0, old)
        self.defined[old], self.defined[value] = False, True
        self.last_access_ns[storage] = self.clock_ns
        self.work_ns[storage] += self.cost_ns[op]
        if not self.fixed[storage]:
            self.depth[storage] = deep
            for near in sources:
                if near != storage and near not in self.parents[storage]:
                    self.connect(storage, near)
        return value

    def updated(self, cost_ns: int) -> None:
        """An op has run that made nothing, and wrote to fixed storages only."""
        self.clock_ns += cost_ns
        self.base_ns += cost_ns

    def _fix(self, op: int, call: Call | None, overwritten: set[int], blind: Collection[int]) -> None:
        """What cannot be made again: of an op that cannot be run again, or whose inputs it has overwritten itself.
        And what should not, because of what it would take."""
        spoilt = overwritten.difference(blind) if blind else overwritten
        for value in self.outputs[op]:
            made = self.storage[value]
            if not self.fixed[made] and (
                call is None
                or spoilt - {made}
                or made in blind
                or self.depth[made] > DEEPEST
                or len(self.values[made]) > MOST_WRITES
            ):
                self.pin(made)
                self.sever(made)

    # Real memory

    def enter(self, op: int, wanted: int) -> Frame:
        frame = super().enter(op, wanted)
        self.frames.append(frame)
        return frame

    def finish(self, frame: Frame) -> None:
        call = self.calls[frame.op]
        if self.in_a_row > ENDLESS and self.budget < UNLIMITED:
            raise Thrashing
        assert call is not None  # what cannot be run again is fixed, and never asked for
        began = time.perf_counter_ns()
        self.made = call.again()
        self.again_ns += time.perf_counter_ns() - began
        self.recomputations += 1
        self.in_a_row += 1
        try:
            super().finish(frame)
        finally:
            self.made = {}
        self.frames.pop()
        self.loose = min(self.loose, len(self.frames))

    def define(self, value: int) -> None:
        there = self.defined[value]
        super().define(value)
        if not there and self.defined[value] and value in self.made:
            self._memory(self.storage[value]).fill(self.made[value])

    def clear(self, storage: int) -> None:
        super().clear(storage)
        self._memory(storage).free(held=self.references[storage] > 0)

    def _memory(self, storage: int) -> Memory:
        memory = self.memories[storage]
        assert memory is not None
        return memory

    def make_room(self, nbytes: int) -> None:
        if self.memory + nbytes > self.budget:
            began = time.perf_counter_ns()
            try:
                super().make_room(nbytes)
            finally:
                self.search_ns += time.perf_counter_ns() - began

    def connect(self, made: int, near: int) -> None:
        if self.fixed[made]:
            return
        self.parents[made][near] = None
        self.children[near][made] = None
        if self.fixed[near] and near not in self.waiting:
            self._keep(near)

    def sever(self, storage: int) -> None:
        super().sever(storage)
        self.depth[storage] = 0
        if not self.dead[storage]:
            self.settle(storage)
            if self.children[storage]:
                self._keep(storage)

    def _keep(self, storage: int) -> None:
        """Whatever is made of the fixed ``storage`` may have to be made of it again."""
        self._memory(storage).keep(strongly=True)
        self.waiting[storage] = None

    def disown(self, storage: int) -> list[int]:
        above, self.parents[storage] = self.parents[storage], {}
        unneeded = []
        for near in above:
            below = self.children[near]
            del below[storage]
            if not below and not self.dead[near]:
                if self.fixed[near]:
                    self.waiting.pop(near, None)
                    self._memory(near).keep(strongly=False)
                if not self.references[near]:
                    unneeded.append(near)
        return unneeded

    def give_up(self) -> bool:
        for storage in list(self.waiting):
            if self._memory(storage).abandoned() and not self.locks[storage] > self.pinned[storage]:
                self.references[storage] = 0
                if self.banish(storage):
                    return True
                self.references[storage] = 1
        return self._loosen()

    def _loosen(self) -> bool:
        """Let an op that waits for others to run first go without the inputs that it has already: they come back when
        its turn comes. Once for each op, so that two inputs do not push out each other without end."""
        while self.loose < len(self.frames) - 1:
            frame = self.frames[self.loose]
            self.loose += 1
            there = [value for value in frame.parents if value not in frame.missing]
            frame.missing[:0] = there
            for value in there:
                self.unlock(self.storage[value])
            if self.pool:
                return True
        return False

    def bury(self, dead: list[int]) -> None:
        super().bury(dead)
        for storage in dead:
            self.waiting.pop(storage, None)

    def trace(self, kind: int, index: int) -> None:
        if kind == EVICT:
            self.evictions += 1
        for listener in self.listeners:
            listener(kind, index)

    # What the program has dropped

    def collect(self) -> None:
        """Hear of it."""
        while self.gone:
            storage, memory = self.gone.popleft()
            if self.references[storage] and self.memories[storage] is memory:
                self.references[storage] = 0
                self.released(storage)

    def released(self, storage: int) -> None:
        if self.pinned[storage] and not self.fixed[storage] and not self.references[storage]:
            self.pinned[storage] = False  # somebody looked at its bytes, and is gone
            self.unlock(storage)
        super().released(storage)

    # When it ends

    def unlock_all(self) -> None:
        """No op is on its way: after an error only pins lock."""
        self.frames.clear()
        self.loose = 0
        for storage, pinned in enumerate(self.pinned):
            self.locks[storage] = int(pinned)
            if self.material[storage] and not pinned:
                self.pool.setdefault(storage)

    def restore(self) -> None:
        """Put back whatever the program still holds, whatever it takes."""
        self.collect()
        self.budget = UNLIMITED
        for storage in range(len(self.storage_bytes)):
            if self.references[storage] and not self.material[storage] and self.values[storage]:
                newest = self.newest(storage)
                self.execute(self.op_of[newest], newest)
