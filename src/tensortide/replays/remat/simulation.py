"""One run of a step under a memory budget: its rules, its outcome and trace, and the Plan that it amounts to."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tensortide.errors import PlanError
from tensortide.memory.lifetimes import Residence, residences
from tensortide.plans import Compute, Copy, Evict, Fetch, Lane, Plan
from tensortide.plans.remat.schedule import NONE, Schedule
from tensortide.replays.executed import replay
from tensortide.shown import Show, Shown
from tensortide.timelines.diff import TimelineFigures
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from numpy.typing import NDArray

    from tensortide.graph.model import Graph
    from tensortide.memory.workspace import Workspace
    from tensortide.plans.model import Step
    from tensortide.timelines import StorageTimeline

    Small: TypeAlias = NDArray[np.signedinteger[Any]]

Deallocation: TypeAlias = Literal["eager", "none", "banish", "ignore"]
Status: TypeAlias = Literal["ok", "oom", "thrash"]
UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules that a step is played by: ``clock_ns`` at its start; ``collect``: free what nothing can need any more;
    ``overrun_bytes``: as far over the budget what ops take only while they run may go at once, and farther where
    nothing is left to evict; None: not at all. For the rest see ``simulator.Simulator``."""

    budget_bytes: int = UNLIMITED
    remat_limit_ns: int = UNLIMITED
    deallocation: Deallocation = "eager"
    clock_ns: int = 0
    collect: bool = True
    exhaustive: bool = False
    overrun_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Shortage:
    """Reason an op could not run: bytes it asks for, bytes resident that cannot be evicted, and the budget."""

    asked_bytes: int
    held_bytes: int
    budget_bytes: int


class Failed(Exception):
    """The run ended early."""

    status: Status
    shortage: Shortage | None = None


class OutOfMemory(Failed):
    """Nothing is left to evict."""

    status = "oom"

    def __init__(self, asked: int, held: int, budget: int) -> None:
        super().__init__()
        self.shortage = Shortage(asked, held, budget)


class Thrashing(Failed):
    """Recomputation exceeded the allowed time."""

    status = "thrash"


