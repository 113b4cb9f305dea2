"""One step with durations, and which tensors the program holds on to when; and the same as an online policy meets it:
ops, values and storages as flat arrays, and events in order.

A *value* is what an op computes and others read: the contents of a storage from one write to the next. Views share
the value of what they view, unless ``schedule`` is told otherwise: then each view is a value of its own that takes no
memory and has to be rederived after an eviction, as in DTR's simulator.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias

from tensortide.errors import GraphError
from tensortide.graph.effects import blind_slots
from tensortide.graph.model import Call, Graph, Op, Phase
from tensortide.graph.unroll import unrolled
from tensortide.memory.accumulate import partial_sums
from tensortide.memory.workspace import Workspace, workspace_bytes
from tensortide.shown import Show

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]


class Event(enum.IntEnum):
    """Event of a recorded step (section 2.1 of the grammar of DTR logs).

    ``COMPUTE``: the op ``index`` runs; each of its outputs is then held once. ``GET``: the tensor ``index`` is held
    once more. ``RELEASE``: once less. ``PIN``: it must be resident from here on.
    """

    COMPUTE = 0
    GET = 1
    RELEASE = 2
    PIN = 3


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A Graph, the duration of each of its ops, and the events of the step in order.

    ``kinds`` (values of Event) and ``indexes`` (of ops for COMPUTE, else of tensors) run in parallel. ``source`` says
    where the durations come from. ``path`` is the file it was read from, if any.
    """

    graph: Graph
    durations_ns: tuple[int, ...]
    kinds: Ints
    indexes: Ints
    source: str = ""
    path: str = ""


