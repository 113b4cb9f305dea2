"""Matching of the program's ops with those of a Graph: the start of a step, and how far it agrees."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tensortide.graph.model import Graph
from tensortide.recorder.schema import schema_of
from tensortide.recorder.torch_dtypes import torch_dtype
from tensortide.run.block import Block, Recomputable, stored, tensors_of
from tensortide.run.operators import Operator, operator_of
from tensortide.run.sums import SUM, SUM_IN_PLACE, owners
from tensortide.run.tables import NOTHING
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from tensortide.run.runtime import Runtime
    from tensortide.run.transfers import Transfer

LONGEST_START = 8
"""As many ops at the start of a step, at most, have to be recognised before the step counts as begun."""
Form = tuple[torch.dtype, tuple[int, ...]]


class Event(NamedTuple):
    """An event of the engine (``timelines.events.Kind``) of an op or a storage, and the transfer that began with it."""

    kind: int
    what: int
    began_ns: int = 0
    ended_ns: int = 0
    resident_bytes: int = 0
    transfer: Transfer | None = None


@dataclass(eq=False, slots=True)
class Seen:
    """An op of the program: what it is, which storages it had, when it ran, the bytes that were resident before it and
    with its results, and the events since the one before."""

    name: str
    forms: list[Form]
    inputs: list[int]
    before_bytes: int
    events: list[Event] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    made: list[Form] = field(default_factory=list)
    ops: dict[int, tuple[int, Recomputable | None]] = field(default_factory=dict)
    """For each storage the op of the engine that wrote it last."""
    began_ns: int = 0
    ended_ns: int = 0
    resident_bytes: int = 0
    workspace_bytes: int = 0


class Expected:
    """An op of the Graph, and the storages that it reads, returns, and allocates or writes."""

    def __init__(self, graph: Graph, index: int) -> None:
        op = graph.ops[index]
        call = graph.calls[op.call]
        owner = [graph.index.owner[t] for t in op.inputs]
        self.name = call.op
        self.forms, self.inputs = _forms(graph, op.inputs), owner
        self.made, self.outputs = _forms(graph, op.outputs), [graph.index.owner[t] for t in op.outputs]
        self.summed = call.op == str(SUM_IN_PLACE)
        self.writes = list(dict.fromkeys((*graph.index.allocated[index], *(owner[slot] for slot in call.mutated))))


def _forms(graph: Graph, tensors: Sequence[int]) -> list[Form]:
    records = (graph.tensors[t] for t in tensors)
    return [(torch_dtype(record.dtype), tuple(map(int, record.shape))) for record in records]


class StepMatch:
    """Follows the program along ``graph``, step after step: the base of those who want to know.

    A step begins where the first ops of the graph have been recognised, ``LONGEST_START`` of them at most, by their
    names, dtypes and shapes; it continues as long as ops agree in these, and in the storages they work on. Where the
    graph sums gradients in place, which autograd does not while a mode is active, they are summed in place here.
    """

    def __init__(self, runtime: Runtime, graph: Graph, start: int = LONGEST_START) -> None:
        self.runtime = runtime
        self.at = NOTHING
        """The next op of the graph; NOTHING between steps."""
        self.steps = self.left = 0
        """Steps that agreed to their end, and those that did not."""
        self.live: dict[int, int] = {}
        """Storage of the graph -> that of the engine."""
        self.storage_of: dict[int, int] = {}
        """And back, of what the step has made."""
        self.op_of: dict[int, tuple[int, Recomputable | None]] = {}
        """Op of the engine -> op of the graph, and what tells whether the number still means that."""
        self.ran: dict[int, list[tuple[int, Recomputable | None]]] = {}
        """And back; a foreach op is several of the engine."""
        self.graph = graph
        self.expected = [Expected(graph, index) for index in range(len(graph))]
        self._lasting: dict[int, tuple[int, Block | None]] = {}
        """Storages that outlast a step -> those of the engine, whose numbers are used again when they are released."""
        sums = (number for number, op in enumerate(self.expected) if op.summed)
        self._start = max(1, min(start, len(graph), next(sums, start)))
        self._recent: deque[Seen] = deque(maxlen=self._start)
        self._before: list[Event] = []
        self._after: list[Event] = []
        """Events that have not been delivered: before the op at hand ran, and after it."""
        self._base_ns = self._recompute_ns = 0
        runtime.watchers.append(self.around)
        runtime.engine.listeners.append(self._heard)

    # For those who want to know

    def begins(self) -> None:
        """A step has begun; its first ops are taken next."""

    def reaches(self, op: int) -> None:
        """The program is about to run op ``op`` of the graph, or has come to the end of the step."""

    def takes(self, op: int, seen: Seen) -> None:
        """The program ran op ``op`` of the graph."""

    def hears(self, kind: int, index: int, began_ns: int, ended_ns: int, resident_bytes: int) -> None:
        """An event (``timelines.events.Kind``): a storage of the graph went, or an op of it ran again; NOTHING: one
        that it does not have. For the latter, when it began and ended, and the bytes that were resident with it."""

    def moves(self, kind: int, storage: int, transfer: Transfer | None, resident_bytes: int) -> None:
        """A copy or a fetch of a storage of the graph (NOTHING: of another) has begun, with which so many bytes are
        resident. None: what was kept beside the tiers is fetched."""

    def ends(self) -> None:
        """The step agreed to its end."""

    def leaves(self, op: int, expected: str, came: str) -> None:
        """The program left the graph at op ``op``: it ran ``came`` where ``expected`` was due."""

    # Along the program

    def around(
        self, action: Callable[..., Any], operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        runtime = self.runtime
        engine = runtime.engine
        engine.collect()
        if (
            self.at >= 0
            and self.expected[self.at].summed
            and operator.func is SUM
            and owners(runtime, args) == runtime.unshared
        ):
            operator = operator_of(SUM_IN_PLACE)
        schema = schema_of(operator.func)
        tensors = [] if schema.fresh else _own(tensors_of([*args, *kwargs.values()]))  # as the recorder takes them
        forms: list[Form] = [(t.dtype, t.shape) for t in tensors]
        seen = Seen(schema.name, forms, [runtime.storage(t) for t in tensors], engine.memory)
        if self.at >= 0:
            self._deliver()
            if _alike(self.expected[self.at], seen, self.live):
                self.reaches(self.at)
            else:
                self._leave(seen)
        del tensors  # each is a reference
        before_ns = self._base_ns = engine.base_ns
        engine.taken_bytes = 0
        result = action(operator, args, kwargs)
        seen.ended_ns, self._base_ns = runtime.clock(), engine.base_ns
        seen.workspace_bytes = engine.taken_bytes
        seen.resident_bytes = engine.memory + seen.workspace_bytes
        seen.began_ns = seen.ended_ns - (engine.base_ns - before_ns)
        results = _own(tensors_of([result]))
        seen.made = [(t.dtype, t.shape) for t in results]
        seen.outputs = [runtime.storage(t) for t in results]
        for live in (*seen.inputs, *seen.outputs):
            made = engine.op_of[values[-1]] if (values := engine.values[live]) else NOTHING
            seen.ops[live] = made, engine.calls[made] if made != NOTHING else None
        if self.at >= 0 and not _made_alike(self.expected[self.at], seen, self.live):
            self._leave(seen)
        if self.at >= 0:
            self._take(seen)
        else:
            self._wait(seen)
        self._before, self._after = self._after, []
        return result

    def _wait(self, seen: Seen) -> None:
        seen.events = self._before
        self._recent.append(seen)
        if len(self._recent) < self._start or not self._recognised():
            return
        taken = list(self._recent)
        self._recent.clear()
        self.at = 0
        self.live = self._still()
        self.storage_of = {live: s for s, live in self.live.items()}
        self.op_of, self.ran = {}, {}
        self.begins()
        for early in taken:
            self._before = early.events
            self._take(early)

    def _recognised(self) -> bool:
        """True if the latest ops are the first ones of the graph."""
        known = self._still()
        for expected, seen in zip(self.expected, self._recent, strict=False):
            if not (_alike(expected, seen, known) and _made_alike(expected, seen, known)):
                return False
            known.update(zip((*expected.inputs, *expected.outputs), (*seen.inputs, *seen.outputs), strict=True))
        return True

    def _still(self) -> dict[int, int]:
        """Return what outlasted the step before and is there still: a model that was moved has other storages."""
        engine = self.runtime.engine
        there = {s: live for s, (live, block) in self._lasting.items() if engine.memories[live] is block}
        return {s: live for s, live in there.items() if engine.references[live] > 0}

    def _take(self, seen: Seen) -> None:
        self._deliver()
        op = self.at
        expected = self.expected[op]
        pairs = zip((*expected.inputs, *expected.outputs), (*seen.inputs, *seen.outputs), strict=True)
        for storage, live in pairs:
            self.live[storage], self.storage_of[live] = live, storage
        for storage in expected.writes:
            made, call = seen.ops.get(self.live.get(storage, NOTHING), (NOTHING, None))
            if made != NOTHING:
                self.op_of[made] = op, call
                self.ran.setdefault(op, []).append((made, call))
        self.takes(op, seen)
        self.at += 1
        if self.at == len(self.expected):
            self.reaches(self.at)
            self._before, self._after = [*self._before, *self._after], []
            self._deliver()
            self.steps += 1
            memories = self.runtime.engine.memories
            self._lasting = {s: (live, memories[live]) for s, live in self.live.items() if _lasts(self.graph, s)}
            self.at = NOTHING
            self.ends()

    def _leave(self, seen: Seen) -> None:
        op, self.at = self.at, NOTHING
        self.left += 1
        expected = self.expected[op]
        self.leaves(op, _shown(expected.name, expected.forms), _shown(seen.name, seen.forms))

    # Events of the engine

    def _heard(self, kind: int, index: int) -> None:
        engine = self.runtime.engine
        began = ended = resident = 0
        if kind == Kind.RECOMPUTE:
            op = engine.op_of[index]
            index, call = self.op_of.get(op, (NOTHING, None))
            if engine.calls[op] is not call:
                index = NOTHING
            ended = self.runtime.clock()
            began, self._recompute_ns = ended - (engine.recompute_ns - self._recompute_ns), engine.recompute_ns
            resident = engine.memory + engine.totals[op] + engine.extra_bytes[op]
        early = engine.base_ns == self._base_ns  # else the op at hand has run
        event = Event(kind, index, began, ended, resident)
        if kind in (Kind.COPY, Kind.FETCH):
            event = Event(kind, index, resident_bytes=engine.memory, transfer=engine.moved)
        (self._before if early else self._after).append(event)

    def _deliver(self) -> None:
        """Deliver the events so far, in order. The number of a storage that is never resident again may be reused."""
        events, self._before = self._before, []
        for kind, index, *times, transfer in events:
            if kind == Kind.RECOMPUTE:
                self.hears(kind, index, *times)
                continue
            storage = self.storage_of.get(index, NOTHING)
            if kind in (Kind.COPY, Kind.FETCH):
                self.moves(kind, storage, transfer, times[-1])
                continue
            self.hears(kind, storage, *times)
            if kind in (Kind.BANISH, Kind.DEAD) and storage != NOTHING:
                del self.storage_of[index], self.live[storage]


def _own(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """``tensors``, if each has a storage of its own; else none, and the op is like none of a graph."""
    return tensors if list(map(id, stored(tensors))) == list(map(id, tensors)) else []


def _alike(expected: Expected, seen: Seen, known: Mapping[int, int]) -> bool:
    return seen.name == expected.name and seen.forms == expected.forms and _same(expected.inputs, seen.inputs, known)


def _made_alike(expected: Expected, seen: Seen, known: Mapping[int, int]) -> bool:
    return seen.made == expected.made and _same(expected.outputs, seen.outputs, known)


def _same(storages: Sequence[int], live: Sequence[int], known: Mapping[int, int]) -> bool:
    return all(known.get(storage, found) == found for storage, found in zip(storages, live, strict=True))


def _lasts(graph: Graph, storage: int) -> bool:
    record = graph.storages[storage]
    return record.birth is None and record.death is None


def _shown(name: str, forms: list[Form]) -> str:
    return f"{name}({', '.join(f'{str(dtype)[6:]}{list(shape)}' for dtype, shape in forms)})"
