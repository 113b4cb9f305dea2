"""A Plan played: the Graph of what is really executed, recomputation and all, and its Timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tensortide.errors import GraphError
from tensortide.graph.model import Graph, Op, Storage, Tensor
from tensortide.graph.unroll import unrolled
from tensortide.memory.lifetimes import Residence, residences
from tensortide.plans import Compute, Evict, Plan, validate
from tensortide.timelines.timeline import Playback, StorageTimeline, timeline

if TYPE_CHECKING:
    from tensortide.memory.workspace import Workspace
    from tensortide.timing.machine import Machine


def executed(graph: Graph, plan: Plan) -> Graph:
    """``graph`` as ``plan`` runs it: one op per ``Compute`` step, and storages that live as long as the plan says.

    An op that runs again is marked as recomputation. The first residence of a storage keeps its index and that of its
    tensors; each later one is a storage of its own, after all others. So a plan that is an order only changes the ops'
    places and the storages' births and deaths. Raises PlanError if the plan does not execute the graph. Loops are
    written out first: then indexes are those of ``unrolled(graph)``.
    """
    return _execution(graph, plan)[0]


def replay(
    graph: Graph,
    plan: Plan,
    *,
    durations_ns: Sequence[int] | None = None,
    machine: Machine | None = None,
    workspace: Workspace = True,
) -> StorageTimeline:
    """The Timeline of ``plan``: when each of its steps runs, and the bytes resident on its lane's device meanwhile.

    ``durations_ns``: the time of each op of ``graph``. ``workspace``: the bytes that each takes only while it runs.
    ``machine`` names the lanes that plans may use: the device and, for each link, its two copy engines.
    ``Timeline.graph`` is ``graph`` as ``executed``. Raises PlanError as that does, GraphError if the durations do not
    fit.
    """
    played, playback = _execution(graph, plan)
    if durations_ns is not None and len(durations_ns) != len(playback.recorded):
        raise GraphError(f"{len(durations_ns)} durations for {len(playback.recorded)} ops")
    times = None if durations_ns is None else [durations_ns[op] for op in playback.ops]
    device = plan.lanes[0].device
    lanes = (device,) if machine is None else machine.lanes(device)
    if not isinstance(workspace, bool):
        workspace = [workspace[op] for op in playback.ops]
    return timeline(played, device=device, workspace=workspace, durations_ns=times, playback=playback, lanes=lanes)


def _execution(graph: Graph, plan: Plan) -> tuple[Graph, Playback]:
    graph = unrolled(graph)
    validate(plan, graph)
    execution = _Execution(graph, plan)
    played = execution.play()
    return played, Playback(graph, execution.ran, execution.recomputed, execution.evicted)


class _Execution:
    """Walks the steps of a plan and opens and closes residences of storages."""

    def __init__(self, graph: Graph, plan: Plan) -> None:
        self.graph = graph
        self.steps = plan.lanes[0].steps
        self.facts = graph.index
        self.residences = residences(graph)
        self.ops: list[Op] = []
        self.storages: list[Storage] = [msgspec.structs.replace(s, birth=None, death=None) for s in graph.storages]
        self.tensors: list[Tensor] = list(graph.tensors)
        self.current: dict[int, int] = {i: i for i, storage in enumerate(graph.storages) if storage.birth is None}
        """Resident storage of the graph -> the storage of the result that it is now."""
        self.last: dict[int, int] = {}
        """Storage of the result -> the last op that touched it."""
        self.copies: dict[tuple[int, int], int] = {}
        self.ran: list[int] = []
        self.recomputed: list[bool] = []
        self.evicted: list[tuple[int, int]] = []

    def play(self) -> Graph:
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
        for storage, residence in enumerate(self.residences):
            if storage in self.current and residence in (Residence.LOCAL, Residence.NEVER):
                self._close(storage, self.last.get(self.current[storage], -1) + 1)
        return msgspec.structs.replace(
            self.graph,
            ops=tuple(self.ops),
            storages=tuple(self.storages),
            tensors=tuple(self.tensors),
            composites=None,
        )

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
        """``storage`` is allocated by the op at ``birth``; returns the storage of the result that it is."""
        fresh = msgspec.structs.replace(self.graph.storages[storage], birth=birth, death=death)
        if self.storages[storage].birth is None:
            self.storages[storage] = fresh
            return storage
        self.storages.append(fresh)
        return len(self.storages) - 1

    def _close(self, storage: int, death: int) -> None:
        index = self.current.pop(storage)
        self.storages[index] = msgspec.structs.replace(self.storages[index], death=death)

    def _tensor(self, tensor: int, storage: int) -> int:
        """``tensor`` of the graph in ``storage`` of the result."""
        if self.facts.owner[tensor] == storage:
            return tensor
        copy = self.copies.get((tensor, storage))
        if copy is None:
            copy = self.copies[tensor, storage] = len(self.tensors)
            self.tensors.append(msgspec.structs.replace(self.graph.tensors[tensor], storage=storage))
        return copy
