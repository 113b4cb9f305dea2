"""Residency of storages over one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensortide.replays.remat.simulation import Simulation

__all__ = ["ABSENT", "COMPUTED", "RECOMPUTED", "RESIDENT", "residency"]

ABSENT, RESIDENT, COMPUTED, RECOMPUTED = range(4)
"""States of a storage during an op: absent; resident; computed by the op; recomputed by it."""


def residency(simulation: Simulation) -> NDArray[np.int8]:
    """A row per storage of the schedule, a column per op that ran: the storage while the op runs."""
    schedule, outcome = simulation.schedule, simulation.outcome
    kinds, indexes = np.asarray(outcome.kinds), np.asarray(outcome.indexes)
    ops = int(np.isin(kinds, (Kind.RUN, Kind.RECOMPUTE)).sum())
    storage, ends = schedule.storage.tolist(), schedule.output_ends.tolist()
    op_of = np.repeat(np.arange(len(ends) - 1), np.diff(schedule.output_ends)).tolist()
    table = np.zeros((len(schedule.storage_bytes), ops), np.int8)
    state = np.zeros(len(table), np.int8)
    gone = np.zeros(len(table), bool)
    column = 0
    for kind, index in zip(kinds.tolist(), indexes.tolist(), strict=True):
        if kind in (Kind.EVICT, Kind.BANISH, Kind.DEAD):
            state[index] = ABSENT
            gone[index] |= kind != Kind.EVICT
            continue
        op = index if kind == Kind.RUN else op_of[index]
        made = [s for s in storage[ends[op] : ends[op + 1]] if state[s] == ABSENT and not gone[s]]
        state[made] = RESIDENT
        table[:, column] = state
        table[made, column] = COMPUTED if kind == Kind.RUN else RECOMPUTED
        column += 1
    return table
