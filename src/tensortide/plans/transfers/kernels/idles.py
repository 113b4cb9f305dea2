"""Idle intervals of storages in a sequence of ops, compiled.

A *sequence* is a list of ops in which each stands at least once; what stands again is recomputed. A *place* is the
position of an op in it; -1 is the start of the step, and the length of the sequence its end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensortide.compiled import entry_making_arrays, making_arrays
from tensortide.plans.transfers.kernels.arrays import Links
from tensortide.plans.under_budget.tables import Ints
from tensortide.plans.under_budget.touches import Touches


class Idles(NamedTuple):
    """Idle intervals by number: stretches between two touches of ``storage``, at the places ``before`` and ``after``,
    in which it may be away. Its contents are complete since the op at ``since`` and of ``state``. ``wraps``: from the
    last touch of a persistent storage, ``before``, over the end of the step to its first one, ``after``. ``other``: the
    interval of the same storage that was found before, or -1.

    ``level``: bytes resident while each op runs if nothing moves.
    """

    storage: Ints
    before: Ints
    after: Ints
    since: Ints
    state: Ints
    wraps: Ints
    other: Ints
    level: Ints


@entry_making_arrays
def idles(links: Links, x: Touches) -> Idles:
    """Find what idles between ``x``, the touches in a sequence in which nothing moves."""
    touches, storages, count, n, first, since = len(x.storage), len(links.movable), len(x.level), 0, 0, -1
    rows, key = np.zeros((7, touches + storages), np.int64), np.zeros(touches + storages, np.int64)
    for k in range(touches):
        s = x.storage[k]
        is_first, is_last = k == 0 or x.storage[k - 1] != s, k + 1 == touches or x.storage[k + 1] != s
        first = k if is_first else first
        # contents are complete since the last touch that began the residence or changed them
        if is_first or not x.stays[k - 1] or x.state[k] != x.state[k - 1]:
            since = x.place[k]
        for wraps, after in enumerate((x.behind[k], x.behind[first])):
            idle = links.persistent[s] > 0 and is_last if wraps else x.stays[k] > 0 and after > x.place[k] + 1
            if idle and links.movable[s] > 0:
                rows[0, n], rows[1, n], rows[2, n], rows[3, n] = s, x.place[k], after, since
                rows[4, n], rows[5, n] = x.state[k], wraps
                key[n] = (count if wraps else after) * storages + s
                n += 1
    rows = rows[:, np.argsort(key[:n], kind="mergesort")]
    last = np.full(storages, -1, np.int64)
    for i in range(n):
        rows[6, i], last[rows[0, i]] = last[rows[0, i]], i
    return Idles(rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], x.level)


@making_arrays
def last_of(v: Idles, storages: int) -> Ints:
    """For each storage the number of its last idle interval, or -1."""
    last = np.full(storages, -1, np.int64)
    for number in range(len(v.storage)):
        last[v.storage[number]] = number
    return last
