"""The simulator's engine over real memory: an eviction frees it, a recomputation runs the op."""

from __future__ import annotations

import contextlib
import functools
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any

from tensortide.errors import RunError
from tensortide.replays.remat.engine import Frame
from tensortide.replays.remat.simulation import UNLIMITED, Thrashing
from tensortide.run.operators import operators
from tensortide.run.queues import Events, Streams
from tensortide.run.repeat import ARGUMENTS_NS, Repeats
from tensortide.run.settings import Settings, applied, stale
from tensortide.run.tables import NOTHING, Tables
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from tensortide.plans.remat.policies import Policy
    from tensortide.run.block import Block, Recomputable, Value

DEEPEST = 2048
"""Longest chain of ops to recompute a value: behind a longer one values stay resident, so that histories cannot grow
without end."""
AWAITED = -1
"""Reference count of a storage that the program has released while pending ops are being reported."""
LEAST_ENDLESS = 10_000
ENDLESS = 10
"""Most recomputations for a single op of the program: so many, or so many times the number of known ops. More is
failure."""

NOTICED_NS = 1_000_000_000
"""Least time of recomputation that is worth a warning."""


class Counters:
    """Numbers that every op changes, where the compiled core finds them."""

    __slots__ = (
        *("away_bytes", "base_ns", "budget", "clock_ns", "epoch", "low", "memory", "ops"),
        *("peak", "plain_peak", "taken_bytes", "trail"),
    )

    away_bytes: int
    base_ns: int
    budget: int
    clock_ns: int
    epoch: int
    """Number of the current batch of pending ops; the next begins when they are reported."""
    low: int
    """The least ``memory + away_bytes`` at an op since the step began (``run.repeat``)."""
    memory: int
    ops: int
    """Ops of the program so far, views included."""
    peak: int
    plain_peak: int
    taken_bytes: int
    """Bytes that the latest op of the program took only while it ran."""
    trail: int
    """A mark of the latest ops that allocated, of as many as it has bits (``sizes.Room.mark``)."""


