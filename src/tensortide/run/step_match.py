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
from tensortide.replays.plan_actions import LONGEST_START
from tensortide.run.block import PENDING, Block, Recomputable, storage_of, tensors_of
from tensortide.run.missed_steps import MissedSteps
from tensortide.run.operators import Operator, operator_of
from tensortide.run.sums import SUM, SUM_IN_PLACE, owners
from tensortide.run.tables import NOTHING
from tensortide.run.unwatched import UnwatchedOps
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from tensortide.run.runtime import Runtime
    from tensortide.run.step_listener import StepListener
    from tensortide.run.transfers import Transfer

Form = tuple[torch.dtype, tuple[int, ...]]
Origin = tuple[int, "Recomputable | None"]
"""An op of the engine, or NOTHING, and what tells whether the number still means that op."""


class Event(NamedTuple):
    """An event of the engine (``timelines.events.Kind``) of an op or a storage, and the transfer that began with it."""

    kind: int
    what: int
    began_ns: int
    ended_ns: int
    resident_bytes: int
    transfer: Transfer | None


@dataclass(eq=False, slots=True)
class Seen:
    """An op of the program: what it is, which storages it had, when it ran, the bytes that were resident before it and
    with its results, and the events since the one before."""

    name: str
    forms: list[Form]
    inputs: list[int]
    before_bytes: int
    events: Sequence[Event] = ()
    outputs: list[int] = field(default_factory=list)
    made: Sequence[Form] = ()
    origins: Mapping[int, Origin] | None = None
    """For each storage the op of the engine that wrote it last; None if none has run since."""
    began_ns: int = 0
    ended_ns: int = 0
    resident_bytes: int = 0
    workspace_bytes: int = 0
    call: tuple[Any, Any] = (None, None)
    """Its function and its Room."""


class Expected:
    """An op of the Graph, and the storages that it reads, returns, and allocates or writes."""

    def __init__(self, graph: Graph, index: int) -> None:
        op = graph.ops[index]
        call = graph.calls[op.call]
        owner = [graph.index.owner[t] for t in op.inputs]
        self.name = call.op
        self.forms, self.inputs = _forms(graph, op.inputs), owner
        self.made, self.outputs = _forms(graph, op.outputs), [graph.index.owner[t] for t in op.outputs]
        self.touched = [*self.inputs, *self.outputs]
        self.summed = call.op == str(SUM_IN_PLACE)
        self.writes = list(dict.fromkeys((*graph.index.allocated[index], *(owner[slot] for slot in call.mutated))))


def _forms(graph: Graph, tensors: Sequence[int]) -> list[Form]:
    records = (graph.tensors[t] for t in tensors)
    return [(torch_dtype(record.dtype), tuple(map(int, record.shape))) for record in records]


