"""The plain engine, led by the trace of a run and observed: states and uses of storages, event by event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tensortide.errors import PlanError
from tensortide.plans.remat.schedule import Event
from tensortide.replays.remat.collecting import BanishingEngine, CollectingEngine
from tensortide.replays.remat.engine import Engine, Frame
from tensortide.replays.remat.simulation import OutOfMemory, Rules
from tensortide.shown import Show
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensortide.plans.remat.policies import State
    from tensortide.plans.remat.schedule import Schedule
    from tensortide.replays.remat.simulation import Simulation
    from tensortide.replays.remat.simulator import Simulator

_GONE, _EVICTABLE, _LOCKED, _PINNED = range(4)
MOMENTS = (
    *("kind", "index", "for_op", "clock_ns"),
    *("pinned_bytes", "locked_bytes", "evictable_bytes", "total_bytes", "pressure_bytes"),
)
"""Columns of a row per event."""


@dataclass(frozen=True, slots=True)
class Held:
    """A storage that was resident when a run was given up; ``pinned`` (it had to stay) or in use by what waited."""

    storage: int
    nbytes: int
    pinned: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """Point at which a run was given up: ``op`` was to run next, for the sake of op ``goal_op`` (-1: it stands for what
    exists before the step).

    ``waiting`` ops had their inputs, or some, in use meanwhile, the outermost first. ``asked_bytes`` is what it needed
    on top of what was ``held`` (largest first).
    """

    op: int
    goal_op: int
    waiting: Annotated[tuple[int, ...], Show(unit="count", data=True)]
    asked_bytes: int
    held: tuple[Held, ...]


class Marks:
    """First and last moments of values or storages, and how often they were used. Pairs: the first is of the model's
    own execution, the second of recomputation."""

    def __init__(self, count: int) -> None:
        self.birth: list[int | None] = [None] * count
        self.death: list[int | None] = [None] * count
        self.last: tuple[list[int | None], list[int | None]] = ([None] * count, [None] * count)
        self.uses: tuple[list[int], list[int]] = ([0] * count, [0] * count)
        self.pinned: tuple[list[int], list[int]] = ([0] * count, [0] * count)

    def born(self, index: int, event: int) -> None:
        if self.birth[index] is None:
            self.birth[index] = event
        self.death[index] = None

    def use(self, index: int, event: int, model: bool, pinned: bool) -> None:
        which = int(not model)
        self.last[which][index] = event
        self.uses[which][index] += 1
        self.pinned[which][index] += pinned

    def columns(self) -> dict[str, Sequence[int | None]]:
        moments = {"birth": self.birth, "death": self.death}
        last = {"last_model_use": self.last[0], "last_remat_use": self.last[1]}
        return {**moments, **last, "model_uses": self.uses[0], "remat_uses": self.uses[1]}


def observed(simulator: Simulator, simulation: Simulation) -> Observed:
    """Play ``simulation`` of ``simulator`` once more, and observe it. Raises PlanError if it is not one of its runs."""
    kinds = {Engine: Observed, CollectingEngine: ObservedCollecting, BanishingEngine: ObservedBanishing}
    leader = _Leader(simulation)
    engine = kinds[simulator.plain](simulation.schedule, leader, simulation.rules)
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
        self.kinds, self.indexes = list(map(int, simulation.kinds)), list(map(int, simulation.indexes))
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
        self.origin, self.storage_origin = schedule.origin.tolist(), schedule.storage_origin.tolist()
        self.rows: list[tuple[int, ...]] = []
        """The MOMENTS of each event."""
        self.value = Marks(values)
        self.stored = Marks(storages)
        self.direct, self.collateral = [0] * values, [0] * values
        self.evictions, self.forced, self.remats = [0] * storages, [0] * storages, [0] * storages
        self.pins: list[int | None] = [None] * storages
        self.banishings: list[int | None] = [None] * storages
        self.runs, self.recomputations = [0] * len(self.cost_ns), [0] * len(self.cost_ns)
        self.state = [_GONE] * storages
        self.state_bytes = [0, 0, 0, 0]
        """Bytes of the storages in each state."""
        self.goal = 0
        self.asked = 0
        self.stop: Stop | None = None

    # States of storages

    def update_state(self, storage: int, *, leaves: bool = False) -> None:
        """Move ``storage`` to its current state; ``leaves``: it is about to leave memory."""
        state, nbytes = _GONE, self.storage_bytes[storage]
        if self.resident[storage] and not leaves:
            state = _PINNED if self.pinned[storage] else _LOCKED if self.locks[storage] else _EVICTABLE
        self.state_bytes[self.state[storage]] -= nbytes
        self.state_bytes[state] += nbytes
        self.state[storage] = state

    @property
    def now(self) -> int:
        """The number of the next row."""
        return len(self.rows)

    @property
    def resident_bytes(self) -> int:
        """Bytes resident."""
        return sum(self.state_bytes[_EVICTABLE:])

    def row(self, kind: int, index: int, total: int) -> None:
        """Append an event, with ``total`` bytes resident."""
        pinned, evictable = self.state_bytes[_PINNED], self.state_bytes[_EVICTABLE]
        missing = max(0, total + self.asked - self.budget) if self.asked else 0
        bytes_in = (pinned, total - pinned - evictable, evictable, total, missing)
        self.rows.append((kind, index, self.goal, self.clock_ns, *bytes_in))

    # Steps of the engine, observed

    def event(self, kind: int, index: int) -> None:
        if kind == Event.RELEASE and self.rules.deallocation == "ignore":
            return
        if kind == Event.COMPUTE:
            self.goal = index
        super().event(kind, index)

    def make_room(self, nbytes: int, extra_bytes: int = 0) -> None:
        self.asked = nbytes + extra_bytes
        try:
            super().make_room(nbytes, extra_bytes)
        except OutOfMemory:
            self.stop = self.stopped(self.asked)
            raise
        self.asked = 0

    def stopped(self, asked: int) -> Stop:
        there = [s for s, resident in enumerate(self.resident) if resident]
        held = [Held(self.storage_origin[s], self.storage_bytes[s], self.pinned[s]) for s in there]
        held.sort(key=lambda item: -item.nbytes)
        *waiting, last = (self.origin[frame.op] for frame in self.frames)
        return Stop(last, self.origin[self.goal], tuple(waiting), asked, tuple(held))

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

    def define(self, value: int) -> None:
        storage, before, resident = self.storage[value], self.defined[value], self.resident[self.storage[value]]
        super().define(value)
        if before or not self.defined[value]:
            return
        event, frame = self.now - 1, self.frames[-1]
        if not resident:
            self.remats[storage] += self.stored.birth[storage] is not None
            self.stored.born(storage, event)
        if frame.wanted not in (-1, value):
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
        self.update_state(storage, leaves=True)

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
