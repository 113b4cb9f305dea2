"""Decisions of steps that repeat: recorded, and those of the best step followed when its like comes again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tensortide.replays.remat.simulation import UNLIMITED
from tensortide.run.tables import NOTHING

if TYPE_CHECKING:
    from tensortide.run.real_memory import RealMemory

TRIES = 3
"""Steps of one kind that the policy decides, before the best of them is followed."""
CHEAP = 20
"""A step that recomputes less than one of so many parts of its time is good enough."""
AGAIN = (4, 16, 64, 256)
"""So often the best step has been followed when the policy decides once more, unless it is good enough."""
STRAYS = 16
"""As many decisions of a step may not differ from the record: memory beside the step varies by a few bytes."""
MOST = 1 << 16
"""Most decisions that are remembered."""
AHEAD = 16
"""One of so many parts of the budget is evicted at once, where the record evicts it next and nothing uses it before."""
ARGUMENTS_NS = 50_000
"""About the time of putting together the arguments of a recomputed op."""
FINE = 64
"""Two steps may be alike if their least memory agrees to one of so many parts of the budget."""

Beginning: TypeAlias = tuple[Any, ...]
"""What tells kinds of steps apart when their first decision is due."""


class Decision(NamedTuple):
    """An eviction of a step. Ops are counted from the one that made the first eviction necessary."""

    number: int
    """The op that allocated the storage,"""
    place: int
    """its place among the results,"""
    trail: int
    """and what ran up to then (``Counters.trail``)."""
    op: int
    """The op that needed room."""
    idle: int
    """The op from which on nothing used the storage."""


class Best:
    """The decisions of the best step of a kind, and the time that it lost to recomputation."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.lost_ns = self.whole_ns = 0
        self.tries = self.followed = self.left = 0
        """How many steps the policy decided, followed it, and departed from it since one did not."""

    @property
    def cheap(self) -> bool:
        return self.lost_ns * CHEAP <= self.whole_ns

    def take(self, decisions: list[Decision], lost_ns: int, whole_ns: int) -> None:
        self.decisions, self.lost_ns, self.whole_ns = decisions, lost_ns, whole_ns

    def due(self) -> bool:
        """True if the next step of the kind follows it; else the policy decides."""
        if self.followed in AGAIN and not self.cheap:
            self.followed += 1
            return False
        return self.tries >= TRIES


