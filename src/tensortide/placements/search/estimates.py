"""Tables of the estimate of a problem's placements, and the problem whose scores are estimates."""

from __future__ import annotations

import numpy as np

from tensortide.placements.annealing.by_estimate import anneal
from tensortide.placements.annealing.chain import Chain
from tensortide.placements.annealing.estimate import Estimate, score
from tensortide.placements.annealing.moves import orders
from tensortide.placements.arrays import Floats, Ints, Placements
from tensortide.placements.bounds import Bounds
from tensortide.placements.problem import Derived, Problem
from tensortide.placements.search.groups import base_of

AGREEMENT = 0.7
"""Least correlation, of the ranks of estimates and simulations, at which estimates screen proposals."""


def estimate_of(problem: Problem, room: float = 1.0) -> Estimate:
    """Compute the tables of ``problem``, whose genes may be groups: estimates are of what they consist of.

    ``room``: the share of each device's memory that counts, as memory adds up only roughly.
    """
    base, group_of = base_of(problem)
    layers, devices = len(base.names), base.devices
    by_depth = orders(layers, base.edges)[0][-1]
    place = np.argsort(by_depth)
    ends = np.sort(place[base.edges], axis=1)
    into = np.argsort(ends[:, 1], kind="stable")
    counts = np.bincount(ends[:, 1], minlength=layers)
    lanes = int(base.lanes.max(initial=0)) + 1
    return Estimate(
        gene=np.ascontiguousarray(group_of[by_depth]),
        first=np.concatenate([[0], np.cumsum(counts)]),
        parent=np.ascontiguousarray(ends[into, 0]),
        took=np.ascontiguousarray(base.transfers[into], np.float64),
        copied=np.ascontiguousarray(base.copies[into], np.float64),
        work=np.ascontiguousarray(base.work[by_depth], np.float64),
        lane=base.lanes,
        memory=np.ascontiguousarray(base.memory[by_depth], np.float64),
        activations=np.ascontiguousarray(base.activations[by_depth], np.float64),
        capacity=np.array(base.capacity, np.float64) * room,
        in_flight=np.array([base.in_flight(max(1, stages)) for stages in range(devices + 1)], np.float64),
        drains=base.drains,
        batches=base.batches,
        end=np.zeros(layers),
        free=np.zeros(devices),
        load=np.zeros(devices),
        used=np.zeros(devices),
        kept=np.zeros(devices),
        late=np.zeros(devices),
        stage=np.zeros(devices, np.int64),
        sent=np.zeros(layers * devices, np.int64),
        stamp=np.zeros(1, np.int64),
        lane_free=np.zeros(lanes),
        lane_load=np.zeros(lanes),
        found=np.zeros(2),
    )


class Estimated(Derived):
    """``base`` with estimated scores, of which no bound is known; a share ``room`` of each device's memory counts."""

    bounds = Bounds(0.0, 0.0)

    def __init__(self, base: Problem, room: float) -> None:
        super().__init__(base)
        self.table = estimate_of(base, room)

    def evaluate(self, placements: Placements) -> tuple[Floats, Floats]:
        """Return estimated scores [k], ms with the penalty of over-use, and over-use [k], bytes."""
        rows = np.ascontiguousarray(placements, np.int64)
        scores, over = np.empty(len(rows)), np.empty(len(rows))
        score(self.table, self.base.penalty_ms_per_byte, rows, scores, over)
        return scores, over

    def anneal(self, chain: Chain, group_of: Ints, steps: int) -> int:
        """Take up to ``steps`` steps of ``chain``, and return how many were taken."""
        del group_of  # each gene is one: the table knows of what it consists
        taken: int = anneal(self.table, self.base.penalty_ms_per_byte, chain, steps)
        return taken


def agrees(problem: Problem, rows: Placements, energies: Floats, softening: float) -> bool:
    """True if estimates put ``rows`` [k, genes] in about the order of their ``energies`` [k]: by rank correlation.

    Energies are scores with ``softening`` ms more for a byte of over-use.
    """
    scores, over = Estimated(problem, 1.0).evaluate(rows)
    found = scores + softening * over
    if len(rows) < 3 or not (np.isfinite(found).all() and np.isfinite(energies).all()):
        return False
    ranks = np.array([np.unique(values, return_inverse=True)[1] for values in (found, energies)], np.float64)
    return bool(np.ptp(ranks, axis=1).min() > 0 and np.corrcoef(ranks[0], ranks[1])[0, 1] >= AGREEMENT)
