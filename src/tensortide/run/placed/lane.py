"""One lane of a placed Plan, run in its own process: ops, sends and receives, over ``torch.distributed``."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from tensortide.errors import PlanError, RunError
from tensortide.graph.communication import moves_data
from tensortide.graph.effects import draws_random
from tensortide.graph.model import Graph, Role
from tensortide.memory.lifetimes import Residence, residences
from tensortide.parallelism.shards import Piece
from tensortide.placements.graphs.replicas import Groups
from tensortide.placements.graphs.values import GIVEN, Value, values_of
from tensortide.plans.lanes import check_lanes
from tensortide.plans.model import Compute, Evict, Plan, Receive, Send, Step
from tensortide.recorder.execute import function
from tensortide.run.generated.step import check_straight
from tensortide.run.placed.groups import Averages
from tensortide.run.placed.live_storages import LiveStorages, given_pieces, given_tensors, part_of
from tensortide.run.placed.means import local_means


class Span(NamedTuple):
    """A step of the lane as it ran: its place in the lane, its start and end in nanoseconds since the lane began."""

    step: int
    start_ns: int
    end_ns: int


class LaneProgram:
    """Call it to run the lane number ``rank`` of ``plan`` once, in the process of that rank of a group of as many; of
    several ``groups``, the lane of that rank among all. Each has its part of the inputs.

    ``step`` is the user's, as it was captured; ``graph`` the placed graph (``Ready.graph``), ``pieces`` those of its
    shards (``Ready.sharded.pieces``). The lane updates the parameters, buffers and optimizer state that are at home on
    it, in place, without autograd; other processes have the rest. It returns the outputs of the step that are made
    here: a dict from the number of a storage of ``graph``, in ascending order, to the tensor that views it last.
    ``graph.storages[number].name`` says which output it is, ``output`` or ``output[i]``; several micro-batches have one
    of each, in their order. After a call, ``sent_bytes`` has the bytes sent to each other lane of its group,
    ``averages`` those of gradients over all groups, ``free_sends`` the number of values that the plan counts as free,
    ``spans`` the times since ``began_ns`` of the monotonic clock.

    Results are those of one process, bit for bit, if ops that draw random numbers are on one lane and its generator is
    as that of the one process. Numbers such as learning rates are those of the capture.

    Raises PlanError if the plan does not execute the graph, and RunError for a step that reads values of tensors, whose
    random ops are on several lanes, whose tensors are not found, or that exchanges gradients with groups not given.
    """

    def __init__(
        self,
        step: Callable[[], Any],
        graph: Graph,
        plan: Plan,
        rank: int,
        pieces: Mapping[tuple[str, Role], Piece] = MappingProxyType({}),
        groups: Groups = Groups(),  # noqa: B008  # frozen
    ) -> None:
        if not 0 <= rank < len(plan.lanes) * groups.count:
            raise PlanError(f"lane {rank} of {len(plan.lanes) * groups.count}")
        check_straight(graph)
        home = check_lanes(plan, graph).home
        _check_random(graph, plan)
        self.group, rank = divmod(rank, len(plan.lanes))
        if groups.count == 1 and any(moves_data(call.op) for call in graph.calls):
            raise RunError("the step exchanges gradients with other groups: say which (groups)")
        self.averages = Averages(graph, groups, self.group * len(plan.lanes) + rank)
        self._first = self.group * len(plan.lanes)
        graph = local_means(graph, groups.count)
        self.graph, self.rank, self.steps = graph, rank, plan.lanes[rank].steps
        parts = given_pieces(graph, step, pieces)
        self._pieces = {s: part for s, part in parts.items() if home.get(s) == rank}
        self._given = {s: t for s, t in given_tensors(graph, step, parts).items() if home.get(s) == rank}
        if groups.count > 1:
            inputs = [s for s in self._given if graph.storages[s].role is Role.INPUT]
            self._given |= {s: part_of(graph, s, self._given[s], self.group) for s in inputs}
        self._given |= {s: part.clone(memory_format=torch.contiguous_format) for s, part in self._pieces.items()}
        found = values_of(graph)
        self._values = {(value.storage, value.writer): value for value in found.values}
        self._outputs = [s for s, held in enumerate(graph.storages) if held.role is Role.OUTPUT and home.get(s) == rank]
        self._views = {graph.tensors[t].storage: t for op in graph.ops for t in op.outputs}
        self._incoming = _incoming(graph, plan, rank)
        self._last = self._last_uses()
        collectives = [op.index for op in graph if moves_data(op.name)]
        self._update = max(collectives, default=len(graph)) + 1
        self._functions = [None if moves_data(call.op) else function(call) for call in graph.calls]
        self.sent_bytes: dict[int, int] = {}
        self.free_sends = 0
        self.began_ns = 0
        self.spans: list[Span] = []

    @property
    def written(self) -> dict[int, torch.Tensor]:
        """The tensors that exist before the step and are updated here, by storage."""
        return written(self.graph, self._given)

    def _last_uses(self) -> dict[int, list[int]]:
        """Storages that are dropped after each step of the lane: those that the step does not leave behind."""
        last: dict[int, int] = {}
        for number, step in enumerate(self.steps):
            used = self.graph.index.touches[step.op] if isinstance(step, Compute) else (step.storage,)
            last.update(dict.fromkeys(used, number))
        kept = {s for s, residence in enumerate(residences(self.graph)) if residence is not Residence.LOCAL}
        found: defaultdict[int, list[int]] = defaultdict(list)
        for storage, number in last.items():
            if storage not in self._outputs and not (storage in kept and storage in self._given):
                found[number].append(storage)
        return found

    @torch.no_grad()
    def __call__(self) -> dict[int, torch.Tensor]:
        storages = LiveStorages(self.graph)
        for storage, tensor in self._given.items():
            storages.put(storage, tensor.untyped_storage())
        self.sent_bytes, self.free_sends, self.spans = defaultdict(int), 0, []
        leaving: defaultdict[int, list[Any]] = defaultdict(list)
        state = dict.fromkeys(self._given, GIVEN)
        incoming = iter(self._incoming)
        self.averages.begin()
        begin = self.began_ns = time.monotonic_ns()
        for number, step in enumerate(self.steps):
            self._wait_for(step, leaving)
            start = time.monotonic_ns()
            if isinstance(step, Compute):
                self._compute(storages, step.op)
                state.update(dict.fromkeys(self.graph.index.writes[step.op], step.op))
            elif isinstance(step, Send):
                value = self._values[step.storage, state[step.storage]]
                leaving[step.storage].append(self._send(storages, value, step.lane))
            elif isinstance(step, Receive):
                self._receive(storages, self._values[step.storage, next(incoming)], step.lane)
            self._drop(storages, number, step)
            self.spans.append(Span(number, start - begin, time.monotonic_ns() - begin))
        self.averages.finish()
        for handles in leaving.values():
            _wait(handles)
        for storage, part in self._pieces.items():
            part.copy_(self._given[storage])
        return {storage: storages.view(self._views[storage]).clone() for storage in self._outputs}

    def _compute(self, storages: LiveStorages, op: int) -> None:
        """Run an op; an all-reduce of gradients leaves."""
        run = self._functions[self.graph.ops[op].call]
        if run is not None:
            storages.run(self.graph[op], run)
        else:
            self.averages.reach(op, storages)

    def _wait_for(self, step: Step, leaving: dict[int, list[Any]]) -> None:
        """Wait for sends of what an op writes, and for gradients that other groups average: the update waits for all,
        other ops and sends for those that they use."""
        used: Sequence[int] = (step.storage,) if isinstance(step, Send) else ()
        if isinstance(step, Compute):
            for storage in self.graph.index.writes[step.op]:
                _wait(leaving.pop(storage, []))
            if self._functions[self.graph.ops[step.op].call] is not None:
                used = self.graph.index.touches[step.op]
        if isinstance(step, Compute) and step.op >= self._update:
            self.averages.finish()
        self.averages.wait(used)

    def _send(self, storages: LiveStorages, value: Value, lane: int) -> Any:
        nbytes = _message_bytes(self.graph, value)
        if value.free:
            self.free_sends += 1
        else:
            self.sent_bytes[lane] += nbytes
        return (
            dist.isend(storages.bytes_of(value.storage, value.low, nbytes), self._first + lane, tag=value.storage)
            if nbytes
            else None
        )

    def _receive(self, storages: LiveStorages, value: Value, lane: int) -> None:
        nbytes = _message_bytes(self.graph, value)
        storages.make(value.storage, value.low + nbytes)
        if nbytes:
            dist.recv(storages.bytes_of(value.storage, value.low, nbytes), self._first + lane, tag=value.storage)

    def _drop(self, storages: LiveStorages, number: int, step: Step) -> None:
        if isinstance(step, Evict):
            storages.drop(step.storage)
        for storage in self._last.get(number, ()):
            storages.drop(storage)


def written(graph: Graph, given: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Select from ``given`` tensors, by storage, those that an op of ``graph`` writes."""
    changed = {storage for op in range(len(graph)) for storage in graph.index.writes[op]}
    return {storage: tensor for storage, tensor in given.items() if storage in changed}