class Span(NamedTuple):
    """Op runs from ``start`` to before ``end``, in which a storage is ``computed``, ``recomputed`` or ``resident``."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True, eq=False, kw_only=True)
class RematOutcome:
    """Figures of a run, and its trace: ``kinds`` with an op, value or storage of the Schedule each in ``indexes``.

    ``status``: ``ok``; ``oom``: an op did not fit and nothing was left to evict; ``thrash``: the limit was exceeded.
    ``clock_ns`` is the time of the whole run, ``remat_ns`` that of recomputation. ``shortage``, of a run out of memory:
    the bytes asked for, and those that could not be evicted.
    """

    status: Status
    clock_ns: int
    remat_ns: int
    peak_bytes: Annotated[int, Show("Peak")]
    final_bytes: int
    evaluations: Annotated[int, Show("Search")]
    accesses: int
    shortage: Shortage | None
    kinds: Sequence[int] | Small = field(repr=False)
    indexes: Sequence[int] | Small = field(repr=False)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Simulation(Shown, RematOutcome):
    """Result of playing ``schedule`` with ``policy`` under ``budget_bytes`` (None: no limit).

    The trace has ops run, recomputed, storages evicted and banished, in order. A run that did not end (``status`` is
    ``oom`` or ``thrash``) has the figures of the moment at which it was given up. ``workspace``: kernels' workspace
    was counted; ``rules``: the rules of the run.
    """

    SECTION = "difference"
    schedule: Schedule
    policy: str
    budget_bytes: int | None
    overhead_limit: float | None
    workspace: Workspace
    rules: Rules

    @property
    def model_ns(self) -> int:
        """Time of the step without any recomputation."""
        return self.schedule.model_ns

    @property
    def overhead(self) -> float:
        """Time of the run divided by that of the step without any recomputation."""
        return self.clock_ns / self.model_ns if self.model_ns else 1.0

    @property
    def more_change(self) -> Annotated[float | None, Show("Time")]:
        """Time added, as a part of the step without any recomputation; None for a run that did not end."""
        return self.overhead - 1 if self.status == "ok" else None

    @property
    def outcome(self) -> Annotated[str, Show("RematOutcome")]:
        """``status`` in words."""
        return {"ok": "fits", "oom": "out of memory", "thrash": "over the limit"}[self.status]

    @functools.cached_property
    def counts(self) -> tuple[int, int, int, int]:
        """Ops of the step that ran, values recomputed, storages evicted, and storages banished: how many of each."""
        kinds = np.asarray(self.kinds)
        run, recompute, evict, banish = (int((kinds == int(kind)).sum()) for kind in list(Kind)[:4])
        return run, recompute, evict, banish

    @property
    def evictions(self) -> Annotated[int, Show("Evictions")]:
        return self.counts[Kind.EVICT]

    @property
    def banished(self) -> Annotated[int, Show("for good", level=1, if_any=True)]:
        return self.counts[Kind.BANISH]

    @property
    def recomputations(self) -> int:
        """Executions of ops beyond the first."""
        return self.counts[Kind.RECOMPUTE]

    @property
    def eviction_hash(self) -> str:
        """16 hexadecimal digits, equal if two runs evicted the same storages in the same order: of the SHA-256
        over the number of each one's first value, a comma after each."""
        digest = hashlib.sha256()
        roots = self.schedule.root.tolist()
        for kind, index in self.trace():
            if kind in (Kind.EVICT, Kind.BANISH):
                digest.update(f"{roots[index]},".encode())
        return digest.hexdigest()[:16]

    def trace(self) -> Iterator[tuple[Kind, int]]:
        """The kind of each event, with its op, value or storage of the schedule."""
        return zip(map(Kind, self.kinds), map(int, self.indexes), strict=True)

    def residency(self) -> list[list[Span]]:
        """The op runs during which each storage is computed, recomputed or just resident."""
        schedule, made = self.schedule, [outputs for _, outputs in self.schedule.ops()]
        storage, op_of = schedule.storage.tolist(), schedule.op_of.tolist()
        spans: list[list[Span]] = [[] for _ in schedule.root]
        since, gone, at = dict[int, int](), set[int](), 0
        for kind, index in chain(self.trace(), ((Kind.DEAD, which) for which in range(len(spans)))):
            if kind > Kind.RECOMPUTE:
                if (came := since.pop(index, at)) < at:
                    spans[index].append(Span(came, at, "resident"))
                gone |= {index} if kind != Kind.EVICT else set()
                continue
            op, word = (index, "computed") if kind == Kind.RUN else (op_of[index], "recomputed")
            for which in {storage[value] for value in made[op]} - since.keys() - gone:
                spans[which].append(Span(at, at + 1, word))
                since[which] = at + 1
            at += 1
        return spans

    def plan(self) -> Plan:
        """The run as a Plan of the Graph of the schedule: replayed, it takes the same memory at every op.

        Raises PlanError for a run that did not end.
        """
        if self.status != "ok":
            raise PlanError(f"a run that ended in {self.status} is no plan: give it a larger budget or another policy")
        found = tuple([step for _, step in self._steps()])
        return Plan(self.schedule.graph.index.digest, (Lane(self.schedule.device, found),))

    def _steps(self) -> Iterator[tuple[Kind, Step]]:
        return steps(self.schedule.graph, self._happened(), collect=self.rules.collect)

    def _happened(self) -> Iterator[tuple[Kind, int]]:
        """The trace in ops and storages of the graph."""
        schedule = self.schedule
        origin, storages = schedule.origin.tolist(), schedule.storage_origin.tolist()
        op_of = schedule.op_of.tolist()
        for kind, index in self.trace():
            if kind in (Kind.EVICT, Kind.BANISH, Kind.DEAD):
                yield kind, storages[index]
            elif (op := origin[index if kind == Kind.RUN else op_of[index]]) != NONE:
                yield kind, op

    @property
    def figures(self) -> TimelineFigures:
        """The run in the numbers of a Timeline."""
        return TimelineFigures(self.peak_bytes, self.evictions, self.recomputations, self.model_ns, self.remat_ns)

    def timeline(self) -> StorageTimeline:
        """The Timeline of the run: its Plan, replayed. Raises PlanError for a run that did not end."""
        graph, schedule = self.schedule.graph, self.schedule
        durations = [0] * len(graph)
        for op, ns in zip(schedule.origin.tolist(), schedule.cost_ns.tolist(), strict=True):
            if op != NONE:
                durations[op] = ns
        line = replay(graph, self.plan(), durations_ns=durations, workspace=self.workspace)
        # a Plan evicts what the engine banished too: the kinds are the engine's
        kinds = line.events.kind
        kinds[kinds == Kind.EVICT] = [kind for kind, step in self._steps() if isinstance(step, Evict)]
        return line


def steps(
    graph: Graph,
    happened: Iterable[tuple[Kind, int]],
    *,
    collect: bool = True,
    home: Container[int] = (),
    links: Iterable[str] = (),
) -> Iterator[tuple[Kind, Step]]:
    """The steps of the Plan of ``graph`` that amounts to what ``happened``, each with the kind of its event.

    ``happened``: kinds of events, each with an op or a storage of ``graph``. What the trace does not have, because
    the engine never counted it as resident, is banished. ``collect``: what was banished never comes back. ``home``:
    storages that are elsewhere before it. ``links``: those of the copies and fetches, in their order.
    """
    over = iter(links)
    given = [(i, s) for i, s in enumerate(graph.storages) if s.birth is None and i not in home]
    resident = {i: None for i, s in given if s.death != 0}
    allocated = graph.index.allocated
    dropped: set[int] = set()
    yield from ((Kind.BANISH, Evict(i)) for i, s in enumerate(graph.storages) if s.birth is None and s.death == 0)
    for kind, index in happened:
        if kind in (Kind.EVICT, Kind.BANISH, Kind.DEAD):
            if kind != Kind.EVICT and collect:
                dropped.add(index)
            if kind != Kind.DEAD:
                del resident[index]
                yield kind, Evict(index)
            continue
        if kind == Kind.COPY:
            yield kind, Copy(index, next(over))
            continue
        if kind == Kind.FETCH:
            resident[index] = None
            yield kind, Fetch(index, next(over))
            continue
        yield kind, Compute(index)
        resident.update(dict.fromkeys(s for s in allocated[index] if s not in dropped))
        yield from ((Kind.BANISH, Evict(s)) for s in allocated[index] if s in dropped)
    residence = residences(graph)
    yield from ((Kind.BANISH, Evict(s)) for s in resident if residence[s] in (Residence.LOCAL, Residence.NEVER))
