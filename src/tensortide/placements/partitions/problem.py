"""The max-load objective: the largest time per sample of any device, when samples stream through all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tensortide.compiled import entry_making_arrays
from tensortide.errors import TensortideError
from tensortide.placements.arrays import Floats, Ints
from tensortide.placements.bounds import Bounds
from tensortide.placements.digest import digest_of
from tensortide.placements.partitions.workload import Workload
from tensortide.placements.problem import Problem, computed


class PartitionProblem(Problem):
    """Splits of a workload over its devices. A *gene* is a colour class; CPU cores are the first devices.

    The load of an accelerator is the time of its nodes, and the cost of each output that crosses its border, in or out,
    once. The load of a CPU is the time of its nodes. Bytes above an accelerator's are over-use, at 1 ms per byte or
    more. Nodes that no accelerator supports take infinite time there.

    Attributes:
        workload: as given.
        names: of genes: the name or id of a node of each.
        place: the gene of each node, in the order of the file.
    """

    batches = 1
    """A score is of one sample."""
    chained = None
    """Nodes do not chain up: samples stream through the devices."""
    sharing = None
    """Each gene is on one device."""
    drains = False
    """There are no batches in flight."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self.devices = workload, workload.devices
        self.pins: dict[int, int] = {}
        nodes = workload.nodes
        first: dict[tuple[str, int], int] = {}
        for i in workload.order:
            key = ("node", i) if nodes[i].color_class is None else ("class", nodes[i].color_class or 0)
            first.setdefault(key, i)
        numbers = {key: gene for gene, key in enumerate(first)}
        self.names = tuple(nodes[i].name or str(nodes[i].id) for i in first.values())
        self.place = np.array(
            [
                numbers[("node", i) if node.color_class is None else ("class", node.color_class)]
                for i, node in enumerate(nodes)
            ],
            np.int64,
        )

    @computed
    def digest(self) -> str:
        """Text that differs from that of every problem whose scores may: of genes, costs and devices."""
        tables = (self.work, self.memory, self._links, self._costs, self.capacity)
        return digest_of((self.names, self.place, self.workload.cpus, *tables))

    @computed
    def penalty_ms_per_byte(self) -> float:
        """Milliseconds per byte of over-use: a thousandth of the least gene outweighs any load, whatever the unit of
        sizes in the file is."""
        most = float(np.where(np.isinf(self.work), 0.0, self.work).max(axis=1, initial=0.0).sum() + self._costs.sum())
        least = float(self.memory[self.memory > 0].min(initial=np.inf))
        return max(1.0, 1000.0 * most / least)

    @computed
    def _links(self) -> Ints:
        """Gene numbers [m, 2] of edges, and the node that is read [m]: in three columns."""
        index = {node.id: i for i, node in enumerate(self.workload.nodes)}
        rows = [
            (self.place[index[edge.source_id]], self.place[index[edge.dest_id]], index[edge.source_id])
            for edge in self.workload.edges
        ]
        found = np.array(sorted(rows, key=lambda row: row[2]), np.int64).reshape(-1, 3)
        return found[found[:, 0] != found[:, 1]]

    @computed
    def edges(self) -> Ints:
        """Gene numbers [m, 2] of different genes: producer, consumer."""
        return np.unique(self._links[:, :2], axis=0)

    @computed
    def _costs(self) -> Floats:
        return np.array([self.workload.costs.get(node.id, 0.0) for node in self.workload.nodes])

    @computed
    def work(self) -> Floats:
        """Time of each gene on each device, ms [genes, devices]."""
        cpus = self.workload.cpus
        found = np.zeros((len(self.names), self.devices))
        for node, gene in zip(self.workload.nodes, self.place, strict=True):
            found[gene, :cpus] += node.cpu_latency
            found[gene, cpus:] += node.fpga_latency if node.supported_on_fpga else np.inf
        return found

    @computed
    def transfers(self) -> Floats:
        """Time that an edge costs two devices together, ms [m, devices, devices]: one of them if the other is a CPU."""
        accelerator = np.arange(self.devices) >= self.workload.cpus
        ends = accelerator[:, None].astype(float) + accelerator[None, :]
        np.fill_diagonal(ends, 0.0)
        sources: dict[tuple[int, int], set[int]] = {}
        for a, b, node in self._links.tolist():
            sources.setdefault((a, b), set()).add(node)
        cost = np.array([self._costs[list(sources[a, b])].sum() for a, b in self.edges.tolist()])
        return cost.reshape(-1, 1, 1) * ends

    @computed
    def memory(self) -> Floats:
        """Bytes of each gene [genes]."""
        found = np.zeros(len(self.names))
        np.add.at(found, self.place, [node.size for node in self.workload.nodes])
        return found

    @computed
    def activations(self) -> Floats:
        """Zeros: samples in flight take no memory of their own [genes]."""
        return np.zeros(len(self.names))

    @computed
    def copies(self) -> Floats:
        """Zeros: copies take no memory [m]."""
        return np.zeros(len(self.edges))

    @computed
    def lanes(self) -> Ints:
        """A queue for each device that sends [devices, devices]."""
        return np.repeat(np.arange(self.devices)[:, None], self.devices, axis=1)

    def in_flight(self, stages: int) -> int:
        """Return 1: the memory of a sample is in the sizes of the nodes."""
        del stages
        return 1

    @computed
    def capacity(self) -> Floats:
        """Bytes of each device [devices]; infinite for CPUs."""
        found = np.full(self.devices, self.workload.bytes_per_accelerator)
        found[: self.workload.cpus] = np.inf
        return found

    def on_devices(self, genes: Sequence[int]) -> tuple[int, ...]:
        """The device of each node, in the order of the file."""
        return tuple(genes[gene] for gene in self.place.tolist())

    def genes(self, split: Mapping[int, int]) -> Ints:
        """Genes of a split by node id. Raises TensortideError if nodes of a colour class are apart."""
        found = np.full(len(self.names), -1, np.int64)
        for node, gene in zip(self.workload.nodes, self.place, strict=True):
            if found[gene] not in (-1, split[node.id]):
                raise TensortideError(f"node {node.id} is not on the device of the others of class {node.color_class}.")
            found[gene] = split[node.id]
        return found

    @computed
    def bounds(self) -> Bounds:
        """Return lower bounds on the largest load: the largest gene, and all work over all devices."""
        fastest = self.work.min(axis=1)
        finite = np.where(np.isinf(self.work), 0.0, self.work)
        weights = finite.sum(axis=0)
        share = 1 / weights / (1 / weights).sum() if weights.all() else np.zeros(self.devices)
        scaled = np.where(np.isinf(self.work), np.inf, finite * share)
        return Bounds(float(fastest.max()), float(scaled.min(axis=1).sum()))

    def loads(self, genes: Ints) -> tuple[Floats, Floats]:
        """Loads (ms) and bytes of each device under one split [genes]."""
        loads, sizes = np.zeros(self.devices), np.zeros(self.devices)
        row = np.ascontiguousarray(genes, np.int64)
        _load(self._checked(row)[0], self.work, self.memory, self._links, self._costs, self.workload.cpus, loads, sizes)
        return loads, sizes

    def evaluate(self, placements: Ints) -> tuple[Floats, Floats]:
        """Score splits.

        Args:
            placements: rows of device numbers [k, genes], or one row.

        Returns:
            Scores [k], ms: the largest load with the penalty of over-use; and over-use [k], bytes.

        Raises:
            TensortideError: rows are of another problem.
        """
        rows = self._checked(placements)
        scores, over = np.empty(len(rows)), np.empty(len(rows))
        limit = float(self.workload.bytes_per_accelerator)
        _score(rows, self.work, self.memory, self._links, self._costs, self.workload.cpus, limit, scores, over)
        scores += self.penalty_ms_per_byte * over
        return scores, over

    def _checked(self, placements: Ints) -> Ints:
        rows = np.ascontiguousarray(np.atleast_2d(placements), np.int64)
        if rows.shape[1] != len(self.names) or rows.min(initial=0) < 0 or rows.max(initial=0) >= self.devices:
            raise TensortideError(
                f"splits are rows of {len(self.names)} genes of {self.workload.name}, each 0 to {self.devices - 1}."
            )
        return rows


