"""The placement of a captured step as a problem for searches: genes are units, scores come from the simulator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from tensortide.errors import PlanError
from tensortide.graph.model import Phase, Role
from tensortide.memory.lifetimes import Residence, residences
from tensortide.placements.annealing.chain import Chain
from tensortide.placements.arrays import Floats, Ints
from tensortide.placements.bounds import Bounds
from tensortide.placements.digest import digest_of
from tensortide.placements.graphs.bounds import bounds_of
from tensortide.placements.graphs.memory_limits import Limit
from tensortide.placements.graphs.schedules import MicroBatchSchedule
from tensortide.placements.graphs.simulate import Simulator
from tensortide.placements.graphs.tables import Step
from tensortide.placements.problem import Problem, computed

PENALTY_MS_PER_BYTE = 1.0
"""Penalty of a byte above a device's capacity."""


class GraphProblem(Problem):
    """The units of ``step`` as genes, in the order of their first ops; ``pins`` fix the device of some.

    Scores are of a whole step in ms, with ``PENALTY_MS_PER_BYTE`` for what peaks exceed the capacities. A placement
    that the schedule cannot follow has an infinite score. Tables are made once; a search changes placements only.
    """

    penalty_ms_per_byte = PENALTY_MS_PER_BYTE
    chained = None
    """Units do not chain up: ops of a unit run beside those of others that read from it."""
    sharing = None
    """Each gene is on one device."""
    drains = False
    """``in_flight`` already says how few a late stage keeps."""

    def __init__(
        self, step: Step, schedule: MicroBatchSchedule | None = None, pins: Mapping[int, int] | None = None
    ) -> None:
        self.step = step
        self.schedule = schedule or MicroBatchSchedule()
        self.pins = dict(pins or {})
        self.names, self.devices, self.batches = step.units.names, step.devices, self.schedule.micro_batches
        self.in_flight = self.schedule.most_in_flight
        self.simulator = Simulator(step, self.schedule)
        self._idle: list[Simulator] = []

    def __reduce__(self) -> tuple[type[GraphProblem], tuple[Step, MicroBatchSchedule, Mapping[int, int]]]:
        """Travel to another process without simulators: what they fill in is of one thread."""
        return GraphProblem, (self.step, self.schedule, self.pins)

    @computed
    def digest(self) -> str:
        """Text that differs from that of every problem whose scores may: of graph, units, machine, times, schedule and
        pins."""
        step = self.step
        phases = tuple(op.phase.name for op in step.graph.ops)
        machine = (step.cluster.devices, step.cluster.links, step.cluster.channels)
        parts = (step.graph.index.digest, phases, self.names, machine, step.rule, self.schedule)
        return digest_of((*parts, sorted(self.pins.items()), *step.tables[:-1], *step.tables.exchanges))

    def evaluate(self, placements: Ints) -> tuple[Floats, Floats]:
        """Scores [k] in ms and over-use [k] in bytes of ``placements`` [k, genes], or of one [genes].

        Safe to call from several threads at once, which run side by side.
        """
        rows = np.atleast_2d(np.asarray(placements, np.int64))
        scores, over = np.empty(len(rows)), np.zeros(len(rows))
        with self._simulator() as simulator:
            for number, row in enumerate(rows):
                try:
                    makespan, run = simulator.play(row)
                except PlanError:
                    scores[number] = np.inf
                    continue
                over[number] = np.maximum(run.record.peak - self.simulator.device_bytes, 0.0).sum()
                scores[number] = makespan / 1e6 + self.penalty_ms_per_byte * over[number]
        return scores, over

    def anneal(self, chain: Chain, group_of: Ints, steps: int) -> int:
        if not self.simulator.anneals:
            return super().anneal(chain, group_of, steps)
        with self._simulator() as simulator:
            return simulator.anneal(chain, group_of, steps, self.penalty_ms_per_byte)

    @contextmanager
    def _simulator(self) -> Iterator[Simulator]:
        """Lend a simulator that no other thread uses meanwhile."""
        try:
            simulator = self._idle.pop()
        except IndexError:
            simulator = self.simulator.another()
        try:
            yield simulator
        finally:
            self._idle.append(simulator)

    def pinned(self, place: Iterable[int]) -> tuple[int, ...]:
        """``place`` with the pins kept."""
        return tuple(self.pins.get(gene, int(device)) for gene, device in enumerate(place))

    @computed
    def bounds(self) -> Bounds:
        """Lower bounds of every score."""
        return bounds_of(self.step, self.pins, self.limits)

    @computed
    def limits(self) -> tuple[Limit, ...]:
        """Necessary conditions of memory. In the first, units share the workspaces of libraries equally. In the second,
        only units that use every library count, beside all workspaces."""
        libraries, resident = self.step.libraries, self.resident[:, None]
        every = resident + libraries.of_units(len(self.names), shared=True)
        whole = Limit(every, self.simulator.device_bytes)
        using = set(range(len(self.names))).intersection(*libraries.units) if libraries.units else set()
        if not using:
            return (whole,)
        uses_all = np.isin(np.arange(len(self.names)), [*using])[:, None]
        return whole, Limit(
            np.where(uses_all, resident, np.zeros_like(every)), self.capacity, " beside the workspaces of libraries"
        )

    @computed
    def resident(self) -> Floats:
        """Bytes of each unit that are resident throughout the step, without libraries [genes]."""
        found, tables = np.zeros(len(self.names)), self.step.tables
        always = (tables.early == 1) & ~self.step.released & (tables.home >= 0)
        np.add.at(found, tables.home[always], tables.nbytes[always])
        return found

    @computed
    def capacity(self) -> Floats:
        """Bytes of each device for its units, less the workspaces of libraries; infinite where there is no limit."""
        left: Floats = np.maximum(self.simulator.device_bytes - self.step.libraries.nbytes.sum(axis=0), 0.0)
        return left

    @computed
    def work(self) -> Floats:
        """Time of each unit on each device for one micro-batch, or on its host if that needs longer for the whole step,
        ms [genes, devices]."""
        found = [np.zeros((len(self.names), self.devices)) for _ in range(2)]
        for column, ns in zip(found, (self.step.computing_ns, self.step.issue_ns), strict=True):
            np.add.at(column, self.step.tables.unit, ns)
        device, host = found
        longer: Floats = np.where(host.sum(axis=0) > device.sum(axis=0), host, device)
        return longer / 1e6 / self.batches

    @computed
    def copies(self) -> Floats:
        """Bytes that each edge carries forwards, for one micro-batch [m]."""
        sent = [self.carried.get((a, b), (0, 0))[1] for a, b in self.edges.tolist()]
        return np.array(sent, np.float64) / self.batches

    @computed
    def lanes(self) -> Ints:
        """Number of the queue that is slowest on the route between two devices [devices, devices]."""
        cluster = self.step.cluster
        found = np.zeros((self.devices, self.devices), np.int64)
        for source, routes in enumerate(cluster.routes):
            for target, route in enumerate(routes):
                if route:
                    slowest = max(route, key=lambda number: cluster.wires[number].transfer_ns(10**9))
                    found[source, target] = cluster.queues[slowest]
        return found

    @computed
    def memory(self) -> Floats:
        """Bytes that each unit keeps: what is never released, gradients and the buffers of their exchange, and of one
        micro-batch what its forward pass leaves for the backward pass [genes]."""
        resident: Floats = self._stored[0] + self.activations
        return resident

    @computed
    def activations(self) -> Floats:
        """Bytes that the forward pass of one micro-batch leaves for its backward pass [genes]."""
        return self._stored[1] / self.batches

    @computed
    def _stored(self) -> tuple[Floats, Floats]:
        """Bytes of each unit that stay throughout, or are gradients or their buffers; and those of all forward passes
        for the backward ones."""
        graph, home = self.step.graph, self.step.units.home
        stay, saved = np.zeros(len(self.names)), np.zeros(len(self.names))
        phases = [op.phase for op in graph.ops]
        for storage, (held, residence) in enumerate(zip(graph.storages, residences(graph), strict=True)):
            users = graph.index.users[storage]
            if home[storage] < 0:
                continue
            if residence in (Residence.ALWAYS, Residence.KEPT) or held.role is Role.GRADIENT:
                stay[home[storage]] += held.nbytes
            elif users and phases[users[0]] is Phase.FORWARD and phases[users[-1]] is Phase.BACKWARD:
                saved[home[storage]] += held.nbytes
        buffers = slice(len(graph.storages), None)
        np.add.at(stay, self.step.tables.home[buffers], self.step.tables.nbytes[buffers])
        return stay, saved

    @computed
    def carried(self) -> dict[tuple[int, int], tuple[int, int]]:
        """From each unit to each other that reads what it makes: the number of values and their bytes, in a step."""
        step, found = self.step, dict[tuple[int, int], tuple[int, int]]()
        of_op, home = step.units.of_op, step.units.home
        for value in step.values.values:
            if value.free:
                continue
            source = home[value.storage]
            for target in {of_op[op] for op in value.readers} - {source}:
                count, nbytes = found.get((source, target), (0, 0))
                found[source, target] = count + 1, nbytes + value.nbytes
        return found

    @computed
    def edges(self) -> Ints:
        """Units [m, 2] between which values go, the earlier one first."""
        pairs = sorted({(min(pair), max(pair)) for pair in self.carried})
        return np.array(pairs, np.int64).reshape(-1, 2)

    @computed
    def transfers(self) -> Floats:
        """Time of all values of an edge between two devices, there and back, for one micro-batch, ms [m, devices,
        devices]."""
        cluster, devices = self.step.cluster, self.devices
        latency, per_byte = np.zeros((devices, devices)), np.zeros((devices, devices))
        for i in range(devices):
            for j in range(devices):
                for number in cluster.routes[i][j]:
                    wire = cluster.wires[number]
                    latency[i, j] += wire.link.latency_ns / 1e6
                    per_byte[i, j] += (wire.transfer_ns(10**9) - wire.link.latency_ns) / 1e15
        found = np.zeros((len(self.edges), devices, devices))
        for number, (a, b) in enumerate(self.edges.tolist()):
            there, back = self.carried.get((a, b), (0, 0)), self.carried.get((b, a), (0, 0))
            found[number] = there[0] * latency + there[1] * per_byte + back[0] * latency.T + back[1] * per_byte.T
        return found / self.batches
