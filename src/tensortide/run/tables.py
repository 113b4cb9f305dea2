"""The engine's lists, which grow while the program runs; numbers are used again once nothing can need them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tensortide.graph.model import Graph
from tensortide.plans.remat.schedule import Schedule
from tensortide.replays.remat.collecting import CollectingEngine
from tensortide.replays.remat.outcome import Rules

if TYPE_CHECKING:
    from tensortide.plans.remat.policies import Policy

NOTHING = -1


class Memory(Protocol):
    """A block of real memory behind a storage of the engine: ``storage``, once it is reported to the engine. Until
    then, and while it is ``counted``, its ``nbytes`` are among those of the engine. ``given``: it existed before.
    ``read``: the epoch in which an op not yet reported to the engine used it last."""

    storage: int
    nbytes: int
    given: bool
    counted: bool
    read: int

    def free(self, held: bool) -> None:
        """Give the bytes back; ``held``: the program still has the storage, which must be able to come back."""

    def fill(self, made: Any) -> None:
        """Take over the bytes of ``made``, a storage of the framework."""

    def keep(self, strongly: bool) -> None:
        """Hold the bytes after the program releases them, or no longer."""

    def abandoned(self) -> bool:
        """True if only ``keep`` holds the bytes."""


class Call(Protocol):
    """An op that can be recomputed; how long it took, and the bytes that it allocated, and took while it ran."""

    cost_ns: int
    nbytes: int
    workspace_bytes: int
    sums: bool
    """True for a sum of two gradients that autograd makes, or one like it."""

    def recompute(self, clock: Callable[[], int]) -> tuple[dict[int, Any], int]:
        """Run it: a storage of the framework for each value that it allocates, and how long it took by ``clock``."""


class Tables(CollectingEngine):
    """A CollectingEngine whose schedule is not known in advance: storages, values and ops come as they happen."""

    def __init__(self, policy: Policy, budget_bytes: int) -> None:
        super().__init__(_nothing(), policy, Rules(budget_bytes=budget_bytes, overrun_bytes=0))
        self.memories: list[Memory | None] = []
        self.depth: list[int] = []
        """Per storage: ops in the longest chain that may have to be run to make it again."""
        self.calls: list[Call | None] = []
        self.unfinished: list[int] = []
        """Per op: how many of the values it makes may still be needed."""
        self.spare_bytes: list[int] = []
        """Per op: bytes of ``totals`` that nothing can need, and that go at once if it runs again for the others."""
        self.free_storages: list[int] = []
        self.free_values: list[int] = []
        self.free_ops: list[int] = []

    def add_storage(self, nbytes: int, memory: Memory, *, fixed: bool) -> int:
        """A storage of which nothing is there yet, with one reference."""
        if not self.free_storages:
            return self._append_storage(nbytes, memory, fixed)
        storage = self.free_storages.pop()
        self.storage_bytes[storage], self.fixed[storage], self.memories[storage] = nbytes, int(fixed), memory
        self.references[storage] = 1
        self.resident[storage] = self.pinned[storage] = self.dead[storage] = False
        self.locks[storage] = self.last_access_ns[storage] = self.work_ns[storage] = self.depth[storage] = 0
        return storage

    def _append_storage(self, nbytes: int, memory: Memory, fixed: bool) -> int:
        self.storage_bytes.append(nbytes)
        self.fixed.append(int(fixed))
        self.memories.append(memory)
        self.references.append(1)
        for flags in (self.resident, self.pinned, self.dead):
            flags.append(False)
        for numbers in (self.locks, self.last_access_ns, self.work_ns, self.depth):
            numbers.append(0)
        self.parents.append({})
        self.children.append({})
        self.values.append([])
        self.classes.add()
        return len(self.storage_bytes) - 1

    def add_value(self, storage: int, op: int, nbytes: int, replaces: int) -> int:
        """A value that is not defined yet."""
        if self.free_values:
            value = self.free_values.pop()
            self.storage[value], self.op_of[value], self.nbytes[value] = storage, op, nbytes
            self.replaces[value], self.defined[value] = replaces, False
        else:
            value = len(self.storage)
            self.storage.append(storage)
            self.op_of.append(op)
            self.nbytes.append(nbytes)
            self.replaces.append(replaces)
            self.defined.append(False)
        self.values[storage].append(value)
        return value

    def add_op(self, inputs: list[int], call: Call) -> int:
        """An op without outputs so far."""
        if self.free_ops:
            op = self.free_ops.pop()
            self.cost_ns[op], self.extra_bytes[op] = call.cost_ns, call.workspace_bytes
            self.inputs[op], self.calls[op] = inputs, call
            return op
        self.cost_ns.append(call.cost_ns)
        self.extra_bytes.append(call.workspace_bytes)
        self.inputs.append(inputs)
        self.calls.append(call)
        self.outputs.append(())
        for numbers in (self.spare_bytes, self.totals, self.unfinished):
            numbers.append(0)
        return len(self.cost_ns) - 1

    def newest(self, storage: int) -> int:
        return self.values[storage][-1]

    # What is over

    def bury(self, dead: list[int]) -> None:
        super().bury(dead)
        for storage in dead:
            for op in {self.op_of[v] for v in self.values[storage]}:
                if op == NOTHING:
                    self._drop_values([v for v in self.values[storage] if self.op_of[v] == NOTHING])
                    self._recycle(storage)
                    continue
                self.unfinished[op] -= sum([self.op_of[v] == op for v in self.values[storage]])
                if not self.unfinished[op]:
                    self.drop_op(op)

    def settle(self, storage: int) -> None:
        """``storage`` is fixed: nothing that was in it earlier is ever recomputed."""
        *old, newest = self.values[storage]
        for value in old:
            op = self.op_of[value]
            if op != NOTHING:
                self.outputs[op] = [v for v in self.outputs[op] if v != value]
                self.unfinished[op] -= 1
                self.spare_bytes[op] += self.nbytes[value]
            self._drop_values([value])
            if op != NOTHING and not self.unfinished[op]:
                self.drop_op(op)
        self.replaces[newest] = NOTHING

    def drop_op(self, op: int) -> None:
        """Drop ``op``, whose values are all dead: its number and theirs become free."""
        self.calls[op] = None
        outputs, self.outputs[op], self.inputs[op] = self.outputs[op], (), []
        self._drop_values(outputs)
        self.free_ops.append(op)
        for value in outputs:
            self._recycle(self.storage[value])

    def _drop_values(self, values: Iterable[int]) -> None:
        for value in values:
            self.values[self.storage[value]].remove(value)
            self.defined[value] = False
            self.free_values.append(value)

    def _recycle(self, storage: int) -> None:
        if self.dead[storage] and not self.values[storage] and self.memories[storage] is not None:
            self.memories[storage] = None
            self.free_storages.append(storage)


def _nothing() -> Schedule:
    none = np.zeros(0, np.int64)
    start = np.zeros(1, np.int64)
    graph = Graph((), (), (), ())
    return Schedule(graph, "", none, none, none, none, start, start, *(none,) * 10)