class LiveEngine(Counters, Tables):
    """Plays ops as they happen, and moves real memory with every decision."""

    def __init__(self, policy: Policy, budget_bytes: int, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        super().__init__(policy, budget_bytes)
        self.clock = clock
        """Nanoseconds, for the durations of ops that are recomputed."""
        self.thread = get_ident()
        """Thread of the budget: only there the state of random generators can be set for a recomputation."""
        self.retained: list[Any] = []
        """Storages of the program that the current recomputations need or bring back, lest other threads release
        them."""
        self.freed: deque[Block] = deque()
        """Storages that the program has released since the last op. Callbacks add to it at any time, even after the
        engine has forgotten a storage and given its number to another."""
        self.epoch = 1
        self.aside: list[Block] = []
        """Storages that are set aside: the program has released them, and pending ops have read them."""
        self.summed: dict[int, int] = {}
        """First operand and sum of each of the latest ops that summed gradients."""
        self.settings: Settings | None = None
        """Settings of the process now."""
        self.gradients: set[Block] = set()
        """Those of the program's storages that are gradients of parameters."""
        self.made: dict[int, Any] = {}
        self.streams: Streams | None = None
        self.timer: Events | None = None
        self.late_ns = self.late_recompute_ns = 0
        """Corrections of ``base_ns`` and ``recompute_ns`` by what events have told."""
        self.loose = 0
        """Number of the first ``frames`` that had to unlock their inputs."""
        self.taken_bytes = self.ops = self.trail = 0
        self.low = UNLIMITED
        self.repeats = Repeats(self)
        self.listeners: list[Callable[[int, int], None]] = []
        """Listeners to every event (``timelines.events.Kind``): kind, and value or storage."""
        self.under_way: list[Sequence[int]] = []
        """Storages that each op of the program under way has locked, those of the outermost first: a composite op, or
        one of another library, runs others inside."""
        self.in_use: Counter[int] = Counter()
        """How often each storage is locked by communication that is under way."""
        self.away: dict[int, int] = {}
        """Bytes of what the program references and is evicted, by storage."""
        self.away_bytes = self.plain_peak = 0
        self.when_slow: Callable[[], None] | None = None
        """Called when recomputation takes longer than the ops of the program."""
        self.search: Callable[[], int] | None = None
        """``choose`` of the compiled core, for the policies that it knows."""
        self.evictions = self.recomputations = self.in_a_row = 0
        self.base_ns = self.recompute_ns = self.arguments_ns = self.search_ns = 0
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
        if taken + self.away_bytes > self.plain_peak:
            self.plain_peak = taken + self.away_bytes

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

    # Real memory

    def finish(self, frame: Frame) -> None:
        call = self.calls[frame.op]
        if self.in_a_row >= self.most_recomputed and self.budget < UNLIMITED:
            raise Thrashing
        assert call is not None  # what cannot be recomputed is fixed, and never asked for
        assert operators[id(call.func)].repeatable  # above all, no other process has to take part
        if call.generators and get_ident() != self.thread:
            raise RunError(
                f"{call.func} draws random numbers and would have to be recomputed for another thread than that of the "
                "memory budget, which may draw at the same time: open the budget in the thread that trains, or keep "
                "what other threads read, tensortide.live.pin(tensor)"
            )
        mark = self.timer.mark() if self.timer is not None else None
        began = self.clock()
        try:
            with self._settings_of(call):
                self.made, cost_ns = call.recompute(self.clock)
        except BaseException:
            self._spoil(frame.op)
            raise
        self._compare(call)
        self.recompute_ns += cost_ns
        self.arguments_ns += self.clock() - began - cost_ns
        if self.timer is not None:
            self.timer.since(mark, functools.partial(self._late, cost_ns))
        if self.streams is not None:
            self.streams.recomputed()
        self.recomputations += 1
        self.repeats.lost_ns += self.cost_ns[frame.op] + ARGUMENTS_NS
        self.in_a_row += 1
        try:
            super().finish(frame)
        finally:
            self.made = {}
        assert self.defined[frame.wanted]  # or it would be asked for without end
        self.memory -= self.spare_bytes[frame.op]
        self.loose = min(self.loose, len(self.frames) - 1)
        if self.slow and self.when_slow is not None:
            self.when_slow()

    def _spoil(self, op: int) -> None:
        """``op`` has failed: what it overwrites may be half written, and is evicted."""
        for value in self.outputs[op]:
            storage = self.storage[value]
            if self.replaces[value] != NOTHING and self.resident[storage] and not self.fixed[storage]:
                self.evict(storage)

    def _late(self, estimate_ns: int, cost_ns: int) -> None:
        self.late_recompute_ns += cost_ns - estimate_ns

    def correct(self) -> None:
        """Take over the durations that events have told."""
        self.base_ns, self.late_ns = self.base_ns + self.late_ns, 0
        self.recompute_ns, self.late_recompute_ns = self.recompute_ns + self.late_recompute_ns, 0

    @property
    def slow(self) -> bool:
        """True if recomputation takes longer than the ops of the program do, and long enough to be noticed."""
        return self.recompute_ns + self.arguments_ns > max(self.base_ns, NOTICED_NS)

    @property
    def most_recomputed(self) -> int:
        """Ops that may be recomputed for a single op of the program."""
        return max(LEAST_ENDLESS, ENDLESS * (len(self.calls) - len(self.free_ops)))

    def _compare(self, call: Recomputable) -> None:
        """Raise RunError if ``call``, recomputed, has made storages of other sizes than at first."""
        for value, made in self.made.items():
            block = self.memories[self.storage[value]]
            if block is not None and not self.defined[value] and block.nbytes not in (0, made.nbytes()):
                self.made = {}
                raise RunError(
                    f"{call.func} gave {made.nbytes():,} bytes when it was recomputed and {block.nbytes:,} at first: "
                    "its result depends on something that a memory budget cannot see; pin it with "
                    "tensortide.live.pin(tensor), or leave the budget before this op"
                )

    @property
    def recomputing(self) -> bool:
        """True while ops are recomputed."""
        return bool(self.frames)

    def _settings_of(self, call: Recomputable) -> contextlib.AbstractContextManager[None]:
        wanted = call.settings
        alike = wanted is None or (wanted == self.settings and not stale(wanted))
        return contextlib.nullcontext() if wanted is None or alike else applied(wanted)

    def define(self, value: int) -> None:
        present = self.defined[value]
        super().define(value)
        if not present and self.defined[value] and value in self.made:
            self.retained.append(self._memory(self.storage[value]).fill(self.made[value]))
            if self.streams is not None:
                self.streams.taken(self._memory(self.storage[value]))
            self.away_bytes -= self.away.pop(self.storage[value], 0)

    def execute(self, op: int, wanted: int) -> None:
        super().execute(op, wanted)
        if not self.frames:
            self._recomputed()

    def _recomputed(self) -> None:
        """End recomputations: nothing waits for one any more."""
        self.frames.clear()
        self.loose = 0
        self.retained.clear()

    def wait(self, op: int, wanted: int, parents: list[int]) -> Frame:
        for value in parents:
            storage = self.storage[value]
            if op != NOTHING and self.resident[storage]:
                memory = self._memory(storage)
                program = memory()
                self.retained.append(program)
                if program is None and memory.own is None:  # another thread has released it just now
                    self.evict(storage)
        return super().wait(op, wanted, parents)

    def clear(self, storage: int) -> None:
        super().clear(storage)
        memory = self._memory(storage)
        held = self.references[storage] > 0
        memory.free(held)
        if held and memory() is not None:
            self.away[storage] = memory.nbytes
            self.away_bytes += memory.nbytes

    def _memory(self, storage: int) -> Block:
        memory = self.memories[storage]
        assert memory is not None
        return memory

    def make_room(self, nbytes: int, extra_bytes: int = 0) -> None:
        if self.memory + nbytes + extra_bytes > self.budget:
            began = time.perf_counter_ns()
            try:
                super().make_room(nbytes, extra_bytes)
                self.repeats.ahead()
            finally:
                self.search_ns += time.perf_counter_ns() - began

    def choose(self) -> int:
        return self.repeats.choose()

    def decide(self) -> int:
        """The storage that the policy would evict next."""
        return super().choose() if self.search is None else self.search()

    def connect(self, made: int, near: int) -> None:
        if self.fixed[made]:
            return
        self.parents[made][near] = None
        self.children[near][made] = None
        if self.fixed[near] and near not in self.waiting:
            self._retain(near)  # its bytes outlive the program's interest in them

    def sever(self, storage: int) -> None:
        super().sever(storage)
        self.depth[storage] = 0
        if not self.dead[storage]:
            self.drop_history(storage)
            if self.children[storage]:
                self._retain(storage)

    def _retain(self, storage: int) -> None:
        """Retain the fixed ``storage``: values made from it may have to be recomputed from it."""
        self._memory(storage).retain()
        self.waiting[storage] = None

    def disown(self, storage: int) -> list[int]:
        above = list(self.parents[storage])
        unneeded = super().disown(storage)
        for near in above:
            if self.fixed[near] and not self.children[near] and not self.dead[near]:
                self.waiting.pop(near, None)
                self._memory(near).unretain()
        return unneeded

    def spared_in_order(self) -> list[int]:
        return list(self.spared)  # their numbers have been used before

    def last_resort(self) -> bool:
        if self.unspare_one():
            return True
        for storage in list(self.waiting):
            if self._memory(storage).abandoned() and not self.locks[storage] > self.pinned[storage]:
                self.references[storage] = 0
                if self.banish(storage):
                    return True
                self.references[storage] = 1
        return self._loosen()

    def _loosen(self) -> bool:
        """Unlock the resident inputs of an op that waits for recomputations: those evicted are recomputed when its turn
        comes. Once for each op, so that two inputs do not evict each other without end."""
        while self.loose < len(self.frames) - 1:
            frame = self.frames[self.loose]
            self.loose += 1
            present = [value for value in frame.parents if value not in frame.missing]
            frame.missing[:0] = present
            for value in present:
                self.unlock(self.storage[value])
            if self.pool:
                return True
        return False

    def bury(self, dead: list[int]) -> None:
        super().bury(dead)
        for storage in dead:
            self.waiting.pop(storage, None)

    def trace(self, kind: int, index: int) -> None:
        if kind == Kind.EVICT:
            self.evictions += 1
        for listener in self.listeners:
            listener(kind, index)

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

    def unlock_all(self) -> None:
        """End recomputations, one of which has failed: only pins, ops under way and communication lock."""
        self._recomputed()
        locks = self.in_use + Counter(storage for locked in self.under_way for storage in locked)
        for storage, pinned in enumerate(self.pinned):
            self.locks[storage] = pinned + locks[storage]
            if self.resident[storage] and not self.locks[storage]:
                self.pool.setdefault(storage)

    def restore(self) -> None:
        """Put back whatever the program still holds, whatever it takes."""
        self.under_way.clear()
        self.unlock_all()
        self.collect()
        for memory in self.aside:
            self.references[memory.storage] = 0
        self.budget = UNLIMITED
        for storage in range(len(self.storage_bytes)):
            if self.references[storage] and not self.resident[storage] and self.values[storage]:
                newest = self.newest(storage)
                self.execute(self.op_of[newest], newest)
