"""The engine's lists, which grow while the program runs; numbers are used again once nothing can need them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from tensortide.graph.model import Graph
from tensortide.plans.remat.schedule import recorded, schedule
from tensortide.replays.remat.collecting import CollectingEngine
from tensortide.replays.remat.simulation import Rules

if TYPE_CHECKING:
    from tensortide.plans.remat.policies import Policy
    from tensortide.run.block import Block, Recomputable

NOTHING = -1
Birth: TypeAlias = tuple[int, int, int]
"""Origin of a storage: number of the op that allocated it, place among its results, and the trail then."""


class Tables(CollectingEngine):
    """A CollectingEngine whose schedule is not known in advance: storages, values and ops come as they happen."""

    def __init__(self, policy: Policy, budget_bytes: int) -> None:
        super().__init__(
            schedule(recorded(Graph((), (), (), ()), ())), policy, Rules(budget_bytes=budget_bytes, overrun_bytes=0)
        )
        self.memories: list[Block | None] = []
        self.births: list[Birth | None] = []
        """Per storage."""
        self.born: dict[Birth, int] = {}
        """And back."""
        self.depth: list[int] = []
        """Per storage: ops in the longest chain that recomputing it may take."""
        self.calls: list[Recomputable | None] = []
        self.unfinished: list[int] = []
        """Per op: how many of the values it makes may still be needed."""
        self.spare_bytes: list[int] = []
        """Per op: bytes of ``totals`` that nothing can need, freed at once when it is recomputed for the others."""
        self.free_storages: list[int] = []
        self.free_values: list[int] = []
        self.free_ops: list[int] = []

    def add_storage(self, memory: Block, *, fixed: bool) -> int:
        """Give ``memory`` a number: a storage that is not resident yet, with one reference."""
        storage = self.free_storages.pop() if self.free_storages else self._grow_storages()
        self.storage_bytes[storage], self.fixed[storage], self.memories[storage] = memory.nbytes, int(fixed), memory
        self.references[storage] = 1
        self.resident[storage] = self.pinned[storage] = self.dead[storage] = False
        self.locks[storage] = self.last_access_ns[storage] = self.work_ns[storage] = self.depth[storage] = 0
        self.births[storage] = None
        memory.storage = storage
        return storage

    def bear(self, storage: int, call: Recomputable, place: int) -> None:
        """Note that ``call`` has allocated ``storage``, as result number ``place``."""
        while (birth := (call.number, place, call.trail)) in self.born:
            place += 1  # a part of a call for several tensors
        self.births[storage], self.born[birth] = birth, storage

    def _grow_storages(self) -> int:
        for edges in (self.parents, self.children):
            edges.append({})
        self.values.append([])
        self.classes.add()
        return _grow(
            *(self.storage_bytes, self.fixed, self.memories, self.references, self.resident, self.pinned, self.dead),
            *(self.births, self.locks, self.last_access_ns, self.work_ns, self.depth),
        )

    def add_value(self, storage: int, op: int, nbytes: int, replaces: int) -> int:
        """A value that is not defined yet."""
        if self.free_values:
            value = self.free_values.pop()
        else:
            value = _grow(self.storage, self.op_of, self.nbytes, self.replaces, self.defined)
        self.storage[value], self.op_of[value], self.nbytes[value] = storage, op, nbytes
        self.replaces[value], self.defined[value] = replaces, False
        self.values[storage].append(value)
        return value

    def add_op(self, inputs: list[int], call: Recomputable) -> int:
        """An op without outputs so far."""
        if self.free_ops:
            op = self.free_ops.pop()
        else:
            columns = (self.cost_ns, self.extra_bytes, self.inputs, self.calls)
            op = _grow(*columns, self.outputs, self.spare_bytes, self.totals, self.unfinished)
        self.cost_ns[op], self.extra_bytes[op] = call.cost_ns, call.workspace_bytes
        self.inputs[op], self.outputs[op], self.calls[op] = inputs, (), call
        return op

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

    def drop_history(self, storage: int) -> None:
        """Drop what was in ``storage`` earlier, now that it is fixed: none of it is ever recomputed."""
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
            if (birth := self.births[storage]) is not None:
                del self.born[birth]
            self.free_storages.append(storage)


def _grow(*columns: list[Any]) -> int:
    """Add a row to ``columns``; return its number."""
    for column in columns:
        column.append(None)
    return len(columns[0]) - 1
