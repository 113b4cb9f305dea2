"""Real memory behind the simulator's engine: an eviction frees it, a recomputation runs the op and fills it."""

from __future__ import annotations

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Sequence
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
    from tensortide.run.block import Block, Recomputable

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


class RealMemory(Counters, Tables):
    """An engine whose evictions and recomputations are real."""

    def __init__(self, policy: Policy, budget_bytes: int, clock: Callable[[], int]) -> None:
        super().__init__(policy, budget_bytes)
        self.clock = clock
        """Nanoseconds, for the durations of ops that are recomputed."""
        self.thread = get_ident()
        """Thread of the budget: only there the state of random generators can be set for a recomputation."""
        self.retained: list[Any] = []
        """Storages of the program that the current recomputations need or bring back, lest other threads release
        them."""
        self.settings: Settings | None = None
        """Settings of the process now."""
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

    # Recomputation

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

    # Room

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

    # Sources that are retained

    def connect(self, made: int, near: int) -> None:
        if self.fixed[made]:
            return
        self.parents[made][near] = None
        self.children[near][made] = None
        if self.fixed[near] and near not in self.waiting:
            self.waiting[near] = None
            self.retain(near)  # its bytes outlive the program's interest in them

    def sever(self, storage: int) -> None:
        super().sever(storage)
        self.depth[storage] = 0
        if not self.dead[storage]:
            self.drop_history(storage)
            if self.children[storage]:
                self.waiting[storage] = None
                self.retain(storage)

    def retain(self, storage: int) -> Block:
        """Retain ``storage``: other values may have to be recomputed from it when the program has released it."""
        memory = self._memory(storage)
        memory.retain()
        return memory

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

    def renounce(self, storage: int) -> None:
        """Drop ``storage`` if it only waits to make something again: what the program has of that is never evicted.
        Where some of it is evicted already, ``storage`` stays."""
        if storage not in self.waiting or not self._memory(storage).abandoned():
            return
        if all(self.defined[self.newest(made)] for made in self.held_below([storage])):
            self.secure([storage])

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

    def unlock_all(self) -> None:
        """End recomputations, one of which has failed: only pins, ops under way and communication lock."""
        self._recomputed()
        locks = self.in_use + Counter(storage for locked in self.under_way for storage in locked)
        for storage, pinned in enumerate(self.pinned):
            self.locks[storage] = pinned + locks[storage]
            if self.resident[storage] and not self.locks[storage]:
                self.pool.setdefault(storage)
