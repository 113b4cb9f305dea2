"""Descent by single genes: from where annealing ends, to where no change of one gene is for the better."""

from __future__ import annotations

import numpy as np

from tensortide.placements.annealing.table import find
from tensortide.placements.arrays import Floats, Ints, Placements
from tensortide.placements.search.session import Session

_AT_ONCE = 16
"""Neighbours that are simulated together; the best of them counts."""


def descend(session: Session, row: Placements, softening: float, until: int, rng: np.random.Generator) -> Placements:
    """Give single genes of ``row``, simulated before, other devices while that lowers its energy, and return the end.

    Energies are scores with ``softening`` ms more for a byte of over-use. Neighbours come in random order; those that
    were simulated before cost no proposal. Ends at a local optimum, or where a proposal would be more than the
    session's number ``until``. Raises Ended.
    """
    genes, devices = (one.ravel() for one in np.meshgrid(session.free, session.allowed, indexing="ij"))
    energy = float(_energies(session, row[None], softening)[0])
    order, idle = rng.permutation(len(genes)), 0
    while idle < len(genes):
        some, order = order[:_AT_ONCE], np.roll(order, -_AT_ONCE)
        near = _neighbours(row, genes[some], devices[some])
        new = np.array([find(session.seen, one) < 0 for one in near])
        if np.count_nonzero(new) > until - session.proposals:
            break
        if new.any():
            session.measure(near[new])
        energies = _energies(session, near, softening)
        lowest = int(np.argmin(energies))
        idle += len(some)
        if energies[lowest] < energy:
            row, energy, idle = near[lowest], float(energies[lowest]), 0
    return row


def _neighbours(row: Placements, genes: Ints, devices: Ints) -> Placements:
    """Return ``row`` with one gene changed, for each of ``genes`` and its device [genes, genes of the row]."""
    found = np.repeat(row[None], len(genes), axis=0)
    found[np.arange(len(genes)), genes] = devices
    return found


def _energies(session: Session, rows: Placements, softening: float) -> Floats:
    """Return the energies [k] of ``rows`` that were simulated."""
    numbers = np.array([find(session.seen, row) for row in rows], np.int64)
    energies: Floats = session.seen.scores[numbers] + softening * session.seen.over[numbers]
    return energies
