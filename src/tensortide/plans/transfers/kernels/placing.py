"""State of placing a choice of idle intervals to move on the engines; compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensortide.compiled import compiled, entry_making_arrays, making_arrays
from tensortide.plans.instance import BEFORE
from tensortide.plans.transfers.kernels.arrays import HERE, UNLIMITED, Links
from tensortide.plans.transfers.kernels.idles import Idles
from tensortide.plans.under_budget.tables import NONE, Ints, Tables

NO = -1
NEVER = 1 << 61
"""Time of a choice that does not fit."""
ISSUED, ENDED, TOKENS, SHORT, LATEST = range(5)
"""Registers: when the last step was issued; when the last op ends; tokens written; bytes lacking; the end of all."""


class Line(NamedTuple):
    """A sequence to place choices on: per place and for the end ``level``, bytes resident if nothing moves, and
    ``own``, those of them that its op allocates."""

    sequence: Ints
    level: Ints
    own: Ints


class State(NamedTuple):
    """State of placing, by place ``p``, link ``x``, idle interval ``i`` and storage ``s``.

    ``level[p]``; ``lingers[p]``: bytes of what has had its last use, while the copy to its tier lasts, if that begins
    no earlier. ``stall[p]``: how long the op waits, and at the end how long transfers go on; ``arrival[p]``: when all
    that is fetched for it is there. ``free[2 * x]``: when the engine out is free, and behind it the one in.

    ``leaving[p + 1]``: the first interval that begins behind place p, ``then[i]`` the next one; ``needing[p]``,
    ``later[i]``: those that end there; ``written[p + 1]``, ``next[i]``: those whose contents are complete since then.
    ``waiting[x]``: intervals to be fetched, what is needed first on top of ``height[x]`` many; ``full[x]``: the place
    that lacks room for it. ``idle[x]``: those that can be copied before their last use, what is used last first on top
    of ``depth[x]`` many. ``fetched[i]``; ``ready[i]``: when its copy has ended. ``copied[s]``: the state of the copy on
    the tier, which has ended at ``complete[s]``.

    ``pending``: ends, bytes, and the place behind which they began, sorted by end, of the entries from ``span[0]`` to
    ``span[1]``. ``kind``, ``which``, ``link``: the tokens.
    """

    level: Ints
    lingers: Ints
    stall: Ints
    arrival: Ints
    free: Ints
    leaving: Ints
    then: Ints
    needing: Ints
    later: Ints
    waiting: Ints
    height: Ints
    fetched: Ints
    ready: Ints
    copied: Ints
    complete: Ints
    pending: Ints
    span: Ints
    full: Ints
    written: Ints
    next: Ints
    idle: Ints
    depth: Ints
    kind: Ints
    which: Ints
    link: Ints
    register: Ints


@entry_making_arrays
def line(t: Tables, v: Idles, sequence: Ints) -> Line:
    """Make the Line of a sequence."""
    count = len(sequence)
    level, own = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    level[:count] = v.level
    for place in range(count):
        op = sequence[place]
        own[place] = t.workspace[op]
        for k in range(t.make_ends[op], t.make_ends[op + 1]):
            own[place] += t.nbytes[t.made[k]]
    for s in range(len(t.nbytes)):
        if t.final[s] != NONE:
            level[count] += t.nbytes[s]
    return Line(sequence, level, own)


@making_arrays
def levels(t: Tables, v: Idles, x: Line, choice: Ints) -> Ints:
    """Bytes at each place and at the end if what is chosen is away between its uses."""
    count = len(x.sequence)
    change = np.zeros(count + 2, np.int64)
    for i in range(len(choice)):
        if choice[i] != HERE:
            _away(t, v, i, change)
    level = x.level.copy()
    total = 0
    for place in range(count + 1):
        total += change[place]
        level[place] += total
    return level


@compiled
def _away(t: Tables, v: Idles, i: int, change: Ints) -> None:
    """Take the bytes of an interval off the changes between places while it is away."""
    nbytes = -t.nbytes[v.storage[i]]
    begin, end = v.before[i] + 1, v.after[i]
    if not v.wraps[i]:
        change[begin] += nbytes
        change[end] -= nbytes
        return
    change[0] += nbytes
    if end < begin:
        change[end] -= nbytes
        change[begin] += nbytes
    change[-1] -= nbytes


@making_arrays
def begin(t: Tables, links: Links, v: Idles, x: Line, choice: Ints, budget: int) -> State:
    """The state before the first step; what lacks at the places and on the tiers is in the register SHORT."""
    count, n, tiers, storages = len(x.sequence), len(choice), len(links.capacity), len(t.nbytes)
    z = State(
        levels(t, v, x, choice),
        np.zeros(count + 1, np.int64),
        np.zeros(count + 1, np.int64),
        np.zeros(count + 1, np.int64),
        np.zeros(2 * tiers, np.int64),
        np.full(count + 2, NO, np.int64),
        np.full(n, NO, np.int64),
        np.full(count + 1, NO, np.int64),
        np.full(n, NO, np.int64),
        np.zeros((tiers, n), np.int64),
        np.zeros(tiers, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.full(storages, NO - 1, np.int64),
        np.zeros(storages, np.int64),
        np.zeros((3, n + 1), np.int64),
        np.zeros(2, np.int64),
        np.full(tiers, NO, np.int64),
        np.full(count + 2, NO, np.int64),
        np.full(n, NO, np.int64),
        np.zeros((tiers, n), np.int64),
        np.zeros(tiers, np.int64),
        np.zeros(count + 2 * n, np.int64),
        np.zeros(count + 2 * n, np.int64),
        np.zeros(count + 2 * n, np.int64),
        np.zeros(LATEST + 1, np.int64),
    )
    for i in range(n - 1, -1, -1):
        if choice[i] == HERE:
            continue
        z.then[i], z.leaving[v.before[i] + 1] = z.leaving[v.before[i] + 1], i
        if v.since[i] < v.before[i]:
            z.next[i], z.written[v.since[i] + 1] = z.written[v.since[i] + 1], i
        if not (v.wraps[i] and v.after[i] >= count):
            z.later[i], z.needing[v.after[i]] = z.needing[v.after[i]], i
        else:
            z.fetched[i] = 1
        if v.wraps[i]:
            z.copied[v.storage[i]] = BEFORE
            if not z.fetched[i]:
                wait(v, z, i, choice[i])
    for i in range(n):
        if choice[i] != HERE and _needs_copy(v, z, choice, i):
            linger(t, links, v, x, z, i, choice[i], t.nbytes[v.storage[i]])
    for place in range(count + 1):
        z.register[SHORT] += max(0, z.level[place] - budget)
    for link in range(tiers):
        if links.capacity[link] != UNLIMITED:
            z.register[SHORT] += _lacks(t, links, v, z, choice, link, count)
    return z


@compiled
def _needs_copy(v: Idles, z: State, choice: Ints, i: int) -> bool:
    """Tell whether interval ``i`` is the first one to move of contents that are not on the tier yet."""
    if z.copied[v.storage[i]] == v.state[i]:
        return False
    k = v.other[i]
    while k != NO:
        if choice[k] != HERE and v.state[k] == v.state[i]:
            return False
        k = v.other[k]
    return True


@compiled
def linger(t: Tables, links: Links, v: Idles, x: Line, z: State, i: int, link: int, nbytes: int) -> None:
    """Count ``nbytes`` at the places behind the last use in interval ``i`` during which it is copied."""
    left, place = links.out_ns[link, v.storage[i]], v.before[i] + 1
    while left > 0 and place < len(x.sequence):
        z.lingers[place] += nbytes
        left -= t.ns[x.sequence[place]]
        place += 1


@making_arrays
def _lacks(t: Tables, links: Links, v: Idles, z: State, choice: Ints, link: int, count: int) -> int:
    """Bytes that the tier behind ``link`` lacks, summed over places; what is at home there is there all the time."""
    change = np.zeros(count + 2, np.int64)
    for i in range(len(choice)):
        if choice[i] == link and (v.wraps[i] or z.copied[v.storage[i]] != BEFORE):
            nbytes = t.nbytes[v.storage[i]]
            change[0 if v.wraps[i] else max(0, v.since[i])] += nbytes
            change[count + 1 if v.wraps[i] else v.after[i] + 1] -= nbytes
    total, short = 0, 0
    for place in range(count + 1):
        total += change[place]
        short += max(0, total - links.capacity[link])
    return short


@compiled
def wait(v: Idles, z: State, i: int, link: int) -> None:
    """Put an interval where its turn to be fetched is."""
    row, k = z.waiting[link], z.height[link]
    z.height[link] = k + 1
    while k > 0 and v.after[row[k - 1]] < v.after[i]:
        row[k] = row[k - 1]
        k -= 1
    row[k] = i
