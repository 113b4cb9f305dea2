"""MAP-Elites: an archive with the best placement of each kind, and placements bred from all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from tensortide.errors import PlacementError
from tensortide.placements.arrays import Placements
from tensortide.placements.genes import devices_of
from tensortide.placements.problem import Problem
from tensortide.placements.search.algorithm import Search
from tensortide.placements.search.genetic import drawn, mutate_zone
from tensortide.placements.search.session import Elite, Session

Descriptor: TypeAlias = Callable[[Placements, Problem], Sequence[float]]
"""Coordinates of a placement [genes]: one number for each dimension of the archive."""


def shares(row: Placements, problem: Problem) -> tuple[float, float, float]:
    """The most common device (the first seen wins ties), the number of devices less one, both over the number of
    devices, and the share of edges that cross devices. A gene counts for each device that shares it, and its edges
    cross to all whose devices are others."""
    every = [device for gene in row.tolist() for device in devices_of(gene, problem.devices)]
    common = Counter(every).most_common(1)[0][0]
    ends = row[problem.edges]
    jumps = float(np.mean(ends[:, 0] != ends[:, 1])) if len(ends) else 0.0
    return common / problem.devices, (len(set(every)) - 1) / problem.devices, jumps


@dataclass(frozen=True)
class MapElites(Search):
    """An archive of cells, each with its best placement; children of its elites compete for their own cell.

    ``sizes`` are those of the dimensions of ``descriptor`` (-1: the number of devices, in the third the number of edges
    and one). By default these are the most common device, the number of devices and the edges across devices.
    ``cells`` above 0 makes an archive of that many irregular cells (a centroidal Voronoi partition) over [0, 1] in each
    dimension. Each pass proposes ``batch`` placements: random ones until ``initial``, then children. The device that a
    gene mutates to joins its own ones with probability ``sharing_rate``. The archive starts with the placements
    ``first``, and is kept after every ``log_period`` steps (0: at the end alone).
    """

    name: ClassVar[str] = "map-elites"
    about: ClassVar[str] = "MAP-Elites: the best of every kind of placement"
    sizes: tuple[int, ...] = (-1, -1, 10)
    initial: int = 50
    steps: int | None = None
    mutation_rate: float = 0.05
    sharing_rate: float = 0.0
    copy_rate: float = 0.0
    replace_rate: float = 0.0
    zone_rate: float = 0.0
    crossover_rate: float = 0.4
    selection: Literal["random", "tournament"] = "random"
    tournament_size: int = 10
    trivial_start: bool = True
    batch: int = 1
    cells: int = 0
    descriptor: Descriptor | None = None
    log_period: int = 0
    first: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 1 or self.cells < 0:
            raise PlacementError("MAP-Elites proposes a batch of at least 1, and has no fewer than 0 irregular cells.")

    @property
    def shares_genes(self) -> bool:
        """True if mutations share genes."""
        return self.sharing_rate > 0

    def run(self, session: Session) -> None:
        """Fill the archive."""
        archive = _Archive(self, session)
        done = 0
        try:
            archive.add(np.array(self.first, np.int64).reshape(-1, session.genes))
            while self.steps is None or done < self.steps:
                fresh = session.random(min(max(0, self.initial - done), self.batch))
                if done == 0 and self.trivial_start:
                    archive.add(session.uniform())
                parents = archive if done >= self.initial or not len(fresh) else list(fresh)
                bred = [self._child(session, parents) for _ in range(self.batch - len(fresh))]
                archive.add(np.concatenate([fresh, np.array(bred, np.int64).reshape(-1, session.genes)]))
                done += self.batch
                if self.log_period and done % self.log_period < self.batch:
                    session.notes.archives.append((done, archive.elites()))
        finally:
            session.notes.archive = elites = archive.elites()
            if elites:
                best = min(elites, key=lambda one: one.score_ms)
                session.notes.last = best.placement, best.score_ms

    def _child(self, session: Session, parents: _Archive | list[Placements]) -> Placements:
        """Breed a child of one or two ``parents``."""
        rng = session.rng
        first = self._parent(rng, parents).copy()
        if rng.random() < self.crossover_rate and session.genes > 1:
            cut = int(rng.integers(1, session.genes))
            first[cut:] = self._parent(rng, parents)[cut:]
        if rng.random() < self.replace_rate:
            present = np.unique(first)
            old, new = rng.choice(present), rng.choice(present)
            first[first == old] = new
        elif rng.random() < self.zone_rate:
            mutate_zone(rng, first, session.allowed)
        else:
            copied = rng.random(session.genes) < self.copy_rate
            copied[0] = False
            mutated = ~copied & (rng.random(session.genes) < self.mutation_rate)
            before = np.concatenate([first[:1], first[:-1]])
            devices = drawn(session, first, np.arange(session.genes), self.sharing_rate)
            first = np.where(copied, before, np.where(mutated, devices, first))
        return first

    def _parent(self, rng: np.random.Generator, parents: _Archive | list[Placements]) -> Placements:
        if isinstance(parents, list) or self.selection == "random":
            rows: list[Placements] = parents if isinstance(parents, list) else parents.rows
            return rows[int(rng.integers(len(rows)))]
        count = len(parents.rows)
        entrants: list[int] = rng.choice(count, min(count, self.tournament_size), replace=False).tolist()
        return parents.rows[min(entrants, key=parents.scores.__getitem__)]


class _Archive:
    """The best placement of each cell, in the order in which cells were found."""

    def __init__(self, options: MapElites, session: Session) -> None:
        problem = session.problem
        self.session = session
        self.descriptor = options.descriptor or shares
        self.rows: list[Placements] = []
        self.scores: list[float] = []
        self._cells: list[tuple[float, ...]] = []
        self._numbers: dict[int | tuple[int, ...], int] = {}
        edges = len(problem.edges)
        full = tuple(
            size if size > 0 else (edges + 1 if place == 2 else problem.devices)
            for place, size in enumerate(options.sizes)
        )
        self.sizes = full
        self._irregular = _irregular(options.cells, len(full), session.seed) if options.cells else None

    def add(self, rows: Placements) -> None:
        """Score ``rows`` [k, genes], and put each into its cell if it is strictly better than what is there."""
        if not len(rows):
            return
        scores = self.session.score(rows)
        measured = [tuple(self.descriptor(row, self.session.problem)) for row in rows]
        for row, score, at in zip(rows, scores.tolist(), measured, strict=True):
            key, cell = self._cell(at)
            if key not in self._numbers:
                self._numbers[key] = len(self.rows)
                self.rows.append(row)
                self.scores.append(score)
                self._cells.append(cell)
            elif score < self.scores[number := self._numbers[key]]:
                self.rows[number], self.scores[number] = row, score

    def elites(self) -> tuple[Elite, ...]:
        """All elites."""
        found = zip(self._cells, self.scores, self.rows, strict=True)
        return tuple(Elite(cell, score, tuple(row.tolist())) for cell, score, row in found)

    def _cell(self, at: tuple[float, ...]) -> tuple[int | tuple[int, ...], tuple[float, ...]]:
        """The key of the cell in which ``at`` lies, and its place: numbers along the axes, or the centroid."""
        if len(at) != len(self.sizes):
            raise PlacementError(f"the descriptor has {len(at)} values, the archive {len(self.sizes)} dimensions.")
        if self._irregular is not None:
            number = int(self._irregular.index_of_single(at))
            return number, tuple(map(float, self._irregular.centroids[number]))
        cell = tuple(
            max(0, min(size - 1, round(value * (size - 1 if place == 2 else size))))
            for place, (value, size) in enumerate(zip(at, self.sizes, strict=True))
        )
        return cell, cell


def _irregular(cells: int, dimensions: int, seed: int) -> Any:
    """An archive of pyribs with ``cells`` Voronoi cells over the unit cube."""
    from ribs.archives import CVTArchive

    return CVTArchive(solution_dim=1, centroids=cells, ranges=[(0.0, 1.0)] * dimensions, seed=seed)
