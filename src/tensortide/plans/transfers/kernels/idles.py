"""Idle intervals of storages in a sequence of ops, compiled.

A *sequence* is a list of ops in which each stands at least once; what stands again is recomputed. A *place* is the
position of an op in it; -1 is the start of the step, and the length of the sequence its end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensortide.compiled import compiled, entry_making_arrays, making_arrays
from tensortide.plans.instance import BEFORE
from tensortide.plans.transfers.kernels.arrays import Links
from tensortide.plans.under_budget.tables import NONE, Ints, Tables

_NO = -2
"""No place: the storage has none yet."""


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


class _Walk(NamedTuple):
    """Per storage of a walk along a sequence: ``begin`` of its residence, its last touch, since when its contents are
    complete and of which state; its first and its last touch by an op; the interval that was found last."""

    begin: Ints
    last: Ints
    since: Ints
    state: Ints
    first_run: Ints
    last_run: Ints
    chain: Ints
    change: Ints
    found: Ints


@entry_making_arrays
def idles(t: Tables, links: Links, sequence: Ints) -> Idles:
    """Find the residences of a sequence in which nothing moves, each as short as it can be, and what idles in them."""
    count, storages = len(sequence), len(t.nbytes)
    most = 3 * storages
    for place in range(count):
        op = sequence[place]
        most += t.touch_ends[op + 1] - t.touch_ends[op] + t.make_ends[op + 1] - t.make_ends[op]
    rows = np.zeros((7, most), np.int64)
    v = Idles(rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], np.zeros(count, np.int64))
    per = np.full((7, storages), _NO, np.int64)
    w = _Walk(
        per[0], per[1], per[2], per[3], per[4], per[5], per[6], np.zeros(count + 1, np.int64), np.zeros(1, np.int64)
    )
    w.chain[:] = -1
    ran = np.zeros(len(t.ns), np.int64)
    for s in range(storages):
        if t.given[s]:
            _touch(t, links, v, w, s, -1, BEFORE, 1, count)
    for place in range(count):
        _run(t, links, v, w, sequence[place], place, ran[sequence[place]], count)
        ran[sequence[place]] = 1
    for s in range(storages):
        if t.final[s] != NONE:
            _touch(t, links, v, w, s, count, t.final[s], 0, count)
        if w.begin[s] == _NO:
            continue
        if links.persistent[s] and links.movable[s]:
            ran_once = w.last_run[s] >= 0
            last, first = (w.last_run[s], w.first_run[s]) if ran_once else (-1, count)
            _add(v, w, s, last, first, w.since[s], w.state[s], 1)
        _end(t, w, s, count)
    held = 0
    for place in range(count):
        held += w.change[place]
        v.level[place] += held
    n = w.found[0]
    return Idles(rows[0, :n], rows[1, :n], rows[2, :n], rows[3, :n], rows[4, :n], rows[5, :n], rows[6, :n], v.level)


@making_arrays
def last_of(v: Idles, storages: int) -> Ints:
    """For each storage the number of its last idle interval, or -1."""
    last = np.full(storages, -1, np.int64)
    for number in range(len(v.storage)):
        last[v.storage[number]] = number
    return last


@compiled
def _run(t: Tables, links: Links, v: Idles, w: _Walk, op: int, place: int, again: int, count: int) -> None:
    v.level[place] += t.workspace[op]
    for k in range(t.touch_ends[op], t.touch_ends[op + 1]):
        if not (again and t.blind[k]):
            _touch(t, links, v, w, t.touched[k], place, op if t.writes[k] else t.state[k], 0, count)
    for k in range(t.make_ends[op], t.make_ends[op + 1]):
        _touch(t, links, v, w, t.made[k], place, op, 1, count)


@compiled
def _touch(t: Tables, links: Links, v: Idles, w: _Walk, s: int, place: int, state: int, makes: int, count: int) -> None:
    """``s`` is touched at ``place``, and its contents are then of ``state``; ``makes``: a residence begins."""
    if makes and w.begin[s] != _NO and not t.pinned[s]:
        _end(t, w, s, count)
        w.begin[s] = _NO
    if w.begin[s] == _NO:
        w.begin[s], w.since[s] = place, place
        if 0 <= place < count and w.first_run[s] == _NO:
            w.first_run[s] = place
    else:
        if makes:
            v.level[place] += t.nbytes[s]
        if place > w.last[s] + 1 and links.movable[s]:
            _add(v, w, s, w.last[s], place, w.since[s], w.state[s], 0)
        if state != w.state[s]:
            w.since[s] = place
        if 0 <= place < count and w.first_run[s] == _NO:
            w.first_run[s] = place
    if 0 <= place < count:
        w.last_run[s] = place
    w.last[s], w.state[s] = place, state


@compiled
def _end(t: Tables, w: _Walk, s: int, count: int) -> None:
    begin, end = max(w.begin[s], 0), min(w.last[s] + 1, count)
    w.change[begin] += t.nbytes[s]
    w.change[max(begin, end)] -= t.nbytes[s]


@compiled
def _add(v: Idles, w: _Walk, s: int, before: int, after: int, since: int, state: int, wraps: int) -> None:
    n = w.found[0]
    v.storage[n], v.before[n], v.after[n], v.since[n] = s, before, after, since
    v.state[n], v.wraps[n], v.other[n] = state, wraps, w.chain[s]
    w.chain[s] = n
    w.found[0] = n + 1
