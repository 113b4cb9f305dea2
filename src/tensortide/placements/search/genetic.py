"""Genetic search: ranked or tournament parents, crossover, gene and zone mutations whose rates may evolve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tensortide.errors import PlacementError
from tensortide.placements.arrays import Floats, Ints, Placements
from tensortide.placements.genes import devices_of, number_of
from tensortide.placements.search.algorithm import Search
from tensortide.placements.search.session import Generation, Session

ZONE_STOP = 0.2
"""A zone ends after each of its genes with this probability."""


@dataclass(frozen=True)
class Genetic(Search):
    """A population of placements that breeds for ``generations`` (None: until the budget is spent).

    ``crossover``: "uniform", or the number of cut points. ``parents``: by ``rank``, with ``pressure`` s in a linear
    function or an exponential one, or by ``tournament`` of ``tournament_size``. A gene that mutates takes a device, or
    with probability ``sharing_rate`` adds it to those that share its convolutions (networks alone). With
    ``evolve_rates`` each individual has a mutation rate of its own, within ``least_rate`` and ``most_rate``, and a zone
    rate; ``zone_rule`` says whether the evolved zone rate decides or the common one. The ``elite`` best survive, the
    other places go to random children. The first generation has the placements ``first``, then single devices
    (``trivial_start``), then random ones.
    """

    name: ClassVar[str] = "genetic"
    about: ClassVar[str] = "genetic search"
    population: int = 100
    generations: int | None = None
    mutation_rate: float = 0.05
    sharing_rate: float = 0.0
    crossover_rate: float = 0.8
    crossover: Literal["uniform"] | int = 1
    parents: Literal["rank", "tournament"] = "rank"
    ranking: Literal["linear", "exponential"] = "linear"
    pressure: float = 2.0
    tournament_size: int = 10
    evolve_rates: bool = False
    least_rate: float = 0.05
    most_rate: float = 0.9
    zone_rate: float = 0.0
    zone_rule: Literal["evolved", "common"] = "evolved"
    elite: int = 1
    trivial_start: bool = True
    first: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.population < 2 or not 0 <= self.elite <= self.population:
            raise PlacementError("a genetic search needs a population of at least 2, and an elite within it.")
        if self.crossover != "uniform" and self.crossover < 0:
            raise PlacementError(f"a crossover cuts at {self.crossover} places: 0 or more.")

    @property
    def shares_genes(self) -> bool:
        """True if mutations share genes."""
        return self.sharing_rate > 0

    def run(self, session: Session) -> None:
        """Breed."""
        genes, rates, zones = self._first(session)
        scores = session.score(genes)
        done = 0
        while self.generations is None or done < self.generations:
            self._record(session, genes, scores)
            children, child_rates, child_zones = self._bred(session, genes, scores, rates, zones)
            self._mutate(session, children, child_rates, child_zones)
            child_scores = session.score(children)
            old = np.argsort(scores, kind="stable")[: self.elite]
            new = session.rng.choice(self.population, self.population - self.elite, replace=False)
            genes = np.concatenate([genes[old], children[new]])
            scores = np.concatenate([scores[old], child_scores[new]])
            rates = np.concatenate([rates[old], child_rates[new]])
            zones = np.concatenate([zones[old], child_zones[new]])
            done += 1
        self._record(session, genes, scores)

    def _first(self, session: Session) -> tuple[Placements, Floats, Floats]:
        """The first generation, with the mutation and zone rate of each individual."""
        rng, count = session.rng, self.population
        genes = session.random(count)
        given = np.array(self.first, np.int64).reshape(-1, session.genes)
        if self.trivial_start:
            given = np.concatenate([given, session.uniform()])
        genes[: len(given)] = given[:count]
        rates, zones = np.full(count, self.mutation_rate), np.full(count, self.zone_rate)
        if self.evolve_rates:
            rates = self._clipped(rng.normal(self.mutation_rate, 0.1, count))
            zones = np.clip(rng.normal(self.zone_rate, 0.05, count), 0.0, 1.0) if self.zone_rate else zones
        return genes, rates, zones

    def _clipped(self, rates: Floats) -> Floats:
        return np.clip(rates, self.least_rate, self.most_rate)

    def _bred(
        self, session: Session, genes: Placements, scores: Floats, rates: Floats, zones: Floats
    ) -> tuple[Placements, Floats, Floats]:
        """Children of as many parents as there are individuals, drawn, shuffled and paired."""
        rng = session.rng
        chosen = rng.permutation(self._chosen(rng, scores))
        children, child_rates, child_zones = genes[chosen].copy(), rates[chosen].copy(), zones[chosen].copy()
        for one in range(0, self.population - 1, 2):
            if rng.random() >= self.crossover_rate:
                continue
            mask = self._mask(rng, session.genes)
            children[one, mask], children[one + 1, mask] = (
                children[one + 1, mask].copy(),
                children[one, mask].copy(),
            )
            if self.evolve_rates:
                for values in (child_rates, child_zones):
                    share = rng.normal(0.5, 0.1)
                    first, second = values[one], values[one + 1]
                    values[one], values[one + 1] = (
                        share * first + (1 - share) * second,
                        share * second + (1 - share) * first,
                    )
        return children, child_rates, child_zones

    def _chosen(self, rng: np.random.Generator, scores: Floats) -> Ints:
        """Numbers of the parents: stochastic universal sampling over ranks, or tournaments."""
        count = self.population
        if self.parents == "tournament":
            size = min(self.tournament_size, count)
            rounds = (rng.choice(count, size, replace=False) for _ in range(count))
            return np.array([entrants[np.argmin(scores[entrants])] for entrants in rounds])
        ranks = np.arange(count)
        if self.ranking == "linear":
            s = self.pressure
            shares = (2 - s) / count + 2 * ranks * (s - 1) / (count * (count - 1))
        else:
            shares = 1 - np.exp(-ranks)
        worst_first = np.argsort(-scores, kind="stable")
        points = (rng.random() + ranks) / count
        return worst_first[np.minimum(np.searchsorted(np.cumsum(shares / shares.sum()), points), count - 1)]

    def _mask(self, rng: np.random.Generator, genes: int) -> NDArray[np.bool_]:
        """True for the genes that two parents exchange."""
        if self.crossover == "uniform":
            return rng.random(genes) < 0.5
        points = min(self.crossover, genes - 1)
        cuts = np.zeros(genes, np.int64)
        cuts[rng.choice(np.arange(1, genes), points, replace=False)] = 1
        odd: NDArray[np.bool_] = np.cumsum(cuts) % 2 == 1
        return odd

    def _mutate(self, session: Session, children: Placements, rates: Floats, zones: Floats) -> None:
        """Mutate every child in place; its evolved rates first."""
        rng = session.rng
        if self.evolve_rates:
            count = len(children)
            rates[:] = np.where(rates > 0, self._clipped(rates + rng.normal(0, 0.05, count)), 0.0)
            zones[:] = np.where(zones > 0, np.clip(zones + rng.normal(0, 0.02, count), 0.0, 1.0), 0.0)
        for child, rate, zone in zip(children, rates, zones, strict=True):
            if rng.random() < (zone if self.zone_rule == "evolved" else self.zone_rate):
                mutate_zone(rng, child, session.allowed)
            else:
                chosen = np.flatnonzero(rng.random(len(child)) < rate)
                child[chosen] = drawn(session, child, chosen, self.sharing_rate)

    @staticmethod
    def _record(session: Session, genes: Placements, scores: Floats) -> None:
        best = tuple(map(int, genes[np.argmin(scores)]))
        session.notes.generations.append(
            Generation(session.proposals, float(scores.min()), float(scores.mean()), diversity(genes), best)
        )
        session.notes.population = tuple(tuple(row) for row in genes[np.argsort(scores, kind="stable")].tolist())
        session.notes.last = best, float(scores.min())


def drawn(session: Session, row: Placements, genes: Ints, sharing_rate: float) -> Placements:
    """Draw a device for each of the ``genes`` of ``row``; with probability ``sharing_rate`` it joins those of the
    gene. Of more devices than a gene can be shared by it has the first."""
    found, devices = session.rng.choice(session.allowed, len(genes)), session.problem.devices
    if session.sharing is not None:
        for at in np.flatnonzero(session.rng.random(len(genes)) < sharing_rate).tolist():
            own, most = devices_of(int(row[genes[at]]), devices), int(session.sharing.most[genes[at]])
            found[at] = number_of(sorted({*own, int(found[at])})[:most], devices)
    return found


def mutate_zone(rng: np.random.Generator, row: Placements, allowed: Ints) -> None:
    """Set a zone of ``row`` to one random device: a uniform start, and a geometric length."""
    start = int(rng.integers(len(row)))
    length = min(int(rng.geometric(ZONE_STOP)), len(row) - start)
    row[start : start + length] = rng.choice(allowed)


def diversity(genes: Placements) -> float:
    """The mean share of genes in which two individuals of ``genes`` [k, genes] differ, over all ordered pairs."""
    count, width = genes.shape
    if count < 2 or not width:
        return 0.0
    same = sum(int((np.bincount(column) ** 2).sum()) for column in genes.T)
    return float((count * count * width - same) / (count * (count - 1) * width))
