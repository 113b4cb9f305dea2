"""Facts that follow from the parts of a Graph, each derived once: ``graph.index.users[7]``, ``graph.index.digest``."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from tensortide.errors import GraphError
from tensortide.graph.effects import blind_slots, only_allocates, overwritten_slot, runs_once
from tensortide.graph.roles import Role
from tensortide.graph.written_parts import WrittenParts

if TYPE_CHECKING:
    from tensortide.graph.model import Graph, Op

Groups: TypeAlias = tuple[tuple[int, ...], ...]


class Index:
    """The facts about one Graph, which makes it on first use (``Graph.index``); each is computed when it is asked for.

    Indexes are those of the graph's tables. An op *touches* a storage if it allocates it, or if one of its inputs or
    outputs is a view of it. Nothing here depends on a device or on a rule for lifetimes (``memory.lifetimes``).
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @functools.cached_property
    def owner(self) -> tuple[int, ...]:
        """For each tensor the storage that it is a view of."""
        return tuple([tensor.storage for tensor in self._graph.tensors])

    # Storages by op

    @functools.cached_property
    def allocated(self) -> Groups:
        """For each op the storages that it allocates, ascending."""
        births = ((index, storage.birth) for index, storage in enumerate(self._graph.storages))
        return _grouped(births, len(self._graph))

    @functools.cached_property
    def released(self) -> Groups:
        """For each op the storages that the recorded step released right before it, and as a last entry those that it
        released after its last op; ascending."""
        deaths = ((index, storage.death) for index, storage in enumerate(self._graph.storages))
        return _grouped(deaths, len(self._graph) + 1)

    @functools.cached_property
    def reads(self) -> Groups:
        """For each op the storages of its inputs, each once, in the order of the inputs."""
        owner = self.owner.__getitem__
        return tuple([tuple(dict.fromkeys(map(owner, op.inputs))) for op in self._graph.ops])

    @functools.cached_property
    def _blind_slots(self) -> list[frozenset[int]]:
        return [blind_slots(call) for call in self._graph.calls]

    @functools.cached_property
    def blind(self) -> Groups:
        """For each op the storages that it updates through inputs on whose contents no output depends
        (``effects.blind_slots``), ascending."""
        owner, blind = self.owner, self._blind_slots
        return tuple([tuple(sorted({owner[op.inputs[slot]] for slot in blind[op.call]})) for op in self._graph.ops])

    @functools.cached_property
    def needs(self) -> Groups:
        """For each op its ``reads`` without those that it only updates blindly: what its outputs depend on."""
        owner, blind, found = self.owner, self._blind_slots, list(self.reads)
        for index, op in enumerate(self._graph.ops):
            if blind[op.call]:
                needed = [owner[t] for slot, t in enumerate(op.inputs) if slot not in blind[op.call]]
                found[index] = tuple(dict.fromkeys(needed))
        return tuple(found)

    @functools.cached_property
    def writes(self) -> Groups:
        """For each op the storages whose contents it changes or makes, each once: those that it mutates, then those of
        its outputs that it does not read, then any others that it allocates."""
        owner, mutated = self.owner, [call.mutated for call in self._graph.calls]
        found = []
        for op, read, fresh in zip(self._graph.ops, self.reads, self.allocated, strict=True):
            written = dict.fromkeys([owner[op.inputs[slot]] for slot in mutated[op.call]])
            for tensor in op.outputs:
                if owner[tensor] not in read:
                    written[owner[tensor]] = None
            written.update(dict.fromkeys(fresh))
            found.append(tuple(written))
        return tuple(found)

    @functools.cached_property
    def touches(self) -> Groups:
        """For each op the storages that it touches, ascending."""
        return _grouped(((storage, op) for storage, ops in enumerate(self.users) for op in ops), len(self._graph))

    # Ops by storage

    @functools.cached_property
    def users(self) -> Groups:
        """For each storage the ops that touch it, ascending."""
        owner = self.owner
        found: list[dict[int, None]] = [{} if s.birth is None else {s.birth: None} for s in self._graph.storages]
        for index, op in enumerate(self._graph.ops):
            for tensor in op.inputs:
                found[owner[tensor]][index] = None
            for tensor in op.outputs:
                found[owner[tensor]][index] = None
        return tuple(map(tuple, found))

    @functools.cached_property
    def unfilled(self) -> frozenset[int]:
        """Storages that are allocated without contents, and that an op uses before others have overwritten the whole,
        at once or in parts: native code may have written the rest, so they cannot be recomputed."""
        graph, owner = self._graph, self.owner
        waiting: dict[int, WrittenParts] = {}
        found: set[int] = set()
        for index, op in enumerate(graph.ops):
            call = graph.calls[op.call]
            if only_allocates(call):
                for made in (graph.tensors[tensor] for tensor in op.outputs if owner[tensor] in self.allocated[index]):
                    nbytes = int(graph.storages[made.storage].nbytes)
                    waiting[made.storage] = WrittenParts(made.shape, made.strides, made.itemsize, nbytes)
            elif waiting and "view" not in call.tags:
                used = [owner[tensor] for tensor in op.inputs]
                slot = 0 if self._permutes(op) else overwritten_slot(call)
                for storage in waiting.keys() & used:
                    fills = slot is not None and used[slot] == storage and used.count(storage) == 1
                    if slot is None or not fills or not self._writes(op.inputs[slot], waiting[storage]):
                        found.add(storage)
                    elif waiting[storage].missing:
                        continue
                    del waiting[storage]
        return frozenset(found.union(storage for storage, parts in waiting.items() if parts.missing < parts.elements))

    def _writes(self, tensor: int, parts: WrittenParts) -> bool:
        """Note in ``parts`` that ``tensor`` is overwritten. False if it is no part of its own."""
        if self._covers(tensor):
            parts.add_all()
            return True
        view = self._graph.tensors[tensor]
        return parts.add(view.shape, view.strides, view.offset, view.itemsize)

    def _permutes(self, op: Op) -> bool:
        """True if ``op`` writes each element of a tensor of one dimension once, at the indices that a sort returned."""
        call = self._graph.calls[op.call]
        if call.op != "aten.index_put_.default" or dict(call.arguments).get("accumulate") or len(op.inputs) != 3:
            return False
        written, order = (self._graph.tensors[tensor] for tensor in op.inputs[:2])
        return op.inputs[1] in self._orders and len(written.shape) == 1 and written.shape == order.shape

    @functools.cached_property
    def _orders(self) -> frozenset[int]:
        """Indices that sorts of one dimension return, unless an op changes them: each index once."""
        graph, owner = self._graph, self.owner
        changed = {owner[op.inputs[slot]] for op in graph.ops for slot in graph.calls[op.call].mutated}
        sorts = [op for op in graph.ops if graph.calls[op.call].op in ("aten.sort.default", "aten.sort.stable")]
        found = {op.outputs[1] for op in sorts if len(graph.tensors[op.inputs[0]].shape) == 1}
        return frozenset(tensor for tensor in found if owner[tensor] not in changed)

    def _covers(self, tensor: int) -> bool:
        """True if ``tensor`` is all of its storage."""
        view = self._graph.tensors[tensor]
        return view.nbytes == self._graph.storages[view.storage].nbytes and (
            0 not in [step for size, step in zip(view.shape, view.strides, strict=True) if size > 1]
        )

    # Ops by op

    def repeatable(self, op: int) -> bool:
        """Return whether ``op`` may run again: it changes nothing that exists before the step, such as a count of its
        runs, unless blindly (``blind``), and its call may run more than once (``effects.runs_once``)."""
        graph, blind = self._graph, self.blind[op]
        changed = any(graph.storages[s].birth is None and s not in blind for s in self.writes[op])
        return not changed and not runs_once(graph.calls[graph.ops[op].call])

    @functools.cached_property
    def dependencies(self) -> Groups:
        """For each op the ops that it must follow, ascending; enough of them that all others are implied.

        An op follows the op that made each of its input tensors (a view too), and as recorded: the writes of a storage
        come before its later reads, its reads before the later writes, its writes one after the other. The allocation
        of a storage is its first write; one that is written in parts is ordered as a whole. Random ops and collectives
        that write no common storage may change places.
        """
        made: dict[int, int] = {}
        written: dict[int, int] = {}
        read_since: dict[int, list[int]] = {}
        before = []
        for index, (op, read, writes) in enumerate(zip(self._graph.ops, self.reads, self.writes, strict=True)):
            earlier = {made[tensor] for tensor in op.inputs if tensor in made}
            earlier.update([written[storage] for storage in (*read, *writes) if storage in written])
            for storage in writes:
                earlier.update(read_since.pop(storage, ()))
                written[storage] = index
            for storage in read:
                if storage not in writes:
                    read_since.setdefault(storage, []).append(index)
            made.update(dict.fromkeys(op.outputs, index))
            before.append(tuple(sorted(earlier)))
        return tuple(before)

    # The step as a whole

    @functools.cached_property
    def backward_end(self) -> int:
        """The index after the last op of the backward pass, at which the update may begin; 0 if there is none."""
        from tensortide.graph.model import Phase

        return 1 + max((index for index, op in enumerate(self._graph.ops) if op.phase is Phase.BACKWARD), default=-1)

    @functools.cached_property
    def copies(self) -> tuple[int, ...]:
        """For each storage how often one step allocates it: once, or as often as the op that does so runs."""
        graph = self._graph
        if not graph.loops:
            return (1,) * len(graph.storages)
        return tuple(1 if storage.birth is None else graph.trips(storage.birth) for storage in graph.storages)

    @functools.cached_property
    def devices(self) -> Mapping[str, int]:
        """The footprint on each device, the largest first: bytes of all storages, whether or not resident together.
        Tensors on the meta device take none: it comes last, unless the step trains there."""
        sums: dict[str, int] = {}
        trained = {storage.device for storage in self._graph.storages if storage.role is Role.PARAMETER}
        for storage, copies in zip(self._graph.storages, self.copies, strict=True):
            sums[storage.device] = sums.get(storage.device, 0) + int(storage.nbytes) * copies
        return dict(sorted(sums.items(), key=lambda item: (item[0] == "meta" and trained != {"meta"}, -item[1])))

    @property
    def main_device(self) -> str:
        """The device with the largest footprint, of equal ones that of the earliest storage; ``cpu`` for a graph
        without storages. It is the default of every function that takes a device."""
        return next(iter(self.devices), "cpu")

    def device(self, name: str | None) -> str:
        """``name`` (``cuda`` is ``cuda:0``), or the main device if there is none. Raises GraphError if nothing of the
        graph is on it."""
        if not name:
            return self.main_device
        if name not in self.devices and f"{name}:0" in self.devices:
            return f"{name}:0"
        if self.devices and name not in self.devices:
            raise GraphError(f"nothing is on device {name!r}; the graph has {', '.join(self.devices)}")
        return name

    @functools.cached_property
    def digest(self) -> str:
        """Hexadecimal digest of what a Plan refers to: ops, what they touch and write, and the storages."""
        graph = self._graph
        called = [(call.op, call.mutated) for call in graph.calls]
        ops = [(called[op.call], op.inputs, op.outputs) for op in graph.ops]
        storages = [(int(s.nbytes), s.device, s.role, s.birth, s.death) for s in graph.storages]
        return hashlib.sha256(msgspec.json.encode((ops, self.owner, storages))).hexdigest()[:32]


def _grouped(pairs: Iterable[tuple[int, int | None]], count: int) -> Groups:
    """The items of each of ``count`` groups, from pairs of item and group; items of no group are left out."""
    found: list[list[int]] = [[] for _ in range(count)]
    for item, group in pairs:
        if group is not None:
            found[group].append(item)
    return tuple(map(tuple, found))
