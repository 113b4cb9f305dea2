"""One step under a memory budget, played event by event: the plain engine, for any policy.

Semantics of section 3 of the specification of DTR. ``kernel`` is the compiled twin for the named policies; whatever
both play, they play alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensortide.errors import GraphError
from tensortide.plans.remat.schedule import Event
from tensortide.replays.remat.classes import Classes
from tensortide.replays.remat.simulation import Failed, OutOfMemory, RematOutcome, Rules, Thrashing
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from tensortide.plans.remat.policies import Policy
    from tensortide.plans.remat.schedule import Schedule


@dataclass(slots=True)
class Frame:
    """An op that waits to run, with the parents that it waits for."""

    op: int
    wanted: int
    """The value to recompute; -1 in the model's own execution."""
    parents: list[int]
    missing: list[int]
    """Parents that were not resident at first, the next one last."""


class Engine:
    """State of a run, as policies see it (``policies.State``), and the steps that change it."""

    def __init__(self, schedule: Schedule, policy: Policy, rules: Rules) -> None:
        self.policy, self.rules = policy, rules
        self._read(schedule)
        storages, values = len(self.storage_bytes), len(self.storage)
        self.budget = rules.budget_bytes
        self.overrun_bytes = rules.overrun_bytes or 0
        self.clock_ns = rules.clock_ns
        self.memory = self.peak = self.remat_ns = self.evaluations = self.accesses = 0
        self.defined = [False] * values
        self.resident = [False] * storages
        self.locks = [0] * storages
        self.references = [0] * storages
        self.pinned = [False] * storages
        self.last_access_ns = [0] * storages
        self.work_ns = [0] * storages
        self.parents: list[dict[int, None]] = [{} for _ in range(storages)]
        self.children: list[dict[int, None]] = [{} for _ in range(storages)]
        self.pool: dict[int, None] = {}
        self.classes = Classes(storages)
        self.frames: list[Frame] = []
        """Ops to be run, each waiting for the next."""
        self.created = 0
        self.trace_kinds: list[int] = []
        self.trace_indexes: list[int] = []

    def _read(self, schedule: Schedule) -> None:
        """Flat arrays as lists: faster to index one by one."""
        self.cost_ns = schedule.cost_ns.tolist()
        self.extra_bytes = schedule.extra_bytes.tolist()
        self.sums: list[int] = schedule.sums.tolist()
        self.inputs: list[list[int]] = [read for read, _ in schedule.ops()]
        self.outputs: list[Sequence[int]] = [made for _, made in schedule.ops()]
        self.storage: list[int] = schedule.storage.tolist()
        self.nbytes: list[int] = schedule.nbytes.tolist()
        self.replaces: list[int] = schedule.replaces.tolist()
        self.storage_bytes: list[int] = schedule.storage_bytes.tolist()
        self.fixed: list[int] = schedule.fixed.tolist()
        self.gradient: list[int] = schedule.gradient.tolist()
        self.events = list(zip(schedule.kinds.tolist(), schedule.indexes.tolist(), strict=True))
        self.op_of: list[int] = schedule.op_of.tolist()
        self.totals = [sum(self.nbytes[v] for v in outputs) for outputs in self.outputs]
        self.values: list[list[int]] = [[] for _ in self.storage_bytes]
        for value, storage in enumerate(self.storage):
            self.values[storage].append(value)

    # Queries of policies

    def evicted_ancestors(self, storage: int) -> Collection[int]:
        return self._reach(storage, self.parents)

    def evicted_descendants(self, storage: int) -> Collection[int]:
        return self._reach(storage, self.children)

    def _reach(self, storage: int, edges: list[dict[int, None]]) -> set[int]:
        found: set[int] = set()
        queue = [storage]
        while queue:
            for near in edges[queue.pop()]:
                if not self.resident[near] and near not in found:
                    found.add(near)
                    queue.append(near)
        return found

    def evicted_classes_ns(self, storage: int) -> int:
        return self.classes.value(self.evicted_neighbours(storage))

    def evicted_neighbours(self, storage: int) -> Iterator[int]:
        for edges in (self.parents[storage], self.children[storage]):
            for near in edges:
                if not self.resident[near]:
                    yield near

    # The run

    def run(self) -> RematOutcome:
        """Play all events."""
        self.policy.begin()
        failed: Failed | None = None
        try:
            for kind, index in self.events:
                self.event(kind, index)
        except Failed as error:
            failed = error
        return RematOutcome(
            status=failed.status if failed else "ok",
            clock_ns=self.clock_ns,
            remat_ns=self.remat_ns,
            peak_bytes=self.peak,
            final_bytes=self.memory,
            evaluations=self.evaluations,
            accesses=self.accesses,
            shortage=failed.shortage if failed else None,
            kinds=self.trace_kinds,
            indexes=self.trace_indexes,
        )

    def event(self, kind: int, index: int) -> None:
        if kind == Event.COMPUTE:
            self.compute(index)
        elif kind == Event.GET:
            self.references[self.storage[index]] += 1
        elif kind == Event.RELEASE:
            self.references[self.storage[index]] -= 1
            self.released(self.storage[index])
        else:
            if not self.defined[index]:
                self.execute(self.op_of[index], index)
            self.pin(self.storage[index])

    def compute(self, op: int) -> None:
        """The model's own execution of ``op``."""
        inputs, outputs = self.inputs[op], self.outputs[op]
        sources = dict.fromkeys(self.storage[v] for v in inputs)
        for value in outputs:
            made = self.storage[value]
            if self.replaces[value] < 0:
                self.references[made] += 1
            for near in sources:
                if near != made:
                    self.connect(made, near)
        self.created += len(outputs)
        for made in dict.fromkeys(self.storage[v] for v in outputs):
            self.work_ns[made] += self.cost_ns[op]
        self.execute(op, -1)
        for value in outputs:
            self.last_access_ns[self.storage[value]] = self.clock_ns

    def connect(self, made: int, near: int) -> None:
        """``made`` is made of ``near``."""
        self.parents[made][near] = None
        self.children[near][made] = None

    def execute(self, op: int, wanted: int) -> None:
        """Run ``op``, after recomputing its inputs that are not resident."""
        frames, below = self.frames, len(self.frames)
        self.enter(op, wanted)
        while len(frames) > below:
            frame = frames[-1]
            if frame.missing:
                value = frame.missing[-1]
                if self.defined[value]:
                    frame.missing.pop()
                    self.lock(self.storage[value])
                else:
                    self.enter(self.op_of[value], value)
                continue
            self.make_room(self.totals[frame.op], self.extra_bytes[frame.op])
            self.finish(frame)
            if frame.wanted >= 0 and not self.defined[frame.wanted]:
                raise GraphError("the step uses a storage after its last release, which frees it at once")
            frames.pop()

    def enter(self, op: int, wanted: int) -> None:
        """``op`` has to run next, before the ops that wait already."""
        self.frames.append(self.wait(op, wanted, self.parents_of(op, wanted)))

    def wait(self, op: int, wanted: int, parents: list[int]) -> Frame:
        """Lock ``parents`` as far as they are resident."""
        for value in parents:
            self.touch(self.storage[value])
        missing: list[int] = []
        for value in parents:
            if self.defined[value]:
                self.lock(self.storage[value])
            else:
                missing.append(value)
        missing.reverse()
        return Frame(op, wanted, parents, missing)

    def parents_of(self, op: int, wanted: int) -> list[int]:
        return self.inputs[op]

    def touch(self, storage: int) -> None:
        self.last_access_ns[storage] = self.clock_ns

    def make_room(self, nbytes: int, extra_bytes: int = 0) -> None:
        """Evict until ``nbytes`` more fit, and ``extra_bytes`` beside them for a while: those as far over the budget as
        they may go, or have gone before, since that takes no more than was taken already."""
        needed = nbytes + extra_bytes
        while self.memory + nbytes > self.budget or self.memory + needed > self.budget + self.overrun_bytes:
            if self.pool:
                self.evict(self.choose())
                continue
            least = needed if self.rules.overrun_bytes is None else nbytes
            if self.memory + least <= self.budget:
                self.overrun_bytes = self.memory + needed - self.budget
            elif not self.last_resort():
                raise OutOfMemory(least, self.memory, self.budget)

    def choose(self) -> int:
        """The storage of the pool to evict next."""
        storage, looked = self.policy.choose(list(self.pool), self)
        self.evaluations += looked
        return storage

    def last_resort(self) -> bool:
        """Make room where nothing is left to evict; False if that is impossible."""
        return False

    def finish(self, frame: Frame) -> None:
        """Run the op of ``frame``: its inputs are resident, and there is room for its outputs."""
        op, outputs = frame.op, self.outputs[frame.op]
        self.trace(Kind.RUN if frame.wanted < 0 else Kind.RECOMPUTE, op if frame.wanted < 0 else frame.wanted)
        self.clock_ns += self.cost_ns[op]
        if frame.wanted >= 0:
            self.remat_ns += self.cost_ns[op]
        self.memory += self.totals[op]
        self.peak = max(self.peak, self.memory + self.extra_bytes[op])
        first = outputs[0] if outputs and frame.wanted < 0 else frame.wanted
        for value in (*(v for v in outputs if v != first), *([first] if outputs else ())):
            self.define(value)
        self.unlock_parents(frame)
        if self.remat_ns > self.rules.remat_limit_ns:
            raise Thrashing

    def define(self, value: int) -> None:
        """``value`` was just computed."""
        storage = self.storage[value]
        if self.defined[value] or (self.resident[storage] and value == self.values[storage][0]):
            self.memory -= self.nbytes[value]  # a second copy of what is there, overwritten since maybe
            return
        if self.replaces[value] >= 0:
            self.defined[self.replaces[value]] = False
        self.defined[value] = True
        if not self.resident[storage]:
            self.resident[storage] = True
            self.classes.materialize(storage, self.work_ns[storage])
            if not self.locks[storage]:
                self.pool[storage] = None

    def unlock_parents(self, frame: Frame) -> None:
        for value in frame.parents:
            self.unlock(self.storage[value])

    # Storages

    def lock(self, storage: int) -> None:
        if not self.locks[storage]:
            self.pool.pop(storage, None)
        self.locks[storage] += 1

    def unlock(self, storage: int) -> None:
        self.locks[storage] -= 1
        if not self.locks[storage] and self.resident[storage]:
            self.pool[storage] = None

    def pin(self, storage: int) -> None:
        if not self.pinned[storage]:
            self.pinned[storage] = True
            self.lock(storage)

    def unpin(self, storage: int) -> None:
        if self.pinned[storage]:
            self.pinned[storage] = False
            self.unlock(storage)

    def evict(self, storage: int) -> None:
        self.trace(Kind.EVICT, storage)
        self.clear(storage)
        self.classes.evict(storage, self.work_ns[storage], self.evicted_neighbours(storage))

    def clear(self, storage: int) -> None:
        """Take ``storage`` out of memory."""
        self.resident[storage] = False
        for value in self.values[storage]:
            self.defined[value] = False
        self.memory -= self.storage_bytes[storage]
        self.pool.pop(storage, None)

    def released(self, storage: int) -> None:
        """Take one reference off: evict at once what the program holds no more."""
        if (
            self.rules.deallocation == "eager"
            and not self.references[storage]
            and self.resident[storage]
            and not self.locks[storage]
        ):
            self.evict(storage)

    def trace(self, kind: int, index: int) -> None:
        self.trace_kinds.append(kind)
        self.trace_indexes.append(index)