def planned_bytes(graph: Graph, plan: Plan) -> dict[tuple[int, int], int]:
    """The bytes that each lane of ``plan`` sends to each other one, by source and target."""
    values = {(value.storage, value.writer): value for value in values_of(graph).values}
    found: defaultdict[tuple[int, int], int] = defaultdict(int)
    for source, step, writer in _sends(graph, plan):
        value = values[step.storage, writer]
        found[source, step.lane] += 0 if value.free else value.nbytes
    return dict(found)


def _sends(graph: Graph, plan: Plan) -> Iterator[tuple[int, Send, int]]:
    """Yield the sends of each lane in their order: the lane, the step, and the op that last wrote what is sent."""
    for source, lane in enumerate(plan.lanes):
        state: dict[int, int] = {}
        for step in lane.steps:
            if isinstance(step, Compute):
                state.update(dict.fromkeys(graph.index.writes[step.op], step.op))
            elif isinstance(step, Send):
                yield source, step, state.get(step.storage, GIVEN)


def _message_bytes(graph: Graph, value: Value) -> int:
    """Bytes of the message of a value; a constant that counts as free is sent, too."""
    return int(graph.storages[value.storage].nbytes) if value.free else value.nbytes


def _wait(handles: list[Any]) -> None:
    for handle in handles:
        if handle is not None:
            handle.wait()