@entry_making_arrays
def _load(
    genes: Ints, work: Floats, memory: Floats, links: Ints, costs: Floats, cpus: int, loads: Floats, sizes: Floats
) -> None:
    """Add up loads and bytes of each device; ``links`` are sorted by the node that is read."""
    for gene in range(len(genes)):
        loads[genes[gene]] += work[gene, genes[gene]]
        sizes[genes[gene]] += memory[gene]
    paid = np.full(len(loads), -1)
    for i in range(len(links)):
        source, target, node = genes[links[i, 0]], genes[links[i, 1]], links[i, 2]
        if source == target:
            continue
        for device in (source, target):
            if device >= cpus and paid[device] != node:
                paid[device] = node
                loads[device] += costs[node]


@entry_making_arrays
def _score(
    rows: Ints,
    work: Floats,
    memory: Floats,
    links: Ints,
    costs: Floats,
    cpus: int,
    limit: float,
    scores: Floats,
    over: Floats,
) -> None:
    """Largest load and over-use of each row."""
    devices = work.shape[1]
    for row in range(len(rows)):
        loads, sizes = np.zeros(devices), np.zeros(devices)
        _load(rows[row], work, memory, links, costs, cpus, loads, sizes)
        scores[row] = loads.max()
        over[row] = 0.0
        for device in range(cpus, devices):
            over[row] += max(0.0, sizes[device] - limit)