class StepMatch:
    """Follows the program along ``graph``, step after step, and tells ``listeners``.

    A step begins where the first ops of the graph have been recognised, ``start`` of them at most, by their names,
    dtypes and shapes; it continues as long as ops agree in these, and in the storages they work on. Where the graph
    sums gradients in place, which autograd does not while a mode is active, they are summed in place here. Ops that no
    listener needs to hear of are left to the compiled core, and compared with the graph afterwards (``unwatched``).
    """

    def __init__(
        self, runtime: Runtime, graph: Graph, listeners: Sequence[StepListener], start: int = LONGEST_START
    ) -> None:
        self.runtime = runtime
        self.at = NOTHING
        """The next op of the graph; NOTHING between steps."""
        self.live: dict[int, int] = {}
        """Storage of the graph -> that of the engine."""
        self.storage_of: dict[int, int] = {}
        """And back, of what the step has made."""
        self.op_of: dict[int, Origin] = {}
        """Op of the engine -> op of the graph, and what tells whether the number still means that."""
        self.ran: dict[int, list[Origin]] = {}
        """And back; a foreach op is several of the engine."""
        self.graph = graph
        self.expected = [Expected(graph, index) for index in range(len(graph))]
        self._lasting: dict[int, tuple[int, Block | None]] = {}
        """Storages that outlast a step -> those of the engine, whose numbers are used again when they are released."""
        self._outlasting = [i for i, s in enumerate(graph.storages) if s.birth is None and s.death is None]
        sums = (number for number, op in enumerate(self.expected) if op.summed)
        self._start = max(1, min(start, len(graph), next(sums, start)))
        self._recent: deque[Seen] = deque(maxlen=self._start)
        self._before: list[Event] = []
        self._after: list[Event] = []
        """Events that have not been delivered: before the op at hand ran, and after it."""
        self._base_ns = self._recompute_ns = 0
        self._unwatched = UnwatchedOps(runtime, self.expected)
        self._missed = MissedSteps(graph, self.expected)
        self._listeners = listeners
        for listener in listeners:
            listener.match = self
        runtime.watchers.append(self.around)
        runtime.engine.listeners.append(self._heard)

    def close(self) -> None:
        """Forget the listeners, which refer to this: the calls known here, and the tensors that they hold, end with it
        rather than with the next collection of garbage."""
        self._listeners = ()

    # Along the program

    def around(
        self, action: Callable[..., Any], operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        runtime = self.runtime
        engine = runtime.engine
        engine.collect()
        if self._unwatched.under_way:
            self._watch()
        expected = self.expected[self.at] if self.at >= 0 else None
        if (
            expected is not None
            and expected.summed
            and operator.func is SUM
            and owners(runtime, args) == runtime.unshared
        ):
            operator = operator_of(SUM_IN_PLACE)
        schema = schema_of(operator.func)
        values = [*args, *kwargs.values()] if kwargs else args
        tensors = [] if schema.fresh else _own(tensors_of(values))  # as the recorder takes them
        seen = Seen(schema.name, [(t.dtype, t.shape) for t in tensors], self._numbers(tensors), engine.memory)
        if expected is not None:
            self._deliver()
            if _alike(expected, seen, self.live):
                for listener in self._listeners:
                    listener.reaches(self.at)
            else:
                self._leave(_shown(seen.name, seen.forms))
                expected = None
        del tensors, values  # each is a reference
        before_ns = self._base_ns = engine.base_ns
        engine.taken_bytes, runtime.room = 0, None
        result = action(operator, args, kwargs)
        seen.ended_ns, self._base_ns = runtime.clock(), engine.base_ns
        seen.workspace_bytes = engine.taken_bytes
        seen.resident_bytes = engine.memory + seen.workspace_bytes
        seen.began_ns = seen.ended_ns - (engine.base_ns - before_ns)
        results = _own(tensors_of((result,)))
        seen.made = [(t.dtype, t.shape) for t in results]
        seen.outputs = self._numbers(results)
        if expected is not None and not _made_alike(expected, seen, self.live):
            self._leave(_shown(seen.name, seen.forms))
            expected = None
        seen.call = operator.func, runtime.room
        (self._wait if expected is None else self._take)(seen)
        self._before, self._after = self._after, []
        if self.at >= 0 and self._unwatched.begin(min([each.unneeded(self.at) for each in self._listeners], default=0)):
            for listener in self._listeners:
                listener.rests()
        return result

    def _watch(self) -> None:
        """Watch again, and take what has run meanwhile."""
        engine, ran = self.runtime.engine, self._unwatched.end()
        self._before, self._after, self._base_ns = [*self._before, *self._after], [], engine.base_ns
        for listener in self._listeners:
            listener.wakes()
        self._deliver()
        if not ran:
            return
        agreed, blocks = self._unwatched.compare(self.at, ran, self.live)
        if agreed < len(ran):
            self.at += agreed
            self._leave(str(ran[agreed][0]))
            ran, blocks = self._unwatched.beginning(ran[agreed:], known := self._still(), self._start)
            if not ran:
                return
            self._begin(known)
        self.runtime.promote()
        for storage, block in blocks.items():
            before = self.live.pop(storage, NOTHING)
            if self.storage_of.get(before) == storage:
                del self.storage_of[before]
            if block.storage != PENDING and engine.memories[block.storage] is block:
                self.live.pop(self.storage_of.get(block.storage, NOTHING), None)  # its number is used again
                self.live[storage], self.storage_of[block.storage] = block.storage, storage
        for op, origin in self._unwatched.origins(self.at, len(ran), blocks):
            self.op_of[origin[0]] = op, origin[1]
            self.ran.setdefault(op, []).append(origin)
        self.at += len(ran)

    def _numbers(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        """The engine's numbers for the storages of ``tensors``."""
        runtime, known, found = self.runtime, self.runtime.known, []
        for tensor in tensors:
            value = known.get(storage_of(tensor)._cdata)
            number = PENDING if value is None else value.block.storage
            found.append(runtime.storage(tensor) if number == PENDING else number)
        return found

    def _origin(self, live: int) -> Origin:
        engine = self.runtime.engine
        made = engine.op_of[values[-1]] if (values := engine.values[live]) else NOTHING
        return made, engine.calls[made] if made != NOTHING else None

    def _wait(self, seen: Seen) -> None:
        seen.events = self._before
        seen.origins = {live: self._origin(live) for live in (*seen.inputs, *seen.outputs)}
        self._recent.append(seen)
        if len(self._recent) < self._start or not self._recognised():
            if self._missed.ends(seen):
                first = self.expected[0]
                for listener in self._listeners:
                    listener.leaves(0, _shown(first.name, first.forms), "a step that begins otherwise")
            return
        taken = list(self._recent)
        self._recent.clear()
        self._begin(self._still())
        for early in taken:
            self._before = list(early.events)
            self._take(early)

    def _begin(self, known: dict[int, int]) -> None:
        """Begin a step; ``known``: what is there of the one before."""
        self.at, self.live = 0, known
        self._missed.begin()
        self.storage_of = {live: s for s, live in known.items()}
        self.op_of, self.ran = {}, {}
        for listener in self._listeners:
            listener.begins()

    def _recognised(self) -> bool:
        """True if the latest ops are the first ones of the graph."""
        if self._recent[0].name != self.expected[0].name:
            return False
        known = self._still()
        for expected, seen in zip(self.expected, self._recent, strict=False):
            if not (_alike(expected, seen, known) and _made_alike(expected, seen, known)):
                return False
            known.update(zip(expected.touched, (*seen.inputs, *seen.outputs), strict=True))
        return True

    def _still(self) -> dict[int, int]:
        """Return what outlasted the step before and is there still: a model that was moved has other storages."""
        engine = self.runtime.engine
        there = {s: live for s, (live, block) in self._lasting.items() if engine.memories[live] is block}
        return {s: live for s, live in there.items() if engine.references[live] > 0}

    def _take(self, seen: Seen) -> None:
        self._deliver()
        op, lives = self.at, self.live
        expected = self.expected[op]
        self._unwatched.see(op, seen.call)
        for storage, live in zip(expected.touched, (*seen.inputs, *seen.outputs), strict=True):
            lives[storage], self.storage_of[live] = live, storage
        for storage in expected.writes:
            live = lives.get(storage, NOTHING)
            if live == NOTHING:
                continue
            made, call = self._origin(live) if seen.origins is None else seen.origins.get(live, (NOTHING, None))
            if made != NOTHING:
                self.op_of[made] = op, call
                self.ran.setdefault(op, []).append((made, call))
        for listener in self._listeners:
            listener.takes(op, seen)
        self.at += 1
        if self.at == len(self.expected):
            self._end()

    def _end(self) -> None:
        self._before, self._after = self._after, []
        for listener in self._listeners:
            listener.reaches(self.at)
        self._deliver()
        memories, lives = self.runtime.engine.memories, self.live
        self._lasting = {s: (lives[s], memories[lives[s]]) for s in self._outlasting if s in lives}
        self.at = NOTHING
        for listener in self._listeners:
            listener.ends()

    def _leave(self, came: str) -> None:
        op, self.at = self.at, NOTHING
        self._missed.leave()
        expected = self.expected[op]
        for listener in self._listeners:
            listener.leaves(op, _shown(expected.name, expected.forms), came)

    # Events of the engine

    def _heard(self, kind: int, index: int) -> None:
        engine = self.runtime.engine
        began = ended = resident = 0
        transfer = None
        if kind == Kind.RECOMPUTE:
            op = engine.op_of[index]
            index, call = self.op_of.get(op, (NOTHING, None))
            if engine.calls[op] is not call:
                index = NOTHING
            ended = self.runtime.clock()
            began, self._recompute_ns = ended - (engine.recompute_ns - self._recompute_ns), engine.recompute_ns
            resident = engine.memory + engine.totals[op] + engine.extra_bytes[op]
        elif kind in (Kind.COPY, Kind.FETCH):
            resident, transfer = engine.memory, engine.moved
        early = engine.base_ns == self._base_ns  # else the op at hand has run
        (self._before if early else self._after).append(Event(kind, index, began, ended, resident, transfer))

    def _deliver(self) -> None:
        """Deliver the events so far, in order. The number of a storage that is never resident again may be reused."""
        if not self._before:
            return
        events, self._before = self._before, []
        for kind, index, began, ended, resident, transfer in events:
            storage = index if kind == Kind.RECOMPUTE else self.storage_of.get(index, NOTHING)
            for listener in self._listeners:
                if kind in (Kind.COPY, Kind.FETCH):
                    listener.moves(kind, storage, transfer, resident)
                else:
                    listener.hears(kind, storage, began, ended, resident)
            if kind in (Kind.BANISH, Kind.DEAD) and storage != NOTHING:
                del self.storage_of[index], self.live[storage]


def _own(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """``tensors``, if each has a storage of its own; else none, and the op is like none of a graph."""
    for tensor in tensors:
        if tensor.layout is not torch.strided or tensor._is_zerotensor():
            return []
    return tensors


def _alike(expected: Expected, seen: Seen, known: Mapping[int, int]) -> bool:
    return seen.name == expected.name and seen.forms == expected.forms and _same(expected.inputs, seen.inputs, known)


def _made_alike(expected: Expected, seen: Seen, known: Mapping[int, int]) -> bool:
    return seen.made == expected.made and _same(expected.outputs, seen.outputs, known)


def _same(storages: list[int], live: list[int], known: Mapping[int, int]) -> bool:
    return list(map(known.get, storages, live)) == live


def _shown(name: str, forms: list[Form]) -> str:
    return f"{name}({', '.join(f'{str(dtype)[6:]}{list(shape)}' for dtype, shape in forms)})"