class Repeats:
    """Lets the decisions of ``engine`` be those of the best step seen so far that began like the step at hand.

    A step begins with its first decision after memory has been low: half of what can be evicted was not needed. It is
    recognised by the ops that ran before (``Counters.trail``), the budget, the policy, and the memory at the low.
    The first steps of a kind are decided by the policy; then that is followed which lost least time, as long as the
    program agrees: what is to be evicted is found by the op that made it, its position and the ops before it. Where it
    does not, the policy decides for the rest of the step. How much is evicted is never the record's to say: only what
    goes first. ``watchers``: while ops are watched, the policy decides.
    """

    def __init__(self, engine: RealMemory) -> None:
        self.engine = engine
        self.watchers: Collection[Any] = ()
        self.best: dict[Beginning, Best] = {}
        """The latest kinds of steps, the latest one last."""
        self.followed = self.left = 0
        """Steps that followed the best one to their end, and those that departed from it."""
        self.lost_ns = 0
        """Time of the recomputations of the step at hand."""
        self._kind: Beginning = ()
        """That of the step at hand; () between steps."""
        self._follows: list[Decision] | None = None
        """The record that is followed,"""
        self._at = self._strays = 0
        """its next decision, and how many others were made."""
        self._departed = False
        self._made: list[Decision] | None = None
        """Decisions so far; None: they will not be needed."""
        self._first_op = self._began_ns = self._threshold = 0
        self._ops: list[int] = []
        """Ops that needed room,"""
        self._clocks: list[int] = []
        """and when they did."""

    def choose(self) -> int:
        """The storage to evict next."""
        engine = self.engine
        if self.watchers:
            self._forsake()
            return engine.decide()
        if not self._kind or engine.low < self._threshold:
            self._begin()
        elif self._kind[1] != engine.budget:
            self._forsake()
        if self._made is not None and (not self._ops or self._ops[-1] != engine.ops):
            self._ops.append(engine.ops)
            self._clocks.append(engine.clock_ns)
        found = self._next(engine.ops - self._first_op)
        if found == NOTHING:
            found = engine.decide()
            self._stray()
            self._note(found)
        return found

    def ahead(self) -> None:
        """Evict what the record evicts next anyway, so that the ops to come find room."""
        engine = self.engine
        enough = engine.memory - engine.budget // AHEAD
        while self._follows is not None and engine.memory > enough:
            found = self._next(NOTHING)
            if found == NOTHING:
                break
            engine.evict(found)

    def failed(self) -> None:
        """An op did not fit: what led there is not followed again."""
        if self._follows is not None:
            self.best.pop(self._kind, None)
        self._forsake()

    def _next(self, now: int) -> int:
        """The next storage of the record, if its turn has come: op ``now`` needs room, or nothing uses it any more."""
        engine = self.engine
        while self._follows is not None and self._at < len(self._follows):
            decision = self._follows[self._at]
            number, place, trail, op, idle = decision
            storage = engine.born.get((number + self._first_op, place, trail), NOTHING)
            if storage in engine.pool:
                if op > now and idle > engine.ops - self._first_op:
                    return NOTHING
                self._at += 1
                if self._made is not None:
                    self._made.append(decision)
                return storage
            if op > now:
                return NOTHING
            self._at += 1
            self._stray(STRAYS if storage == NOTHING else 1)  # another op ran
        return NOTHING

    def _stray(self, count: int = 1) -> None:
        """The step differs from the record in ``count`` decisions."""
        self._strays += count
        if self._follows is not None and self._strays >= STRAYS:
            self._follows, self._departed = None, True

    def _note(self, storage: int) -> None:
        """Record the eviction of ``storage``."""
        engine, made = self.engine, self._made
        if made is None:
            return
        birth = engine.births[storage]
        if birth is None or len(made) >= MOST // 4:
            self._made = None
            return
        number, place, trail = birth
        now = engine.ops - self._first_op
        later = bisect_right(self._clocks, engine.last_access_ns[storage])
        idle = self._ops[later] - self._first_op if later < len(self._ops) else now + 1
        made.append(Decision(number - self._first_op, place, trail, now, idle))

    def _forsake(self) -> None:
        """Neither follow nor record the rest of the step."""
        self._follows = self._made = None

    def _begin(self) -> None:
        """End the step before, and begin one."""
        self._end()
        engine = self.engine
        held = engine.memory - sum([engine.storage_bytes[storage] for storage in engine.pool])
        self._threshold = (engine.budget + held) // 2
        low = engine.low * FINE // max(1, engine.budget)
        self._kind = engine.trail, engine.budget, engine.policy.name, low
        engine.low = UNLIMITED
        self._first_op, self._began_ns, self.lost_ns = engine.ops, engine.clock_ns, 0
        self._made, self._ops, self._clocks = [], [], []
        self._at = self._strays = 0
        self._departed = False
        best = self.best.get(self._kind)
        self._follows = best.decisions if best is not None and best.due() else None

    def _end(self) -> None:
        """Remember the step at hand, if it is the best of its kind, or the second in a row to depart from it."""
        best = self.best.pop(self._kind, None)
        self.left += self._departed
        if self._follows is not None:
            self.followed += 1
            if best is not None:
                best.followed, best.left = best.followed + 1, 0
        elif self._departed and best is not None and not best.left:
            best.left = 1
        elif self._made:
            if best is None or self._departed:
                best = Best()
            if not best.tries or self.lost_ns < best.lost_ns:
                best.take(self._made, self.lost_ns, self.engine.clock_ns - self._began_ns)
            best.tries += 1
        if best is None:
            return
        self.best[self._kind] = best
        while sum([len(other.decisions) for other in self.best.values()]) > MOST:
            del self.best[next(iter(self.best))]
