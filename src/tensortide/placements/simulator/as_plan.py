"""A simulated run as the rest of the package sees one: a Graph of the net's step, and a Timeline for each device."""

from __future__ import annotations

import functools
import math

import numpy as np

from tensortide.graph.model import TENSOR, Call, Graph, Meta, Op, Phase, Role, Storage, Tensor
from tensortide.placements.arrays import Ints
from tensortide.placements.op_times.times import DTYPES
from tensortide.placements.simulator.kernel import HOP, OP, TRANSFER, WAKEUP
from tensortide.placements.simulator.simulation import Simulation
from tensortide.plans.model import Compute, Lane, Plan, Receive, Send, Step
from tensortide.timelines import Timeline
from tensortide.timelines.events import Events, Kind

_OVERLOADS = {Phase.FORWARD: "default", Phase.BACKWARD: "backward", Phase.OPTIMIZER: "update"}


def graph_of(simulation: Simulation) -> Graph:
    """Make the Graph of one batch: forward parts in topological order, backward parts in reverse, updates of weights.

    Op i is part i of the layers in topological order; a backward part is ``2 n - 1 - i``; updates follow, of the layers
    that have weights, in topological order. Storages are the weights, the output of each layer, and the gradient of
    each edge, each on the device of the op that makes it.
    """
    return _GraphOf(simulation).graph


