"""A placement problem: scores of many placements of one net on one cluster, from tables computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from tensortide.compiled import IS_COMPILED, entry
from tensortide.errors import TensortideError
from tensortide.placements.annealing.chain import Chain
from tensortide.placements.arrays import Floats, Ints
from tensortide.placements.bounds import Bounds
from tensortide.placements.digest import digest_of
from tensortide.placements.genes import MOST_DEVICES, OnDevices, Sharing, are_numbers, devices_of
from tensortide.placements.nets.net import Devices, Net
from tensortide.placements.nets.sharding import most_devices
from tensortide.placements.op_times.times import OpTimes
from tensortide.placements.problem import Problem, computed
from tensortide.placements.simulator.annealed import anneal
from tensortide.placements.simulator.bounds import bounds
from tensortide.placements.simulator.kernel import new_record, over_use, run
from tensortide.placements.simulator.settings import Settings
from tensortide.placements.simulator.shared import SharedRuns
from tensortide.placements.simulator.state import State, for_runs, new_state
from tensortide.placements.simulator.tables import Tables, tables
from tensortide.timing.clusters import Cluster

_UNRECORDED = new_record(0, 1)


@entry
def _score_all(t: Tables, s: State, record: object, placements: Ints, scores: Floats, over: Floats) -> None:
    """Score ``placements`` [k, layers]: the makespan with the penalty of over-use, ms, and the bytes of over-use."""
    for row in range(len(placements)):
        for layer in range(t.layers):
            s.device[layer] = int(placements[row, layer])
        makespan = run(t, s, record)
        over[row] = over_use(t, s)
        scores[row] = makespan + over[row] * t.penalty


class NetProblem(Problem):
    """Placements of a net on a cluster. A *gene* is a layer, in topological order; its value is the number of a device
    that may be used, or of a set of them which share its convolutions (``genes.number_of``).

    Attributes:
        net, cluster, settings: as given.
        where: the device that each value of a gene stands for.
        tables: flat arrays of the simulator.
        pins: none: every gene is free.
    """

    def __init__(
        self,
        net: Net,
        cluster: Cluster,
        settings: Settings,
        *,
        where: Sequence[int] | None = None,
        times: OpTimes | None = None,
    ) -> None:
        """Compute the tables.

        Args:
            net: the network.
            cluster: the device graph.
            settings: of every run; over-use costs 1 ms per byte unless they say otherwise.
            where: devices that may be used; default: all that run layers.
            times: of layers, in place of the model's.

        Raises:
            TensortideError: no route leads between two of the devices, or times are not one for each layer.
        """
        if settings.memory_penalization_factor is None:
            settings = replace(settings, memory_penalization_factor=1.0)
        self.net, self.cluster, self.settings = net, cluster, settings
        self.tables = tables(net, cluster, settings, times)
        self.where = _usable(cluster, self.tables, where)
        self.names = tuple(net.order)
        self.pins: dict[int, int] = {}
        self.devices, self.batches, self.penalty_ms_per_byte = len(self.where), settings.batches, self.tables.penalty
        self.capacity = self.tables.capacity[self.where]
        self._states: list[State] = []
        self._run_tables = for_runs(self.tables)
        self._shared, self._may_share = SharedRuns(net, cluster, self.settings), times is None

    def __getstate__(self) -> dict[str, object]:
        """Travel to another process without states: what runs fill in is of one thread."""
        return {**self.__dict__, "_states": []}

    @computed
    def digest(self) -> str:
        """Text that differs from that of every problem whose scores may: of genes, settings and all tables."""
        return digest_of((self.names, self.where, self.settings, *self.tables))

    @computed
    def edges(self) -> Ints:
        pairs = dict.fromkeys((i, child) for i, children in enumerate(self.net.children) for child in children)
        return np.array([*pairs], np.int64).reshape(-1, 2)

    @computed
    def work(self) -> Floats:
        """Time of each gene on each device for one batch, with its share of the step's update, ms [genes, devices]."""
        return self.chained + self._times[2:].sum(axis=0) / self.tables.step_batches

    @computed
    def chained(self) -> Floats:
        """Time of each gene on each device for one batch without the update, ms [genes, devices]."""
        found: Floats = self._times[:2].sum(axis=0)
        return found

    @property
    def _times(self) -> Floats:
        """Times of the parts that run [2 or 3, layers, devices that may be used], ms; 1 without a backward part."""
        t = self.tables
        times = t.times.reshape(-1, t.layers, t.devices)[:, :, self.where]
        return times if t.backward else times[:1]

    @computed
    def transfers(self) -> Floats:
        """Time of each edge between two devices for one batch, there and back, ms [m, devices, devices]."""
        sent = self.copies
        one_way = np.array([[self._transfer(sent, i, j) for j in self.where] for i in self.where])
        found = np.moveaxis(one_way, 2, 0)
        return found + np.swapaxes(found, 1, 2) if self.tables.backward else found

    @computed
    def copies(self) -> Floats:
        """Bytes of the output that each edge carries for one batch [m]."""
        return self.tables.nbytes[self.edges[:, 0]].astype(np.float64)

    def _transfer(self, nbytes: Floats, source: int, target: int) -> Floats:
        t = self.tables
        if source == target:
            return np.zeros(len(nbytes))
        hops = range(t.route[source * t.devices + target], t.route[source * t.devices + target + 1])
        parts = (
            t.hop_latency[hop] + np.maximum(t.cycle[source], nbytes / t.gigabyte / t.hop_rate[hop] * 1000 / t.network)
            for hop in hops
        )
        return np.asarray(sum(parts, np.zeros(len(nbytes))))

    @computed
    def lanes(self) -> Ints:
        """Number of the lane that is slowest on the route between two devices [devices, devices]."""
        t = self.tables
        found = np.zeros((self.devices, self.devices), np.int64)
        for one, source in enumerate(self.where):
            for two, target in enumerate(self.where):
                pair = source * t.devices + target
                hops = range(t.route[pair], t.route[pair + 1])
                if source != target and hops:
                    found[one, two] = t.hop_lane[min(hops, key=lambda hop: float(t.hop_rate[hop]))]
        return found

    @computed
    def memory(self) -> Floats:
        """Bytes of each gene for one batch [genes]: what is resident throughout, and the outputs that others read."""
        return self.tables.resident + self.activations

    @computed
    def activations(self) -> Floats:
        """Bytes of the outputs of each gene that others read, for one batch [genes]."""
        t = self.tables
        read = np.diff(t.first[: t.layers + 1]) > 0
        return (t.nbytes * (read | t.keeps_ends)).astype(np.float64)

    drains = True
    """Batches run backward as soon as they can."""

    def in_flight(self, stages: int) -> int:
        """Return the batches in flight, at most: as the settings limit them, wherever the stage is."""
        del stages
        return min(self.batches, self.settings.pipeline_batches)

    @computed
    def bounds(self) -> Bounds:
        """Return lower bounds on every score."""
        return bounds(self.tables, self.where)

    @computed
    def sharing(self) -> Sharing | None:
        """The sharing of genes; None where the times of layers are given, which say nothing of shards.

        Raises TensortideError for more devices than sets have numbers.
        """
        if not self._may_share:
            return None
        if self.devices > MOST_DEVICES:
            raise TensortideError(
                f"{self.cluster.name}: {self.devices} devices may be used, and at most {MOST_DEVICES} share layers: "
                "set sharing_rate to 0 (in a configuration mutation_sharding_rate), or use fewer."
            )
        return Sharing(np.array(self._most, np.int64), self._shared.bounds(self.tables, self.where))

    def on_devices(self, genes: Sequence[int]) -> tuple[OnDevices, ...]:
        """The device of each layer of a placement [genes], or the devices that share it, in ascending order: as many as
        it has output channels, at most."""
        return tuple(of[0] if len(of) == 1 else of for of in self._devices_of_layers(genes))

    def _devices_of_layers(self, row: Sequence[int]) -> list[Devices]:
        every = [sorted(self.where[[*devices_of(int(gene), self.devices)]].tolist()) for gene in row]
        return [tuple(shared[:most]) for shared, most in zip(every, self._most, strict=True)]

    @computed
    def _most(self) -> tuple[int, ...]:
        return most_devices(self.net)

    def evaluate(self, placements: Ints) -> tuple[Floats, Floats]:
        """Score placements; safe to call from several threads at once, which run side by side.

        Args:
            placements: rows of gene values [k, genes], or one row.

        Returns:
            Scores [k], ms of all batches with the penalty of over-use, and over-use [k], bytes.

        Raises:
            TensortideError: rows are of another problem.
        """
        rows = np.ascontiguousarray(np.atleast_2d(placements), np.int64)
        if rows.ndim != 2 or rows.shape[1] != len(self.names):
            raise TensortideError(f"placements are {rows.shape}: rows of {len(self.names)} genes of {self.net.name}.")
        if not are_numbers(rows, self.devices, shared=self._may_share):
            raise TensortideError(f"a gene is {rows.min()} to {rows.max()}: devices are 0 to {self.devices - 1}.")
        scores, over = np.empty(len(rows)), np.empty(len(rows))
        is_shared = (rows >= self.devices).any(axis=1)
        for row in np.flatnonzero(is_shared).tolist():
            devices = self._devices_of_layers(rows[row].tolist())
            scores[row], over[row] = self._shared.score(devices, _UNRECORDED)
        found = np.empty((2, len(rows) - int(is_shared.sum())))
        with self.state() as state:
            placements = self.where[rows[~is_shared]]
            _score_all(self._run_tables, state, _UNRECORDED, placements, *found)
        scores[~is_shared], over[~is_shared] = found
        return scores, over

    def anneal(self, chain: Chain, group_of: Ints, steps: int) -> int:
        if not IS_COMPILED:
            return super().anneal(chain, group_of, steps)
        with self.state() as state:
            taken: int = anneal(self.tables, state, _UNRECORDED, group_of, self.where, chain, steps)
            return taken

    @contextmanager
    def state(self) -> Iterator[State]:
        """Lend a state that no other thread uses meanwhile."""
        try:
            state = self._states.pop()
        except IndexError:
            state = new_state(self.tables)
        try:
            yield state
        finally:
            self._states.append(state)


def _usable(cluster: Cluster, t: Tables, where: Sequence[int] | None) -> Ints:
    devices = cluster.placeable if where is None else tuple(where)
    names = cluster.names
    known = ", ".join(names[one] for one in cluster.placeable)
    for one in devices:
        if one not in cluster.placeable:
            said = names[one] if one in range(len(names)) else one
            raise TensortideError(f"{cluster.name}: device {said} cannot be used; those that run layers are {known}.")
        if devices.count(one) > 1:
            raise TensortideError(f"{cluster.name}: device {names[one]} is named twice.")
    if not devices:
        raise TensortideError(f"{cluster.name}: no device may be used; those that run layers are {known}.")
    unlinked = [
        f"{names[i]} to {names[j]}"
        for i in devices
        for j in devices
        if i != j and t.route[i * t.devices + j] == t.route[i * t.devices + j + 1]
    ]
    if unlinked:
        raise TensortideError(
            f"{cluster.name}: no link leads from device {', '.join(unlinked)}. Add links to the device graph, or leave"
            " devices out."
        )
    return np.array(devices, np.int64)
