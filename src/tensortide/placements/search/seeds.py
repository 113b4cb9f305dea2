"""Placements to start from: lists scheduled within memory, contiguous splits, and repairs of those over memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tensortide.placements.arrays import Ints, Placements
from tensortide.placements.problem import Problem
from tensortide.placements.search.contiguous import splits
from tensortide.placements.search.list_scheduling import earliest_first, topological
from tensortide.search_limit import Look, SearchLimit, no_look

ROOMS = (1.0, 0.8, 0.6)
"""Shares of the memory that list scheduling may fill, tried in turn."""
MOST_LISTED = 2000
"""Genes up to which lists are scheduled: it takes time in their square."""


def seeds(problem: Problem, allowed: Ints, look: Look = no_look, limit: SearchLimit | None = None) -> Placements:
    """Return distinct placements [k, genes], each as planned and as repaired; at the end of ``limit`` those that there
    are by then, one at least. ``look`` is called now and then; it may raise."""
    found: dict[bytes, Placements] = {}
    for row in _planned(problem, allowed, look):
        for candidate in (row, repaired(problem, row, allowed)):
            found.setdefault(candidate.tobytes(), candidate)
        if limit is not None and limit.spent:
            break
    return np.array([*found.values()])


def _planned(problem: Problem, allowed: Ints, look: Look) -> Iterator[Placements]:
    yield topological(problem, allowed)
    if len(problem.names) <= MOST_LISTED:
        for room in ROOMS:
            yield earliest_first(problem, allowed, room=room, look=look)
            yield earliest_first(problem, allowed, room=room, by_rank=True, look=look)
    yield from splits(problem, allowed, look=look)


def repaired(problem: Problem, row: Placements, allowed: Ints, *, room: float = 1.0) -> Placements:
    """Move genes of devices over their memory to the neighbours' device, or to that with the most room.

    Genes at the end of a run go first, so that few edges cross devices. What does not fit anywhere stays.
    """
    row = row.copy()
    memory, left = problem.memory, problem.capacity * room
    for device in allowed.tolist():
        left[device] -= memory[row == device].sum()
    for _ in range(len(row)):
        over = [device for device in allowed.tolist() if left[device] < 0]
        moves = [
            (left[target] < left[allowed].max(), memory[gene], gene, target)
            for gene in _ends(row)
            if row[gene] in over
            for target in allowed.tolist()
            if target != row[gene] and left[target] >= memory[gene] > 0
        ]
        if not moves:
            break
        _, needs, gene, target = min(moves)
        left[row[gene]] += needs
        left[target] -= needs
        row[gene] = target
    return row


def _ends(row: Placements) -> list[int]:
    """The first and last gene of each run of equal devices."""
    changes = np.flatnonzero(np.diff(row))
    return sorted({0, len(row) - 1, *changes.tolist(), *(changes + 1).tolist()})