NONE = -1
"""No value, or nothing in the Graph."""
_ROOT = "aten.ones_like.default"
"""The op by which ``backward()`` makes the gradient of a loss, before autograd begins."""
CONSTANT = "constant"
"""Tag of calls that stand for what the step was given, which cannot be recomputed."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """Recording compiled by ``schedule``. All arrays are int64; ops, values and storages are numbered anew, in the
    order in which the events create them.

    Per op: ``cost_ns``; ``extra_bytes`` that it takes only while it runs; ``origin``, the op of the Graph (-1: it
    stands for a storage that exists before the step); ``sums``: 1 if it adds a gradient to a sum of which nothing else
    is left (``memory.accumulate.partial_sums``). Op i reads ``inputs[input_ends[i]:input_ends[i + 1]]`` and makes
    the values ``output_ends[i]`` to ``output_ends[i + 1] - 1``. Per value: its ``storage``, the ``nbytes`` that making
    it allocates (0 for a view, and for what is written in place), and the value that it ``replaces`` (-1: none). Per
    storage: ``storage_bytes``, its first value ``root``, ``storage_origin``, the storage of the Graph, ``fixed``: 1
    if it cannot be recomputed, and ``gradient``: 1 if the backward pass makes it, and not the user's own checkpointing.
    Events: ``kinds`` (values of ``Event``) and ``indexes``, of an op or a value.
    """

    graph: Graph
    device: str
    cost_ns: Ints
    extra_bytes: Ints
    origin: Ints
    sums: Ints
    inputs: Ints
    input_ends: Ints
    output_ends: Ints
    storage: Ints
    nbytes: Ints
    replaces: Ints
    storage_bytes: Ints
    root: Ints
    storage_origin: Ints
    fixed: Ints
    gradient: Ints
    kinds: Ints
    indexes: Ints

    @property
    def model_ns(self) -> Annotated[int, Show("without the budget", level=1)]:
        """Sum of the durations of all ops, each once."""
        return int(self.cost_ns.sum())

    @property
    def constant_bytes(self) -> Annotated[int, Show("constants", level=1)]:
        """Bytes of storages that cannot be recomputed."""
        return int(self.storage_bytes[self.fixed.astype(bool)].sum())

    @property
    def op_of(self) -> Ints:
        """For each value the op that makes it."""
        import numpy as np

        return np.repeat(np.arange(len(self.cost_ns)), np.diff(self.output_ends))

    def ops(self) -> Iterator[tuple[list[int], range]]:
        """For each op the values that it reads, and those that it makes."""
        flat, ends = self.inputs.tolist(), itertools.pairwise(self.input_ends.tolist())
        for (start, end), made in zip(ends, itertools.pairwise(self.output_ends.tolist()), strict=True):
            yield flat[start:end], range(*made)


def recorded(graph: Graph, durations_ns: Iterable[int], source: str = "") -> Recording:
    """``graph``, its loops written out, with the duration of each op and without events: they follow from its storages
    (see ``schedule``). Raises GraphError if the durations do not fit."""
    import numpy as np

    graph = unrolled(graph)
    durations = tuple(int(ns) for ns in durations_ns)
    if len(durations) != len(graph):
        raise GraphError(f"{len(durations)} durations do not fit a step of {len(graph)} ops")
    none = np.zeros(0, np.int64)
    return Recording(graph, durations, none, none, source)


def schedule(recording: Recording, *, views: bool = False, workspace: Workspace = True, device: str = "") -> Schedule:
    """``recording`` as flat arrays, counting what is on ``device`` (default: ``Index.main_device``).

    A recording without events gets those of its storages' lifetimes under the rule ``eager``: each is held once from
    the op that allocates it until it dies; what the step leaves behind is pinned at its end. ``views``: each view is a
    value. ``workspace``: ops take, while they run, what their kernels are known to need, or what was measured. Raises
    GraphError for an unknown device, and for an op that writes in place under ``views``, where values never change.
    """
    return _Builder(recording, views, workspace, device).build()


class _Builder:
    """Walks the events of a recording once."""

    def __init__(self, recording: Recording, views: bool, workspace: Workspace, device: str) -> None:
        graph = self.graph = recording.graph
        self.recording, self.views = recording, views
        self.device = graph.index.device(device)
        self.extra = workspace_bytes(graph, self.device, workspace).tolist()
        self.blind = [blind_slots(call) for call in graph.calls]
        self.sums = partial_sums(graph)
        self.owner, self.allocated = graph.index.owner, graph.index.allocated
        self.passing, self.watched = self._statistics()
        self.columns = {field.name: array("q") for field in dataclasses.fields(Schedule)[2:]}
        self.columns["input_ends"].append(0)
        self.columns["output_ends"].append(0)
        self.ours: dict[int, int] = {}
        """Storage of the Graph -> ours."""
        self.newest: dict[int, int] = {}
        """Storage of the Graph -> its newest value."""
        self.viewed: dict[int, int] = {}
        """Under ``views``: tensor of the Graph -> its value."""

    def _statistics(self) -> tuple[set[int], set[int]]:
        """Storages that blind slots update: those that come or go within the step, and those that are also read."""
        if not any(self.blind):
            return set(), set()
        updated: set[int] = set()
        read: set[int] = set()
        for op in self.graph.ops:
            for slot, tensor in enumerate(op.inputs):
                (updated if slot in self.blind[op.call] else read).add(self.owner[tensor])
        storages = self.graph.storages
        return {s for s in updated if (storages[s].birth, storages[s].death) != (None, None)}, updated & read

    def build(self) -> Schedule:
        graph = self.graph
        for index, storage in enumerate(graph.storages):
            if storage.birth is None and storage.death != 0:
                self._run(0, 0, NONE, ())
                self._allocate(index, fixed=True, gradient=False)
                self._done()
                self._event(Event.PIN, self.newest[index])
        if len(self.recording.kinds):
            self._follow_events()
        else:
            self._follow_lifetimes()
        import numpy as np

        return Schedule(graph, self.device, **{n: np.array(column, np.int64) for n, column in self.columns.items()})

    def _follow_events(self) -> None:
        events = list(zip(self.recording.kinds.tolist(), self.recording.indexes.tolist(), strict=True))
        last = {} if self.views else self._last_uses(events)
        late: dict[int, list[int]] = {}
        for at, (kind, index) in enumerate(events):
            if kind == Event.COMPUTE:
                self._compute(index)
            elif kind == Event.RELEASE and last.get(self.owner[index], at) > at:
                late.setdefault(last[self.owner[index]], []).append(index)
            else:
                self._event(Event(kind), self._value_of(index))
            for tensor in late.pop(at, ()):
                self._event(Event.RELEASE, self._value_of(tensor))

    def _last_uses(self, events: list[tuple[int, int]]) -> dict[int, int]:
        """The last event that needs each storage of the Graph: until then it is held, whatever the log releases."""
        last: dict[int, int] = {}
        for at, (kind, index) in enumerate(events):
            if kind == Event.COMPUTE:
                op = self.graph.ops[index]
                last.update((self.owner[tensor], at) for tensor in (*op.inputs, *op.outputs))
            elif kind != Event.RELEASE:
                last[self.owner[index]] = at
        return last

    def _follow_lifetimes(self) -> None:
        for index, released in enumerate(self.graph.index.released):
            for storage in released:
                if storage in self.newest:
                    self._event(Event.RELEASE, self.newest[storage])
            if index < len(self.graph):
                self._compute(index)
        for index, record in enumerate(self.graph.storages):
            if record.birth is not None and record.death is None:
                self._event(Event.PIN, self.newest[index])

    def _compute(self, index: int) -> None:
        """Append op ``index`` of the Graph, its outputs, and what they entail."""
        op = self.graph.ops[index]
        call, blind = self.graph.calls[op.call], self.blind[op.call]
        read = self._reads(op)
        written = dict.fromkeys(self.owner[op.inputs[slot]] for slot in call.mutated if slot not in blind)
        if self.views and written:
            raise GraphError(f"op {index} ({call.op}) writes in place: import the log with copy on write")
        inputs = read if self.views else dict.fromkeys(read)
        self._run(self.recording.durations_ns[index], self.extra[index], index, inputs)
        fresh = set(self.allocated[index])
        backward = op.phase is Phase.BACKWARD and not op.recompute and call.op != _ROOT
        held: list[int] = []
        for tensor in op.outputs:
            storage = self.owner[tensor]
            if storage in fresh:
                self._allocate(storage, self._is_fixed(storage, call), backward)
                fresh.remove(storage)
            elif self.views:
                self._append(storage, 0, NONE)
            elif storage not in written:
                held.append(self.newest[storage])
            self.viewed[tensor] = self.newest[storage]
        for storage in sorted(fresh):
            self._allocate(storage, self._is_fixed(storage, call), backward)
        for storage in written:
            self._append(storage, 0, self.newest[storage])
        self._done()
        for storage in self.allocated[index]:
            elsewhere = self.graph.storages[storage].device != self.device
            if elsewhere or storage in self.passing or storage in self.graph.index.unfilled:
                self._event(Event.PIN, self.newest[storage])
        if len(self.recording.kinds):
            for value in held:
                self._event(Event.GET, value)

    def _reads(self, op: Op) -> list[int]:
        """The values that ``op`` needs. What it updates without needing it changes now for those who read that."""
        blind = self.blind[op.call]
        for storage in dict.fromkeys(self.owner[op.inputs[slot]] for slot in sorted(blind)):
            if storage in self.watched:  # its readers must not be recomputed after the update
                self._run(0, 0, NONE, (self.newest[storage],))
                self._append(storage, 0, self.newest[storage])
                self._done()
        needed = (slot not in blind or self.owner[tensor] in self.passing for slot, tensor in enumerate(op.inputs))
        return [self._value_of(tensor) for tensor in itertools.compress(op.inputs, needed)]

    def _value_of(self, tensor: int) -> int:
        if self.views and tensor in self.viewed:
            return self.viewed[tensor]
        return self.newest[self.owner[tensor]]

    def _is_fixed(self, storage: int, call: Call) -> bool:
        """True if ``storage``, which ``call`` allocates, can never be recomputed."""
        return CONSTANT in call.tags or storage in self.passing or storage in self.graph.index.unfilled

    def _allocate(self, storage: int, fixed: bool, gradient: bool) -> None:
        record = self.graph.storages[storage]
        nbytes = record.nbytes if record.device == self.device else 0
        self.ours[storage] = len(self.columns["root"])
        self._add(storage_bytes=nbytes, root=len(self.columns["storage"]), storage_origin=storage)
        self._add(fixed=fixed, gradient=gradient and not fixed)
        self._append(storage, nbytes, NONE)

    def _append(self, storage: int, nbytes: int, replaces: int) -> None:
        self.newest[storage] = len(self.columns["storage"])
        self._add(storage=self.ours[storage], nbytes=nbytes, replaces=replaces)

    def _run(self, cost_ns: int, extra_bytes: int, origin: int, inputs: Iterable[int]) -> None:
        self._add(cost_ns=cost_ns, extra_bytes=extra_bytes, origin=origin, sums=origin in self.sums)
        self.columns["inputs"].extend(inputs)
        self.columns["input_ends"].append(len(self.columns["inputs"]))

    def _done(self) -> None:
        self.columns["output_ends"].append(len(self.columns["storage"]))
        self._event(Event.COMPUTE, len(self.columns["origin"]) - 1)

    def _event(self, kind: Event, index: int) -> None:
        self.columns["kinds"].append(kind)
        self.columns["indexes"].append(index)

    def _add(self, **entries: int) -> None:
        for name, entry in entries.items():
            self.columns[name].append(entry)
