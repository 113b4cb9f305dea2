"""Placements by list scheduling under memory limits: in topological order, earliest start, smallest communication.

Rules after Jeon et al., "Baechi: fast device placement of machine learning graphs" (SoCC 2020): m-TOPO, m-ETF, m-SCT;
the last with favourite children of Hanen and Munier's linear program. Work and transfers are those of forward and
backward pass together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensortide.placements.arrays import Floats, Ints, Placements
from tensortide.placements.problem import Problem
from tensortide.placements.search.algorithm import Search
from tensortide.placements.search.session import Session
from tensortide.plans.linear_program import solved
from tensortide.search_limit import Look, SearchLimit, no_look

FAVOURITE = 0.1
"""An edge of the relaxed program below this makes its consumer the favourite child of its producer."""


@dataclass(frozen=True)
class MTopo(Search):
    """Fill one device after another in topological order, each up to an even share of the memory and the largest op."""

    name: ClassVar[str] = "m-topo"
    about: ClassVar[str] = "devices filled in topological order"

    def run(self, session: Session) -> None:
        """Propose the one placement."""
        session.score(topological(session.problem, session.allowed)[None])


@dataclass(frozen=True)
class MEtf(Search):
    """Always the ready gene and the device with room on which it starts first."""

    name: ClassVar[str] = "m-etf"
    about: ClassVar[str] = "earliest task first, within memory"

    def run(self, session: Session) -> None:
        """Propose the one placement."""
        session.score(earliest_first(session.problem, session.allowed, look=session.check)[None])


@dataclass(frozen=True)
class MSct(Search):
    """Earliest task first, with each device waiting for the favourite child of what it ran last.

    ``max_iterations``: of the solver of the linear program; without a solution by then there are no favourites.
    """

    name: ClassVar[str] = "m-sct"
    about: ClassVar[str] = "small communication times, within memory"
    max_iterations: int = 50_000

    def run(self, session: Session) -> None:
        """Propose the one placement."""
        limit = session.limit(self.max_iterations)
        favourites = favourite_children(session.problem, session.allowed, limit, session.check)
        session.score(earliest_first(session.problem, session.allowed, favourites, look=session.check)[None])


def topological(problem: Problem, allowed: Ints) -> Placements:
    """Fill ``allowed`` devices one after another in topological order [genes]."""
    memory, capacity = problem.memory, problem.capacity
    share = memory.sum() / len(allowed) + memory.max(initial=0.0)
    row = np.empty(len(memory), np.int64)
    place, used = 0, 0.0
    for gene, needs in enumerate(memory.tolist()):
        while used + needs > min(share, capacity[allowed[place]]) and place + 1 < len(allowed):
            place, used = place + 1, 0.0
        row[gene] = allowed[place]
        used += needs
    return row


def earliest_first(
    problem: Problem,
    allowed: Ints,
    favourites: Ints | None = None,
    *,
    room: float = 1.0,
    by_rank: bool = False,
    look: Look = no_look,
) -> Placements:
    """Schedule ready genes one after another on the device where each starts first, and return the devices [genes].

    ``favourites`` [genes]: the favourite child of each gene, -1 for none. ``room``: the share of each device's memory
    that may be used; where no device has room, that with the most left is taken. ``by_rank``: always the ready gene of
    the highest upward rank, on the device where it ends first. ``look`` is called now and then; it may raise.
    """
    state = _Schedule(problem, allowed, favourites, room)
    ranks = upward_ranks(problem, allowed) if by_rank else None
    ready = [gene for gene in range(len(problem.names)) if not state.waiting[gene]]
    while ready:
        look()
        if ranks is not None:
            gene = max(ready, key=ranks.__getitem__)
            device = min(state.fitting(gene), key=lambda d: state.start(gene, d) + problem.work[gene, d])
        else:
            _, gene, device = min((state.start(gene, d), gene, d) for gene in ready for d in state.fitting(gene))
        ready.remove(gene)
        ready += state.put(gene, device)
    return state.row


class _Schedule:
    """A schedule under construction: where and when each gene ended, and what each device has left."""

    def __init__(self, problem: Problem, allowed: Ints, favourites: Ints | None, room: float) -> None:
        genes = len(problem.names)
        self.problem, self.allowed, self.favourites = problem, allowed.tolist(), favourites
        self.before: list[list[tuple[int, int]]] = [[] for _ in range(genes)]
        self.after: list[list[int]] = [[] for _ in range(genes)]
        for number, (producer, consumer) in enumerate(problem.edges.tolist()):
            self.before[consumer].append((producer, number))
            self.after[producer].append(consumer)
        self.waiting = [len(found) for found in self.before]
        self.row: Placements = np.full(genes, -1, np.int64)
        self.end = np.zeros(genes)
        self.free = np.zeros(problem.devices)
        self.left = problem.capacity * room
        self.last = dict.fromkeys(self.allowed, -1)
        transfers = problem.transfers
        finite = np.where(np.isfinite(transfers), transfers, 0.0)
        self.farthest = finite.max(axis=(1, 2), initial=0.0)

    def fitting(self, gene: int) -> list[int]:
        """The devices with room for ``gene``; where there is none, that with the most left."""
        needs = self.problem.memory[gene]
        found = [device for device in self.allowed if self.left[device] >= needs]
        return found or [max(self.allowed, key=lambda device: self.left[device])]

    def start(self, gene: int, device: int) -> float:
        """The earliest time at which ``gene`` can start on ``device``."""
        arrived = everywhere = 0.0
        for producer, edge in self.before[gene]:
            arrived = max(arrived, self.end[producer] + self.problem.transfers[edge, self.row[producer], device])
            everywhere = max(everywhere, self.end[producer] + self.farthest[edge])
        earliest = max(arrived, self.free[device])
        last = self.last[device]
        if (
            self.favourites is None
            or last < 0
            or (child := self.favourites[last]) in (-1, gene)
            or self.row[child] >= 0
        ):
            return float(earliest)
        # the device waits for the favourite child, unless the gene could start everywhere by now
        edge = next(edge for producer, edge in self.before[child] if producer == last)
        reserved = self.end[last] + self.farthest[edge]
        return float(earliest if everywhere <= earliest else max(earliest, reserved))

    def put(self, gene: int, device: int) -> list[int]:
        """Run ``gene`` on ``device``, and return the genes that are ready by that."""
        self.end[gene] = self.free[device] = self.start(gene, device) + self.problem.work[gene, device]
        self.row[gene], self.last[device] = device, gene
        self.left[device] -= self.problem.memory[gene]
        ready = []
        for child in self.after[gene]:
            self.waiting[child] -= 1
            if not self.waiting[child]:
                ready.append(child)
        return ready


def upward_ranks(problem: Problem, allowed: Ints) -> Floats:
    """The longest way from each gene to the end, with mean work and mean transfers between ``allowed`` devices, ms."""
    work = problem.work[:, allowed].mean(axis=1)
    between = problem.transfers[:, allowed[:, None], allowed]
    means = np.where(np.isfinite(between), between, 0.0).mean(axis=(1, 2)) if len(between) else np.zeros(0)
    ranks: Floats = work.copy()
    by_producer = sorted(zip(problem.edges.tolist(), means.tolist(), strict=True), reverse=True)
    for (producer, consumer), ms in by_producer:
        ranks[producer] = max(ranks[producer], work[producer] + ms + ranks[consumer])
    return ranks


def favourite_children(problem: Problem, allowed: Ints, limit: SearchLimit, look: Look = no_look) -> Ints:
    """The favourite child of each gene [genes], -1 for none: the one that should follow without a transfer.

    Linear relaxation of the program of Hanen and Munier: x of an edge is 0 where its consumer follows at once. The work
    of ``limit`` is in iterations of the solver; ``look`` is called meanwhile, and may raise.
    """
    from scipy.sparse import coo_array

    genes, edges = len(problem.names), problem.edges
    count = len(edges)
    favourites = np.full(genes, -1, np.int64)
    if not count:
        return favourites
    work = problem.work[:, allowed].min(axis=1)
    between = problem.transfers[:, allowed[:, None], allowed]
    cost = np.where(np.isfinite(between), between, 0.0).max(axis=(1, 2))
    # variables: starts [genes], x [edges], makespan
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    limits: list[float] = []

    def at_most(limit: float, *terms: tuple[int, float]) -> None:
        for column, value in terms:
            rows.append(len(limits))
            columns.append(column)
            values.append(value)
        limits.append(limit)

    out: list[list[int]] = [[] for _ in range(genes)]
    into: list[list[int]] = [[] for _ in range(genes)]
    for number, (producer, consumer) in enumerate(edges.tolist()):
        out[producer].append(number)
        into[consumer].append(number)
        at_most(-work[producer], (producer, 1.0), (genes + number, cost[number]), (consumer, -1.0))
    for gene in range(genes):
        at_most(-work[gene], (gene, 1.0), (genes + count, -1.0))
        for numbers in (out[gene], into[gene]):
            if numbers:  # at most one child, and one parent, without a transfer
                at_most(1.0 - len(numbers), *((genes + number, -1.0) for number in numbers))
    objective = np.zeros(genes + count + 1)
    objective[-1] = 1.0
    found = solved(
        objective,
        limit=limit,
        iteration=1,
        look=look,
        A_ub=coo_array((values, (rows, columns)), shape=(len(limits), len(objective))).tocsr(),
        b_ub=limits,
        bounds=[(0, None)] * genes + [(0, 1)] * count + [(0, None)],
    )
    if found is None:
        return favourites
    for number in np.argsort(-found.x[genes : genes + count], kind="stable").tolist():
        if found.x[genes + number] < FAVOURITE:
            favourites[edges[number, 0]] = edges[number, 1]
    return favourites
