"""The plain engine, led by the trace of a run and observed: states and uses of storages, event by event."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from tensortide.errors import PlanError
from tensortide.plans.remat.recording import Event
from tensortide.replays.remat.banishing import BanishingEngine
from tensortide.replays.remat.collecting import CollectingEngine
from tensortide.replays.remat.engine import Engine, Frame
from tensortide.replays.remat.outcome import OutOfMemory, Rules
from tensortide.replays.remat.telemetry.marks import NEVER, Marks
from tensortide.replays.remat.telemetry.records import Held, Stop
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensortide.plans.remat.policies import State
    from tensortide.plans.remat.schedule import Schedule
    from tensortide.replays.remat.simulation import Simulation
    from tensortide.replays.remat.simulator import Simulator

_GONE, _EVICTABLE, _LOCKED, _PINNED = range(4)


def observed(simulator: Simulator, simulation: Simulation) -> Observed:
    """Play ``simulation`` of ``simulator`` once more, and observe it. Raises PlanError if it is not one of its runs."""
    kind: type[Observed] = ObservedCollecting
    if simulator.compat:
        kind = ObservedBanishing if simulator.deallocation == "banish" else Observed
    leader = _Leader(simulation)
    engine = kind(simulation.schedule, leader, simulation.rules)
    leader.engine = engine
    engine.run()
    if engine.trace_kinds != leader.kinds or engine.trace_indexes != leader.indexes:
        raise PlanError(_FOREIGN)
    return engine


_FOREIGN = "the run is not one of this simulator: it was of another step, or by other rules"


class _Leader:
    """The policy that evicts what the run evicted."""

    name = "as it was"

    def __init__(self, simulation: Simulation) -> None:
        self.kinds = [int(kind) for kind in simulation.outcome.kinds]
        self.indexes = [int(index) for index in simulation.outcome.indexes]
        self.engine: Engine

    def begin(self) -> None:
        """Nothing is remembered."""

    def choose(self, pool: Sequence[int], state: State) -> tuple[int, int]:
        del state
        at = len(self.engine.trace_kinds)
        if at >= len(self.kinds) or self.kinds[at] != Kind.EVICT or self.indexes[at] not in pool:
            raise PlanError(_FOREIGN)
        return self.indexes[at], 1


class Observed(Engine):
    """Appends a row per event, and counts per value and per storage. Moments are numbers of rows."""

    def __init__(self, schedule: Schedule, policy: _Leader, rules: Rules) -> None:
        super().__init__(schedule, policy, rules)
        values, storages = len(self.storage), len(self.storage_bytes)
        self.rows: tuple[array[int], ...] = tuple(array("q") for _ in range(8))
        """Columns as of ``records.Moments``."""
        self.value = Marks(values)
        self.stored = Marks(storages)
        self.direct, self.collateral = [0] * values, [0] * values
        self.evictions, self.forced, self.remats = [0] * storages, [0] * storages, [0] * storages
        self.pins, self.banishings = [NEVER] * storages, [NEVER] * storages
        self.runs, self.recomputations = [0] * len(self.cost_ns), [0] * len(self.cost_ns)
        self.state = [_GONE] * storages
        self.state_bytes = [0, 0, 0, 0]
        """Bytes of the storages in each state."""
        self.frames: list[Frame] = []
        self.goal = 0
        self.asked = 0
        self.stop: Stop | None = None

    # States of storages

    def update_state(self, storage: int) -> None:
        """Move ``storage`` to its current state."""
        if not self.resident[storage]:
            self.move(storage, _GONE)
        elif self.pinned[storage]:
            self.move(storage, _PINNED)
        else:
            self.move(storage, _LOCKED if self.locks[storage] else _EVICTABLE)

    def move(self, storage: int, state: int) -> None:
        nbytes = self.storage_bytes[storage]
        self.state_bytes[self.state[storage]] -= nbytes
        self.state_bytes[state] += nbytes
        self.state[storage] = state

    @property
    def now(self) -> int:
        """The number of the next row."""
        return len(self.rows[0])

    @property
    def resident_bytes(self) -> int:
        """Bytes resident."""
        return sum(self.state_bytes[_EVICTABLE:])

    def row(self, kind: int, index: int, total: int) -> None:
        """Append an event, with ``total`` bytes resident."""
        pinned, evictable = self.state_bytes[_PINNED], self.state_bytes[_EVICTABLE]
        missing = max(0, total + self.asked - self.budget) if self.asked else 0
        entries = (kind, index, self.goal, self.clock_ns, pinned, total - pinned - evictable, evictable, missing)
        for column, entry in zip(self.rows, entries, strict=True):
            column.append(entry)

    # Steps of the engine, observed

    def event(self, kind: int, index: int) -> None:
        if kind == Event.RELEASE and self.rules.deallocation == "ignore":
            return
        if kind == Event.COMPUTE:
            self.goal = index
        super().event(kind, index)

    def enter(self, op: int, wanted: int) -> Frame:
        frame = super().enter(op, wanted)
        self.frames.append(frame)
        return frame

    def make_room(self, nbytes: int, extra_bytes: int = 0) -> None:
        self.asked = nbytes + extra_bytes
        try:
            super().make_room(nbytes, extra_bytes)
        except OutOfMemory:
            self.stop = self.stopped(self.asked)
            raise
        self.asked = 0

    def stopped(self, asked: int) -> Stop:
        held = [Held(s, self.storage_bytes[s], self.pinned[s]) for s, resident in enumerate(self.resident) if resident]
        held.sort(key=lambda item: -item.nbytes)
        waiting = tuple(frame.op for frame in self.frames[:-1])
        return Stop(op=self.frames[-1].op, goal=self.goal, waiting=waiting, asked_bytes=asked, held=tuple(held))

    def finish(self, frame: Frame) -> None:
        model = frame.wanted < 0
        for value in {*frame.parents}:
            self.value.use(value, self.now, model, self.pinned[self.storage[value]])
        for storage in {self.storage[value] for value in frame.parents}:
            self.stored.use(storage, self.now, model, self.pinned[storage])
        (self.runs if model else self.recomputations)[frame.op] += 1
        if not model:
            self.direct[frame.wanted] += 1
        if self.remat_ns + (0 if model else self.cost_ns[frame.op]) > self.rules.remat_limit_ns:
            self.stop = self.stopped(0)
        super().finish(frame)
        self.frames.pop()

    def define(self, value: int) -> None:
        storage, before, resident = self.storage[value], self.defined[value], self.resident[self.storage[value]]
        super().define(value)
        if before or not self.defined[value]:
            return
        event, frame = self.now - 1, self.frames[-1]
        if not resident:
            self.remats[storage] += self.stored.birth[storage] != NEVER
            self.stored.born(storage, event)
        if frame.wanted not in (NEVER, value):
            self.collateral[value] += 1
        self.value.born(value, event)
        if self.replaces[value] >= 0:
            self.value.death[self.replaces[value]] = event
        self.update_state(storage)

    def trace(self, kind: int, index: int) -> None:
        super().trace(kind, index)
        if kind in (Kind.RUN, Kind.RECOMPUTE):
            op = index if kind == Kind.RUN else self.op_of[index]
            self.row(kind, op, self.resident_bytes + self.totals[op] + self.extra_bytes[op])
            return
        if kind in (Kind.EVICT, Kind.BANISH):
            self.lose(index, kind)
        self.row(kind, index, self.resident_bytes)

    def lose(self, storage: int, kind: int) -> None:
        """``storage`` is about to leave memory."""
        for value in self.values[storage]:
            if self.defined[value]:
                self.value.death[value] = self.now
        self.stored.death[storage] = self.now
        if kind == Kind.EVICT:
            self.evictions[storage] += 1
            self.forced[storage] += self.asked > 0
        else:
            self.banishings[storage] = self.now
        self.move(storage, _GONE)

    def lock(self, storage: int) -> None:
        super().lock(storage)
        self.update_state(storage)

    def unlock(self, storage: int) -> None:
        super().unlock(storage)
        self.update_state(storage)

    def pin(self, storage: int) -> None:
        fresh = not self.pinned[storage]
        super().pin(storage)
        if fresh:
            self.pins[storage] = self.now
            self.update_state(storage)
            self.row(Kind.PIN, storage, self.resident_bytes)


class ObservedCollecting(Observed, CollectingEngine):
    """Our rules, observed."""


class ObservedBanishing(Observed, BanishingEngine):
    """The first runtime of DTR's simulator, observed."""
