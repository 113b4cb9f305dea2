"""Deallocation by banishing: what the program has dropped, and nothing evicted is made of, goes for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensortide.replays.remat.engine import Engine, Frame
from tensortide.replays.remat.outcome import Rules
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from tensortide.plans.remat.policies import Policy
    from tensortide.plans.remat.schedule import Schedule


class BanishingEngine(Engine):
    """The first runtime of DTR's simulator. What is made of a banished storage can never be recomputed, and is
    pinned. A released constant is banished too."""

    def __init__(self, schedule: Schedule, policy: Policy, rules: Rules) -> None:
        super().__init__(schedule, policy, rules)
        self.sources: list[list[int]] = [list(self.inputs[op]) for op in self.op_of]
        self.dependents: list[list[int]] = [[] for _ in self.storage]
        self.banished = [False] * len(self.storage_bytes)

    def compute(self, op: int) -> None:
        for value in self.inputs[op]:
            self.dependents[value].extend(self.outputs[op])
        super().compute(op)

    def parents_of(self, op: int, wanted: int) -> list[int]:
        if wanted >= 0:
            return self.sources[wanted]
        return self.sources[self.outputs[op][0]] if self.outputs[op] else self.inputs[op]

    def unlock_parents(self, frame: Frame) -> None:
        for value in frame.parents:  # banishing shortens the list on the way: the next one stays locked
            storage = self.storage[value]
            self.unlock(storage)
            if self.locks[storage] <= self.pinned[storage]:
                self.released(storage)

    def define(self, value: int) -> None:
        if self.banished[self.storage[value]] and not self.defined[value]:  # it came back with a sibling
            for parent in self.sources[value]:
                if value not in self.dependents[parent]:
                    self.dependents[parent].append(value)
        super().define(value)

    def released(self, storage: int) -> None:
        if self.references[storage] or self.banished[storage]:
            return
        if all(self.defined[child] for child in self._children(storage)):
            self.banish(storage)

    def _children(self, storage: int) -> list[int]:
        """Values in other storages that are made of what is in ``storage``."""
        near = (child for value in self.values[storage] for child in self.dependents[value])
        return [child for child in near if self.storage[child] != storage]

    def banish(self, storage: int) -> None:
        """Free ``storage`` for good."""
        self.banished[storage] = True
        if self.resident[storage]:
            self.trace(Kind.BANISH, storage)
            self.memory -= self.storage_bytes[storage]
        self.pool.pop(storage, None)
        self.resident[storage] = False
        children = self._children(storage)
        for value in self.values[storage]:
            self.defined[value] = False
            for parent in self.sources[value]:
                if value in self.dependents[parent]:
                    self.dependents[parent].remove(value)
            for child in self.dependents[value]:
                self.sources[child].remove(value)
        for near in self.parents[storage]:
            self.children[near].pop(storage, None)
        for near in self.children[storage]:
            self.parents[near].pop(storage, None)
        for child in children:
            if not self.banished[self.storage[child]]:
                self.pin(self.storage[child])