class _GraphOf:
    """The Graph, and the storages that transfers carry."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation, self.net = simulation, simulation.net
        settings = simulation.settings
        self.layers = self.net.layers(settings.batch_size)
        self.dtype = DTYPES[settings.dtype]
        self.calls: dict[Call, int] = {}
        self.ops: list[Op] = []
        self.tensors: list[Tensor] = []
        self.storages: list[Storage] = []
        self.outputs: list[int] = []
        self.gradients: dict[tuple[int, int], int] = {}
        self.updates: dict[int, int] = {}
        """The op that updates the weights of each layer."""
        self.graph = self._build()

    def _build(self) -> Graph:
        count, backward = len(self.layers), self.simulation.settings.include_backward
        last = 2 * count - 1 if backward else count - 1
        weights = [self._storage(i, layer.params, Role.PARAMETER, None, None) for i, layer in enumerate(self.layers)]
        for i, layer in enumerate(self.layers):
            readers = [last - child if backward else child for child in self.net.children[i]]
            role = Role.ACTIVATION if readers else Role.OUTPUT
            self.outputs.append(
                self._storage(i, math.prod(layer.output), role, i, max(readers) + 1 if readers else None)
            )
            held = (weights[i],) if layer.params else ()
            self._op(i, (*(self.outputs[parent] for parent in self.net.parents[i]), *held), (self.outputs[i],))
        for i in reversed(range(count)) if backward else ():
            parents = self.net.parents[i]
            for parent in parents:
                elements = math.prod(self.layers[parent].output)
                made = self._storage(i, elements, Role.GRADIENT, last - i, last - parent + 1)
                self.gradients[i, parent] = made
            read = [self.outputs[parent] for parent in parents]
            read += [self.gradients[child, i] for child in self.net.children[i]]
            held = (weights[i],) if self.layers[i].params else ()
            made_here = tuple(self.gradients[i, parent] for parent in parents)
            self._op(i, (*read, *held), made_here, Phase.BACKWARD)
        for i in range(count) if self.simulation.tables.parts > 2 * count else ():
            if self.layers[i].params:
                self.updates[i] = len(self.ops)
                self._op(i, (weights[i],), (weights[i],), Phase.OPTIMIZER)
        meta = Meta(workload=self.net.name, framework="net spec", captured_on="description")
        return Graph(tuple(self.ops), tuple(self.calls), tuple(self.tensors), tuple(self.storages), meta=meta)

    def op_of(self, part: int) -> int:
        """The op of a part."""
        count = len(self.layers)
        if part >= 2 * count:
            return self.updates[part - 2 * count]
        return part if part < count else 3 * count - 1 - part

    def sent(self, part: int, target: int) -> list[int]:
        """Storages that a transfer carries to a device: an output, or the gradients towards each parent there."""
        count, place = len(self.layers), self.simulation.placement
        if part < count:
            return [self.tensors[self.outputs[part]].storage]
        layer = part - count
        parents = [parent for parent in self.net.parents[layer] if place[parent] == target]
        return [self.tensors[self.gradients[layer, parent]].storage for parent in parents]

    def _storage(self, layer: int, elements: int, role: Role, birth: int | None, death: int | None) -> int:
        device = self.simulation.lanes[self.simulation.placement[layer]]
        name = self.net.order[layer]
        tensor = Tensor(len(self.storages), self.dtype, (elements,), (1,))
        self.storages.append(Storage(tensor.nbytes, device, role, birth, death, name))
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def _op(self, layer: int, inputs: tuple[int, ...], outputs: tuple[int, ...], phase: Phase = Phase.FORWARD) -> None:
        name = f"net.{self.layers[layer].kind}.{_OVERLOADS[phase]}"
        holes = tuple((f"x{i}", TENSOR) for i in range(len(inputs)))
        mutated = (0,) if phase is Phase.OPTIMIZER else ()
        call = Call(name, holes, len(inputs), mutated, returns=(TENSOR,) * len(outputs))
        index = self.calls.setdefault(call, len(self.calls))
        self.ops.append(Op(index, inputs, outputs, phase, label=self.net.order[layer]))


def plan_of(simulation: Simulation) -> Plan:
    """Make the Plan of the first batch: on each device its ops, sends and receives in the order of the run, and the
    updates at the end of its step.

    Its Graph is ``graph_of(simulation)``; lane i is device i.
    """
    made, record, layers = _GraphOf(simulation), simulation.record, simulation.tables.layers
    first_step = range(simulation.tables.step_batches)
    graph = made.graph
    steps: list[list[tuple[float, int, int, Step]]] = [[] for _ in range(simulation.tables.devices)]
    rows = zip(*(column.tolist() for column in record[:8]), strict=True)
    for event, (kind, resource, batch, part, start, end, source, target) in enumerate(rows):
        if kind == OP and part >= 2 * layers:
            if batch in first_step:
                steps[resource].append((start, event, 0, Compute(made.op_of(part))))
            continue
        if batch or kind in (WAKEUP, HOP):
            continue
        if kind == OP:
            steps[resource].append((start, event, 0, Compute(made.op_of(part))))
            successors = simulation.net.children[part] if part < layers else simulation.net.parents[part - layers]
            for other in dict.fromkeys(simulation.placement[one] for one in successors):
                if other != resource:
                    sends = [Send(storage, other) for storage in made.sent(part, other)]
                    steps[resource] += [(end, event, 1, send) for send in sends]
        else:
            received = [Receive(storage, source) for storage in made.sent(part, target)]
            steps[target] += [(end, event, 1, one) for one in received]
    lanes = [
        Lane(simulation.lanes[device], tuple(row[-1] for row in sorted(of, key=lambda row: row[:3])))
        for device, of in enumerate(steps)
    ]
    return Plan(graph.index.digest, tuple(lanes))


class PlacementTimeline(Timeline):
    """Timeline of a simulated run: one lane for each device and each channel, and the bytes of one ``device``.

    Ops are those of ``graph_of`` the run; every batch runs each of them once but for updates, which the last batch of a
    step runs, and ``batch`` has the number for each event. Transfers are sends of the storage of their first successor.
    Times are rounded to ns.
    """

    def __init__(self, simulation: Simulation, device: int, made: _GraphOf) -> None:
        super().__init__(made.graph, simulation.lanes[device], self._events, simulation.lanes)
        self.simulation, self.number, self._made = simulation, device, made

    @property
    def peak_bytes(self) -> int:
        """Most bytes resident on the device at any time."""
        return self.simulation.peaks[self.number]

    @functools.cached_property
    def batch(self) -> Ints:
        """Number of the batch of each event."""
        record = self.simulation.record
        return record.batch[record.kind >= OP].astype("int64")

    def _events(self) -> Events:
        record = self.simulation.record
        shown = record.kind >= OP
        part = record.part[shown].astype(np.int64)
        moved = (record.kind[shown] == TRANSFER) | (record.kind[shown] == HOP)
        op = np.array([self._made.op_of(one) for one in part.tolist()], np.int64)
        sent = [
            self._sent(int(one), int(target)) if moves else -1
            for one, target, moves in zip(part, record.target[shown], moved, strict=True)
        ]
        start_ns, end_ns = (np.rint(column[shown] * 1e6).astype(np.int64) for column in (record.start, record.end))
        return Events(
            np.where(moved, int(Kind.SEND), int(Kind.RUN)).astype(np.int64),
            np.where(moved, sent, op).astype(np.int64),
            record.resource[shown].astype(np.int64),
            start_ns,
            end_ns,
            record.memory[shown, self.number],
        )

    def _sent(self, part: int, target: int) -> int:
        return self._made.sent(part, target)[0]


def timelines_of(simulation: Simulation) -> tuple[PlacementTimeline, ...]:
    """Make the Timeline of a simulated run for each device."""
    made = _GraphOf(simulation)
    return tuple(PlacementTimeline(simulation, device, made) for device in range(simulation.tables.devices))
