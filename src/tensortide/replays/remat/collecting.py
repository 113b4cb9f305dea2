"""Two engines that free storages for good. Ours frees dead ones, and never recomputes a value whose inputs have been
overwritten; that of DTR's simulator banishes what the program has dropped and nothing evicted is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensortide.replays.remat.engine import Engine, Frame
from tensortide.replays.remat.simulation import UNLIMITED, Rules
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensortide.plans.remat.policies import Policy
    from tensortide.plans.remat.schedule import Schedule


class CollectingEngine(Engine):
    """DTR's engine, which also frees dead storages and pins fixed ones.

    A storage is *dead*, and freed for good, when the program has released it and all storages made of it are dead.

    A *fixed* storage cannot be recomputed: it existed before the step, or one of its sources was overwritten. It is
    pinned; under a budget it outlives its last reference while an evicted storage may need it.

    A *gradient* is whatever the backward pass makes. It is spared while the program holds it: what it is made of is
    freed at once, the terms and partial sums of a sum too, so that recomputing it takes a backward pass, op by op; and
    the optimizer overwrites what the gradients of parameters are made of.
    """

    def __init__(self, schedule: Schedule, policy: Policy, rules: Rules) -> None:
        super().__init__(schedule, policy, rules)
        self.dead = [False] * len(self.storage_bytes)
        self.waiting: dict[int, None] = {}
        """Fixed storages that the program has released, but that a recomputation may still read."""
        self.spared: dict[int, None] = {}
        """Gradients, which are pinned until the program releases them or nothing else can be evicted."""

    def compute(self, op: int) -> None:
        outputs = self.outputs[op]
        overwritten = dict.fromkeys(self.storage[v] for v in outputs if self.replaces[v] >= 0)
        self.secure(overwritten)
        gathered = self.gathered(op)
        super().compute(op)
        if gathered is not None:
            self.spare(gathered)
        if self.rules.deallocation == "eager":
            for value in outputs:
                if self.gradient[self.storage[value]]:
                    self.spare(self.storage[value])
        for made in dict.fromkeys(self.storage[v] for v in outputs):
            if overwritten.keys() - {made} and not self.fixed[made]:
                self.pin(made)
                self.sever(made)

    def gathered(self, op: int) -> int | None:
        """Return the storage in which ``op`` is about to sum gradients, if it is the only op to use the sum so far."""
        if not self.sums[op] or self.rules.deallocation != "eager":
            return None
        before = self.storage[self.inputs[op][0]]
        return None if self.children[before] else self.storage[self.outputs[op][0]]

    def spare(self, storage: int) -> None:
        """Do not evict ``storage`` before everything else."""
        if not self.pinned[storage]:
            self.pin(storage)
            self.spared[storage] = None

    def pin(self, storage: int) -> None:
        super().pin(storage)
        self.spared.pop(storage, None)

    def unspare(self, storages: Iterable[int]) -> None:
        """``storages``, which are spared, may be evicted after all."""
        for storage in storages:
            del self.spared[storage]
            self.unpin(storage)

    def unspare_one(self) -> bool:
        """Allow the eviction of that spared storage which the policy would evict first; False if there is none."""
        spared, found = self.spared_in_order(), None
        for storage in spared:
            self.unlock(storage)
        if self.pool:
            found = self.choose()
        for storage in spared:
            self.lock(storage)
        if found is not None:
            self.unspare([found])
        return found is not None

    def spared_in_order(self) -> list[int]:
        """The spared storages, oldest first."""
        return sorted(self.spared)

    def connect(self, made: int, near: int) -> None:
        if not self.fixed[made]:
            super().connect(made, near)

    def define(self, value: int) -> None:
        if self.dead[self.storage[value]]:  # recomputed along with the value in demand
            self.memory -= self.nbytes[value]
        else:
            super().define(value)

    def secure(self, storages: Iterable[int]) -> None:
        """Secure what the program holds and is made of ``storages``, before they are overwritten: recompute it if it
        is not resident, and pin it. The smallest comes first: until their turn has come, larger ones give room to the
        recomputations."""
        held = sorted(self.held_below(storages), key=self.storage_bytes.__getitem__)
        for other in held:
            newest = self.newest(other)
            if not self.defined[newest]:
                self.execute(self.op_of[newest], newest)
            self.pin(other)
        for other in held:
            self.sever(other)

    def newest(self, storage: int) -> int:
        """The value that was written to ``storage`` last."""
        return max(v for v in self.values[storage] if v < self.created)

    def held_below(self, storages: Iterable[int]) -> list[int]:
        """Return what the program references and is made of ``storages``, directly or through released storages."""
        held: list[int] = []
        seen: set[int] = set()
        for storage in storages:
            queue = [storage]
            for at in queue:
                for near in self.children[at]:
                    if near not in seen and not self.fixed[near]:
                        seen.add(near)
                        (held if self.references[near] else queue).append(near)
        return held

    def last_resort(self) -> bool:
        """The last resort: evict a gradient; or drop what only waits to make something again, and never evict what is
        made of it."""
        if self.unspare_one():
            return True
        for storage in self.waiting:
            if not self.dead[storage] and not self.references[storage] and self.banish(storage):
                return True
        return False

    def sever(self, storage: int) -> None:
        """Cut the pinned ``storage``, which can never be recomputed, off from its sources."""
        if not self.fixed[storage]:
            self.fixed[storage] = 1
            self.bury(self.disown(storage))

    def disown(self, storage: int) -> list[int]:
        """Cut ``storage`` off from what it was made of; returns what nothing else needs."""
        above = list(self.parents[storage])
        self.parents[storage].clear()
        for near in above:
            del self.children[near][storage]
        return [s for s in above if not (self.children[s] or self.references[s] or self.dead[s])]

    def bury(self, dead: list[int]) -> None:
        """Drop ``dead`` for good, and whatever only they needed."""
        for storage in dead:
            self.dead[storage] = True
            if self.resident[storage]:
                self.trace(Kind.BANISH, storage)
                self.clear(storage)
            else:
                self.trace(Kind.DEAD, storage)
                self.classes.materialize(storage, self.work_ns[storage])
            dead.extend(self.disown(storage))

    def released(self, storage: int) -> None:
        if self.references[storage] or self.dead[storage]:
            return
        if storage in self.spared:
            self.unspare([storage])
        if self.rules.deallocation == "banish":
            self.banish(storage)
        elif not self.children[storage] or (self.fixed[storage] and self.budget >= UNLIMITED):
            self.bury([storage])
        elif self.fixed[storage]:
            self.waiting[storage] = None
        else:
            super().released(storage)

    def banish(self, storage: int) -> bool:
        """Drop ``storage`` for good unless something evicted is made of it; the rest of what is made of it stays."""
        defined = (self.defined[self.newest(s)] for s in self.children[storage])
        if self.locks[storage] > self.pinned[storage] or not all(defined):
            return False
        for made in list(self.children[storage]):
            self.pin(made)
            self.sever(made)
        if not self.dead[storage]:
            self.bury([storage])
        return True

    def unlock_parents(self, frame: Frame) -> None:
        super().unlock_parents(frame)
        if self.rules.deallocation == "banish":
            for value in frame.parents:
                self.released(self.storage[value])


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