def _incoming(graph: Graph, plan: Plan, rank: int) -> list[int]:
    """For each receive of a lane the op that last wrote what comes: sends of a lane go out in order."""
    queued: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for source, step, writer in _sends(graph, plan):
        if step.lane == rank:
            queued[source, step.storage].append(writer)
    return [queued[step.lane, step.storage].pop(0) for step in plan.lanes[rank].steps if isinstance(step, Receive)]


def _check_random(graph: Graph, plan: Plan) -> None:
    """Raise RunError if ops of several lanes draw random numbers, or of one in another order than recorded: one process
    draws them all from one generator, in the order of the graph."""
    drawing: defaultdict[int, list[int]] = defaultdict(list)
    for number, lane in enumerate(plan.lanes):
        for step in lane.steps:
            if isinstance(step, Compute) and draws_random(graph[step.op].call):
                drawing[number].append(step.op)
    for number, ops in drawing.items():
        if late := next((op for op, after in itertools.pairwise(ops) if after < op), None):
            raise RunError(
                f"op {late} ({graph[late].name}) of lane {number} draws random numbers before an earlier op does, and "
                "so others than one process does: keep the recorded order (priority recorded)"
            )
    if len(drawing) > 1:
        raise RunError(
            f"ops of lanes {', '.join(map(str, sorted(drawing)))} draw random numbers, in another order than one "
            "process does: place them together (keep_random)"
        )
