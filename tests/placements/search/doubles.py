"""A small problem with a schedule of its own: genes run in order on their device, transfers take time and no link."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensortide.placements.arrays import Floats, Ints, Placements
from tensortide.placements.bounds import Bounds
from tensortide.placements.digest import digest_of
from tensortide.placements.problem import Problem, computed


@dataclass
class InOrder(Problem):
    """Scores by the recurrence: a gene starts when its device is free and its inputs have arrived."""

    edges: Ints
    work: Floats
    transfers: Floats
    memory: Floats
    capacity: Floats
    batches: int = 1
    penalty_ms_per_byte: float = 1.0
    simulated: int = 0
    pins: Mapping[int, int] = field(default_factory=dict)

    @computed
    def names(self) -> Sequence[str]:
        return [f"part{gene // 2}/op{gene}" for gene in range(len(self.work))]

    @computed
    def digest(self) -> str:
        return digest_of((self.edges, self.work, self.transfers, self.memory, self.capacity, self.batches))

    @computed
    def devices(self) -> int:
        return int(self.work.shape[1])

    @computed
    def chained(self) -> Floats:
        return self.work

    @computed
    def activations(self) -> Floats:
        return np.zeros(len(self.work))

    @computed
    def copies(self) -> Floats:
        return np.zeros(len(self.edges))

    @computed
    def lanes(self) -> Ints:
        return np.arange(self.devices**2).reshape(self.devices, -1)

    sharing = None
    drains = False
    """See in_flight: it knows the stage."""

    def in_flight(self, stages: int) -> int:
        return min(stages, self.batches)

    def evaluate(self, placements: Placements) -> tuple[Floats, Floats]:
        self.simulated += len(placements)
        over = np.array([self._over(row) for row in placements])
        return np.array([self._makespan(row) for row in placements]) + over * self.penalty_ms_per_byte, over

    @computed
    def bounds(self) -> Bounds:
        fastest = self.work.min(axis=1)
        return Bounds(float(fastest.max()), float(fastest.sum() / self.devices))

    def _over(self, row: Placements) -> float:
        used = np.bincount(row, weights=self.memory, minlength=self.devices)
        return float(np.maximum(0, used - self.capacity).sum())

    @functools.cached_property
    def _lists(self) -> tuple[list[list[tuple[int, int]]], list[list[list[float]]], list[list[float]]]:
        """Edges to each gene by number and source; transfers; work."""
        into: list[list[tuple[int, int]]] = [[] for _ in self.work]
        for number, (one, two) in enumerate(self.edges.tolist()):
            into[two].append((number, one))
        return into, self.transfers.tolist(), self.work.tolist()

    def _makespan(self, row: Placements) -> float:
        into, transfers, work = self._lists
        devices, end, free = row.tolist(), list[float](), [0.0] * self.devices
        for gene, device in enumerate(devices):
            arrived = [end[one] + transfers[number][devices[one]][device] for number, one in into[gene]]
            free[device] = max([free[device], *arrived]) + work[gene][device]
            end.append(free[device])
        return max(end)


def random_problem(seed: int, genes: int = 6, devices: int = 3, room: float = 10.0) -> InOrder:
    """A random graph; each device holds ``room`` times its even share of the memory."""
    rng = np.random.default_rng(seed)
    edges = [(one, two) for two in range(1, genes) for one in {int(rng.integers(two)), two - 1}]
    between = rng.uniform(0.1, 2, (len(edges), 1, 1)) * (1 - np.eye(devices))
    memory = rng.integers(1, 100, genes).astype(float)
    return InOrder(
        edges=np.array(sorted(edges), np.int64).reshape(-1, 2),
        work=rng.uniform(0.5, 3, (genes, devices)),
        transfers=between,
        memory=memory,
        capacity=np.full(devices, memory.sum() / devices * room),
    )
