"""Touches of storages in a sequence of ops, compiled.

A *place* is the position of an op in the sequence; -1 is the start of the step, and the length of the sequence its end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensortide.compiled import entry_making_arrays
from tensortide.plans.under_budget.kernels import Survey, survey
from tensortide.plans.under_budget.moves import evaluated
from tensortide.plans.under_budget.tables import NONE, Ints, Tables

UNFIT = 1 << 44
"""Bytes at each place of a sequence that is no plan."""


class Touches(NamedTuple):
    """Touches by number, those of a ``storage`` one after the other: at ``place``, which leaves it in ``state``.

    ``behind``: the place of its next touch, or the end of the step; ``stays``: 1 if it is resident until then, else 0.
    ``level``: bytes at each place of the sequence, where each residence is as short as it can be.
    """

    storage: Ints
    place: Ints
    state: Ints
    behind: Ints
    stays: Ints
    level: Ints


@entry_making_arrays
def touches_of(t: Tables, sequence: Ints) -> Touches:
    """Find the touches in a sequence in which nothing moves."""
    count, storages, events = len(sequence), len(t.nbytes), len(t.nbytes)
    for op in sequence:
        events += t.touch_ends[op + 1] - t.touch_ends[op] + t.make_ends[op + 1] - t.make_ends[op]
    per, of, at = np.zeros((6, storages), np.int64), np.zeros((6, events), np.int64), np.zeros((2, count + 1), np.int64)
    x = np.zeros(6, np.int64)
    v = Survey(
        per[0], per[1], of[0], of[1], of[2], of[3], of[4], of[5], at[0], at[1], per[2], per[3], per[4], per[5], x, x, x
    )
    most, first, level = evaluated(t, v, sequence)
    survey(t, sequence, first, level, v)
    rows, n = np.zeros((5, (v.ends - v.begins).sum()), np.int64), 0
    for s in range(storages):
        for k in range(v.begins[s], v.ends[s]):
            rows[0, n], rows[1, n], rows[2, n] = s, v.place[k], v.after[k]
            rows[3, n] = v.place[k + 1] if k + 1 < v.ends[s] else count
            rows[4, n] = v.needed[k] != NONE
            n += 1
    if most < 0:
        level[:] = UNFIT
    return Touches(rows[0], rows[1], rows[2], rows[3], rows[4], level)
