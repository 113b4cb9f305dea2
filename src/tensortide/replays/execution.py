"""The steps of a plan, walked: the Graph of what is really executed, and the residences of storages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tensortide.graph.model import Graph, Op, Storage, Tensor
from tensortide.memory.lifetimes import Residence, residences
from tensortide.plans import Compute, Evict, Fetch
from tensortide.plans.instance import DEVICE
from tensortide.plans.model import Step
from tensortide.timelines.timeline import Playback


class Execution:
    """Walks the steps of a plan that executes ``graph`` and opens and closes residences of storages on the device."""

    def __init__(self, graph: Graph, steps: Sequence[Step], home: Mapping[int, str]) -> None:
        self.graph = graph
        self.steps = steps
        self.last_op = sum(isinstance(step, Compute) for step in steps) - 1
        self.facts = graph.index
        self.residences = residences(graph)
        self.ops: list[Op] = []
        self.storages: list[Storage] = [msgspec.structs.replace(s, birth=None, death=None) for s in graph.storages]
        self.tensors: list[Tensor] = list(graph.tensors)
        self.current: dict[int, int] = {
            i: i for i, storage in enumerate(graph.storages) if storage.birth is None and home.get(i, DEVICE) == DEVICE
        }
        """Resident storage of the graph -> the storage of the result that it is now."""
        self.opened = {*self.current}
        self.last: dict[int, int] = {}
        """Storage of the result -> the last op that touched it."""
        self.copies: dict[tuple[int, int], int] = {}
        self.ran: list[int] = []
        self.recomputed: list[bool] = []
        self.evicted: list[tuple[int, int]] = []

    def play(self) -> tuple[Graph, Playback]:
        """The Graph that is executed, and which of its ops and evictions are which of the recorded step."""
        done: set[int] = set()
        for step in self.steps:
            if isinstance(step, Compute):
                self._run(step.op, recompute=step.op in done)
                self.ran.append(step.op)
                self.recomputed.append(step.op in done)
                done.add(step.op)
            elif isinstance(step, Evict):
                self._close(step.storage, len(self.ops))
                self.evicted.append((len(self.ops), step.storage))
            elif isinstance(step, Fetch):
                self.current[step.storage] = self._open(step.storage, max(0, min(len(self.ops), self.last_op)))
        for storage, residence in enumerate(self.residences):
            if storage in self.current and residence in (Residence.LOCAL, Residence.NEVER):
                self._close(storage, self.last.get(self.current[storage], -1) + 1)
        for storage, given in enumerate(self.graph.storages):
            if given.birth is None and storage not in self.opened:
                self.storages[storage] = msgspec.structs.replace(self.storages[storage], death=0)
        played = msgspec.structs.replace(
            self.graph,
            ops=tuple(self.ops),
            storages=tuple(self.storages),
            tensors=tuple(self.tensors),
            composites=None,
        )
        return played, Playback(self.graph, self.ran, self.recomputed, self.evicted)

    def _run(self, index: int, recompute: bool) -> None:
        op, position = self.graph.ops[index], len(self.ops)
        spare: dict[int, int] = {}
        for storage in self.facts.allocated[index]:
            if storage in self.current:  # an output that is still there: the new copy of it is dropped at once
                spare[storage] = self._open(storage, position, position + 1)
            else:
                self.current[storage] = self._open(storage, position)
        for storage in self.facts.touches[index]:
            self.last[self.current[storage]] = position
        inputs = tuple(self._tensor(t, self.current[self.facts.owner[t]]) for t in op.inputs)
        targets = {**self.current, **spare} if spare else self.current
        outputs = tuple(self._tensor(t, targets[self.facts.owner[t]]) for t in op.outputs)
        self.ops.append(
            msgspec.structs.replace(op, inputs=inputs, outputs=outputs, recompute=recompute or op.recompute)
        )

    def _open(self, storage: int, birth: int, death: int | None = None) -> int:
        """``storage`` is resident from the op at ``birth`` on; returns the storage of the result that it is."""
        fresh = msgspec.structs.replace(self.graph.storages[storage], birth=birth, death=death)
        if storage not in self.opened:
            self.opened.add(storage)
            self.storages[storage] = fresh
            return storage
        self.storages.append(fresh)
        return len(self.storages) - 1

    def _close(self, storage: int, death: int) -> None:
        index = self.current.pop(storage)
        birth = self.storages[index].birth
        least = 0 if birth is None else birth + 1
        self.storages[index] = msgspec.structs.replace(self.storages[index], death=max(death, least))

    def _tensor(self, tensor: int, storage: int) -> int:
        """``tensor`` of the graph in ``storage`` of the result."""
        if self.facts.owner[tensor] == storage:
            return tensor
        copy = self.copies.get((tensor, storage))
        if copy is None:
            copy = self.copies[tensor, storage] = len(self.tensors)
            self.tensors.append(msgspec.structs.replace(self.graph.tensors[tensor], storage=storage))
        return copy
