"""Moves of local searches: a few genes of a placement change together.

What decides is that neighbours in topological order share a device: most moves change a run of genes, shift the
boundary of one, or take over the device of a neighbour. Compiled where Numba is installed. All randomness comes in as
numbers drawn by the caller, so the result is the same without.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tensortide.compiled import compiled
from tensortide.errors import PlacementError
from tensortide.placements.arrays import Floats, Ints, Placements

DRAWS = 6
"""Random numbers that one move takes."""
KINDS = ("gene", "run", "boundary", "segment", "neighbour", "swap", "group")
"""Kinds of move, in the order of their weights."""


@dataclass(frozen=True)
class Weights:
    """Relative frequency of each kind of move.

    ``gene``: one gene to a random device. ``run``: a run of genes of geometric length to one random device.
    ``boundary``: the end of a run of equal genes moves by a geometric number of genes. ``segment``: a whole run of
    equal genes to another device. Runs are those of one of several topological orders, drawn each time.
    ``neighbour``: a gene takes the device of one that it exchanges data with. ``swap``: two devices exchange their
    genes, within a random window. ``group``: a gene and genes that it exchanges data with, on the same device, to
    another one.
    """

    gene: float = 1.0
    run: float = 1.0
    boundary: float = 2.0
    segment: float = 0.7
    neighbour: float = 1.0
    swap: float = 0.3
    group: float = 0.5

    def __post_init__(self) -> None:
        weights = [getattr(self, kind) for kind in KINDS]
        if not (min(weights) >= 0 and 0 < sum(weights) < math.inf):
            raise PlacementError("weights of moves are 0 or more, and one of them is more.")

    def cumulative(self) -> Floats:
        """Shares of all kinds, added up [kinds]."""
        weights = np.array([getattr(self, kind) for kind in KINDS], np.float64)
        return np.cumsum(weights / weights.sum())


def neighbours(genes: int, edges: Ints) -> tuple[Ints, Ints]:
    """Return the genes that each gene exchanges data with, as offsets [genes + 1] and gene numbers.

    A gene without any has itself.
    """
    sets: list[set[int]] = [set() for _ in range(genes)]
    for producer, consumer in edges.tolist():
        sets[producer].add(consumer)
        sets[consumer].add(producer)
    lists = [sorted(found) or [gene] for gene, found in enumerate(sets)]
    offsets = np.cumsum([0, *map(len, lists)])
    return offsets.astype(np.int64), np.array([gene for found in lists for gene in found], np.int64)


def orders(genes: int, edges: Ints) -> tuple[Ints, Ints]:
    """Return distinct topological orders [orders, genes], and the place of each gene in each [orders, genes].

    They are as numbered, the last ready gene first, and by depth: what cuts through branches in one of them is a
    boundary in another. Edges from a later gene to an earlier one, as groups may have, do not count.
    """
    children: list[list[int]] = [[] for _ in range(genes)]
    parents, depth = [0] * genes, [0] * genes
    for producer, consumer in sorted({(one, other) for one, other in edges.tolist() if one < other}):
        children[producer].append(consumer)
        parents[consumer] += 1
        depth[consumer] = max(depth[consumer], depth[producer] + 1)
    ready, last_first = [-gene for gene in range(genes) if not parents[gene]], list[int]()
    heapq.heapify(ready)
    while ready:
        last_first.append(-heapq.heappop(ready))
        for child in children[last_first[-1]]:
            parents[child] -= 1
            if not parents[child]:
                heapq.heappush(ready, -child)
    by_depth = sorted(range(genes), key=lambda gene: depth[gene])
    found = np.array([*dict.fromkeys(map(tuple, (range(genes), last_first, by_depth)))], np.int64)
    return found, np.argsort(found, axis=1)


class Neighbourhood(NamedTuple):
    """Tables that moves read. ``weights``: cumulative, by kind. ``allowed``: devices; ``free``: genes without a pin,
    ``pins`` [k, 2] the others with their device; ``offsets`` and ``near``: see ``neighbours``; ``mean_run``: genes of a
    run, in the mean; ``orders``, ``places``: topological orders, see ``orders``, in one of which a run is a run."""

    weights: Floats
    allowed: Ints
    free: Ints
    pins: Ints
    offsets: Ints
    near: Ints
    mean_run: float
    orders: Ints
    places: Ints


@compiled
def move(row: Placements, draws: Floats, at: int, near: Neighbourhood) -> None:
    """Change ``row`` in place by one move that keeps the pins; ``draws[at : at + DRAWS]`` are uniform in [0, 1)."""
    if len(near.allowed) > 1 and len(near.free):
        _move(row, draws, at, near)
        for i in range(len(near.pins)):
            row[near.pins[i, 0]] = near.pins[i, 1]


@compiled
def _move(row: Placements, draws: Floats, at: int, near: Neighbourhood) -> None:
    genes, kind = len(row), 0
    while kind < len(near.weights) - 1 and draws[at] >= near.weights[kind]:
        kind += 1
    gene = near.free[int(draws[at + 1] * len(near.free))]
    length = 1 + int(math.log(1.0 - draws[at + 2]) / math.log(1.0 - 1.0 / (near.mean_run + 1e-9)))
    turn = int(draws[at + 5] * len(near.orders))
    order, first = near.orders[turn], near.places[turn, gene]
    if (kind == 2 and _shift(row, order, first, length, draws[at + 3])) or (
        kind == 4 and _follow(row, gene, near.offsets, near.near, draws[at + 3])
    ):
        return
    if kind == 5:
        window = int(draws[at + 2] * genes) + 1
        _swap(row, gene, window, near.allowed, draws[at + 3], draws[at + 4])
        return
    device = _other(near.allowed, row[gene], draws[at + 4])
    if kind == 6:
        _spread(row, gene, length, device, near.offsets, near.near)
        return
    start, end = first, first + 1
    if kind in (1, 2, 4):  # there is no boundary where all genes share a device
        end = min(genes, first + length)
    elif kind == 3:
        while start > 0 and row[order[start - 1]] == row[gene]:
            start -= 1
        while end < genes and row[order[end]] == row[gene]:
            end += 1
    for place in range(start, end):
        row[order[place]] = device


@compiled
def _spread(row: Placements, gene: int, length: int, device: int, offsets: Ints, near: Ints) -> None:
    """Move ``gene`` to ``device``, and up to ``length`` of those that it exchanges data with and shares a device."""
    here = row[gene]
    row[gene] = device
    for i in range(offsets[gene], offsets[gene + 1]):
        if length > 0 and row[near[i]] == here:
            row[near[i]] = device
            length -= 1


@compiled
def _other(allowed: Ints, device: int, draw: float) -> int:
    """Draw a device other than ``device``."""
    count = allowed.shape[0]
    place = int(draw * (count - 1))
    for k in range(count):
        if allowed[k] == device:
            return int(allowed[place + 1]) if place >= k else int(allowed[place])
    return int(allowed[int(draw * count)])


@compiled
def _follow(row: Placements, gene: int, offsets: Ints, near: Ints, draw: float) -> bool:
    """Give the first gene at or after ``gene`` (cyclically) that has a neighbour elsewhere that neighbour's device."""
    genes = row.shape[0]
    for step in range(genes):
        at = (gene + step) % genes
        first, count = offsets[at], offsets[at + 1] - offsets[at]
        for turn in range(count):
            other = near[first + (int(draw * count) + turn) % count]
            if row[other] != row[at]:
                row[at] = row[other]
                return True
    return False


@compiled
def _shift(row: Placements, order: Ints, first: int, length: int, draw: float) -> bool:
    """Move the first boundary at or after place ``first`` of ``order`` (cyclically) by ``length`` genes to either side,
    if there is one."""
    genes = row.shape[0]
    for step in range(genes):
        at = (first + step) % genes
        if at > 0 and row[order[at]] != row[order[at - 1]]:
            before, after = row[order[at - 1]], row[order[at]]
            if draw < 0.5:
                for place in range(max(0, at - length), at):
                    if row[order[place]] == before:
                        row[order[place]] = after
            else:
                for place in range(at, min(genes, at + length)):
                    if row[order[place]] == after:
                        row[order[place]] = before
            return True
    return False


@compiled
def _swap(row: Placements, start: int, length: int, allowed: Ints, one: float, two: float) -> None:
    """Exchange two devices among ``length`` genes from ``start``."""
    first = row[start]
    second = _other(allowed, first, one)
    end = row.shape[0] if two < 0.5 else min(row.shape[0], start + length)
    begin = 0 if two < 0.5 else start
    for place in range(begin, end):
        if row[place] == first:
            row[place] = second
        elif row[place] == second:
            row[place] = first
