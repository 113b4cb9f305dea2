"""The simulator's engine, played with the ops of a program as they happen."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from tensortide.errors import RunError
from tensortide.replays.remat.simulation import UNLIMITED
from tensortide.run.moving import MovingMemory
from tensortide.run.operators import operators
from tensortide.run.tables import NOTHING
from tensortide.units import format_bytes

if TYPE_CHECKING:
    from tensortide.plans.remat.policies import Policy
    from tensortide.run.block import Block, Recomputable, Value

DEEPEST = 2048
"""Longest chain of ops to recompute a value: behind a longer one values stay resident, so that histories cannot grow
without end."""
AWAITED = -1
"""Reference count of a storage that the program has released while pending ops are being reported."""


class LiveEngine(MovingMemory):
    """Plays ops as they happen, and moves real memory with every decision."""

    def __init__(self, policy: Policy, budget_bytes: int, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        super().__init__(policy, budget_bytes, clock)
        self.freed: deque[Block] = deque()
        """Storages that the program has released since the last op. Callbacks add to it at any time, even after the
        engine has forgotten a storage and given its number to another."""
        self.epoch = 1
        self.aside: list[Block] = []
        """Storages that are set aside: the program has released them, and pending ops have read them."""
        self.summed: dict[int, int] = {}
        """First operand and sum of each of the latest ops that summed gradients."""
        self.unread: list[tuple[int, str]] = []
        """Bytes of each storage that could not be put back, and why."""
        self.gradients: set[Block] = set()
        """Those of the program's storages that are gradients of parameters."""
        self._next_sweep = 0
        """Evictions after which it is worth looking for sources that are of no use."""
        policy.begin()

    def add_constant(self, memory: Block) -> None:
        """Add a resident storage that cannot be recomputed."""
        storage = self.add_storage(memory, fixed=True)
        value = self.add_value(storage, NOTHING, memory.nbytes, NOTHING)
        self.resident[storage] = self.defined[value] = True
        self.memory += memory.nbytes
        self.peak = max(self.peak, self.memory)
        self.pin(storage)

    # An op of the program

    def prepare(
        self, inputs: Sequence[int], overwritten: Collection[int], nbytes: int, workspace_bytes: int = 0
    ) -> Sequence[int]:
        """Prepare an op that reads the values ``inputs``, overwrites storages and allocates ``nbytes``: recompute
        absent inputs, and evict until its outputs fit; as far as evicting can, until its ``workspace_bytes`` fit too.
        Returns the storages that are locked for it, until ``abandon``. Raises OutOfMemory, and then none is."""
        if self.freed:
            self.collect()
        self.in_a_row = 0
        locked = [self.storage[value] for value in inputs]
        try:
            if any(self.children[storage] for storage in overwritten):
                self.secure(overwritten)
            frame = self.wait(NOTHING, NOTHING, list(inputs))
            self.frames.append(frame)
            while frame.missing:
                value = frame.missing[-1]
                if self.defined[value]:
                    frame.missing.pop()
                    self.lock(self.storage[value])
                else:
                    self.execute(self.op_of[value], value)
            self.make_room(nbytes, workspace_bytes)
        except BaseException:
            self.unlock_all()
            self.repeats.failed()
            raise
        self._recomputed()
        self.under_way.append(locked)
        return locked

    def abandon(self, locked: Sequence[int] | None) -> None:
        """End the op that ``prepare`` has ``locked`` storages for: it has run or failed."""
        if locked is not None:
            self.under_way.remove(locked)
            for storage in locked:
                self.unlock(storage)

    def ran(self, cost_ns: int, nbytes: int, workspace_bytes: int) -> None:
        """Account for an op that ran: it allocated ``nbytes``, which count until the op is reported, and took
        ``workspace_bytes`` while it ran."""
        self.taken_bytes = workspace_bytes
        self.clock_ns += cost_ns
        self.base_ns += cost_ns
        self.memory += nbytes
        taken = self.memory + workspace_bytes
        if taken > self.peak:
            self.peak = taken
        plain = taken + self.away_bytes - self.moving_bytes
        if plain > self.plain_peak:
            self.plain_peak = plain

    def uncount(self, memory: Block) -> None:
        """The bytes of ``memory`` count otherwise from now on, or not at all."""
        if memory.counted:
            memory.counted = False
            self.memory -= memory.nbytes

    def complete(self, call: Recomputable, made: list[Value]) -> None:
        """``call`` has run, and its inputs were reported. Of its results ``made`` can be needed: new storages, and
        those that it overwrote."""
        inputs = [self.newest(value.block.storage) for value in dict.fromkeys(call.inputs) if value is not None]
        op = self.add_op(inputs, call)
        sources = [self.storage[v] for v in inputs]
        deep = 1 + max([self.depth[storage] for storage in sources], default=0)
        sums = call.backward and operators[id(call.func)].sums and len(sources) == 2 and not self.children[sources[0]]
        fresh = sorted([value for value in made if value.place >= 0], key=lambda value: value.place)
        outputs = [self._fresh(op, call, value, sources, deep) for value in fresh]
        for output in outputs if call.backward else ():
            self.gradient_made(self.storage[output])
        call.fresh = [(value.place, output) for value, output in zip(fresh, outputs, strict=True)]
        outputs += [self._overwrite(op, value.block.storage, sources, deep) for value in made if value.place < 0]
        total = sum([value.block.nbytes for value in fresh])
        self.outputs[op], self.unfinished[op] = outputs, len(outputs)
        self.totals[op] = max(total, call.nbytes)
        self.spare_bytes[op] = self.totals[op] - total
        if sums and self.rules.deallocation == "eager":
            self._sum(sources[0], self.storage[outputs[0]])
        if deep > DEEPEST:
            for value in made:
                self.fix(value.block.storage)
        for value in made:
            self.last_access_ns[value.block.storage] = value.block.seen_ns
            value.call = None
        call.held = ()

    def _fresh(self, op: int, call: Recomputable, made: Value, sources: Sequence[int], deep: int) -> int:
        """The value of a storage that ``op``, which is ``call``, has just allocated."""
        memory = made.block
        self.uncount(memory)
        self.memory += memory.nbytes
        storage = self.add_storage(memory, fixed=False)
        self.bear(storage, call, made.place)
        value = self.add_value(storage, op, memory.nbytes, NOTHING)
        self.defined[value] = self.resident[storage] = True
        self.pool[storage] = None
        self.work_ns[storage] = self.cost_ns[op]
        self.depth[storage] = deep
        for near in sources:
            self.connect(storage, near)
        if memory in self.gradients:
            self.gradient_made(storage)
        return value

    def gradient_made(self, storage: int) -> None:
        """``storage``, just made, is the gradient of a parameter, or else a result of the backward pass."""
        if self.resident[storage] and not self.fixed[storage] and self.rules.deallocation == "eager":
            self.spare(storage)

    def _overwrite(self, op: int, storage: int, sources: Sequence[int], deep: int) -> int:
        """The value that ``op`` has just written to ``storage``, which can be recomputed."""
        old = self.newest(storage)
        value = self.add_value(storage, op, 0, old)
        self.defined[old], self.defined[value] = False, True
        self.work_ns[storage] += self.cost_ns[op]
        self.depth[storage] = deep
        for near in sources:
            if near != storage:
                self.connect(storage, near)
        return value

    def begin_use(self, storage: int) -> None:
        """Lock ``storage`` beyond the op that is about to run."""
        self.in_use[storage] += 1
        self.lock(storage)

    def end_use(self, storage: int) -> None:
        """Undo ``begin_use``."""
        self.in_use[storage] -= 1
        self.unlock(storage)
        if not self.in_use[storage]:
            del self.in_use[storage]

    def fix(self, storage: int) -> None:
        """Note that ``storage`` is resident, and never to be recomputed."""
        self.pin(storage)
        self.sever(storage)

    # Room

    def make_room(self, nbytes: int, extra_bytes: int = 0) -> None:
        if self.memory + nbytes + extra_bytes > self.budget and self.evictions >= self._next_sweep:
            self._renounce_useless()
        super().make_room(nbytes, extra_bytes)

    def last_resort(self) -> bool:
        return self._renounce_useless() or super().last_resort()

    def _renounce_useless(self) -> bool:
        """Drop released sources that take more than all that can be recomputed from them. True if there were any."""
        before, size = self.memory, self.storage_bytes
        for storage in list(self.waiting):
            if self.dead[storage] or self.locks[storage] > self.pinned[storage]:
                continue
            if size[storage] > sum([size[made] for made in self.held_below([storage])]):
                self.renounce(storage)
        self.collect()
        self._next_sweep = self.evictions + len(self.waiting)
        return self.memory < before

    # What the program has dropped

    def collect(self) -> None:
        """Take note of what the program has released."""
        while self.freed:
            memory = self.freed.popleft()
            storage = memory.storage
            if storage == NOTHING:
                self.uncount(memory)
            elif self.references[storage] and self.memories[storage] is memory:
                self.away_bytes -= self.away.pop(storage, 0)
                if memory.read == self.epoch and not self.fixed[storage]:
                    self._set_aside(storage, memory)
                else:
                    self._release(storage)

    def _release(self, storage: int) -> None:
        """Note that the program has released ``storage``."""
        self.references[storage] = 0
        self._replaced(storage)
        self.released(storage)

    def _set_aside(self, storage: int, memory: Block) -> None:
        """Set aside ``storage``, whose bytes are freed while an op not yet reported has read it."""
        self.aside.append(memory)
        self.spared.pop(storage, None)
        self.unpin(storage)
        if self.resident[storage]:
            self.evict(storage)

    def begin_epoch(self, dropped: Sequence[Block]) -> None:
        """Begin an epoch: all ops are reported; the program has released ``dropped`` of their results already."""
        self.epoch += 1
        for memory in (*self.aside, *dropped):
            if self.memories[memory.storage] is memory:
                self._release(memory.storage)
        self.aside.clear()

    def _sum(self, before: int, made: int) -> None:
        """An op has added a gradient to ``before``, of which nothing else was made, and the sum is ``made``."""
        if before == made:
            self.spare(made)
        else:
            self.summed[before] = made
            if self.references[before] <= 0:
                self._replaced(before)

    def _replaced(self, storage: int) -> None:
        """``storage`` is dropped: if the latest ops have added to it, the sum stands for it from now on."""
        made = self.summed.pop(storage, NOTHING)
        if made != NOTHING and self.storage_bytes[made] == self.storage_bytes[storage]:
            self.spare(made)

    def released(self, storage: int) -> None:
        if not (self.references[storage] or self.fixed[storage] or storage in self.spared):
            self.unpin(storage)  # somebody may have looked at its bytes, and is gone
        super().released(storage)

    # When it ends

    def restore(self) -> None:
        """Put back whatever the program still holds, whatever it takes. Raises RunError if a tier has lost some."""
        self.under_way.clear()
        self.unlock_all()
        self.all_arrive()
        self.collect()
        for memory in self.aside:
            self.references[memory.storage] = 0
        self.budget = UNLIMITED
        for storage in range(len(self.storage_bytes)):
            if self.references[storage] and not self.resident[storage] and self.values[storage]:
                self._put_back(storage)
        if self.unread:
            nbytes, why = sum([size for size, _ in self.unread]), self.unread[0][1]
            count, self.unread = len(self.unread), []
            raise RunError(f"the contents of {count} tensors ({format_bytes(nbytes)}) are lost: {why}")

    def _put_back(self, storage: int) -> None:
        newest = self.newest(storage)
        if self.op_of[newest] == NOTHING and not self.obtainable(storage):
            self.unread.append((self.storage_bytes[storage], "nothing has them any more"))
            return
        try:
            self.execute(self.op_of[newest], newest)
        except RunError as error:
            self.unlock_all()
            self.unread.append((self.storage_bytes[storage], str(error)))
