"""Reservations of copy engines and of room on tiers, over the time of a step whose ops wait for nothing; compiled.

The axis has a slot for each place of the sequence. An *option* is a row of numbers, the columns ``LINK`` to ``FREE``:
an idle interval moved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensortide.compiled import compiled, entry_making_arrays
from tensortide.plans.transfers.kernels.arrays import UNLIMITED, Links
from tensortide.plans.transfers.kernels.idles import Idles
from tensortide.plans.under_budget.tables import Ints, Tables

NO = -1
COLUMNS = 12
LINK, OUT_START, OUT_NS, BACK_START, BACK_NS, BEGIN, END, BEGIN_2, END_2, SINCE, UNTIL, FREE = range(COLUMNS)
"""``LINK``: the number of the link, NO if the interval does not move. ``OUT_*``: the copy, its time NO if the tier has
these contents already; ``BACK_*``: the fetch, NO if nothing needs it. ``BEGIN`` to ``END``, and the second pair: places
during which it is away. ``SINCE``, ``UNTIL``: places between which the tier holds it. ``FREE``: when it is released."""


class Ledger(NamedTuple):
    """The axis: ``starts`` of every place and of the end, ``ends`` of every place. ``excess``: bytes over the budget at
    each place; ``over_ns``: the time of those before a place that are over. ``tier``: bytes per link and place.

    Transfers of engine 2 * link (out) and 2 * link + 1 (in), sorted by start, none at the same time as another:
    ``begin``, ``time``, ``busy`` many. ``chosen``: an option per idle interval.
    """

    starts: Ints
    ends: Ints
    excess: Ints
    over_ns: Ints
    tier: Ints
    begin: Ints
    time: Ints
    busy: Ints
    chosen: Ints


@entry_making_arrays
def ledger(t: Tables, links: Links, v: Idles, sequence: Ints, budget: int) -> Ledger:
    """An empty ledger, in which every op starts when the one before it ends."""
    count, n = len(sequence), len(v.storage)
    engines = 2 * len(links.capacity)
    r = Ledger(
        np.zeros(count + 1, np.int64),
        np.zeros(count, np.int64),
        v.level - budget,
        np.zeros(count + 1, np.int64),
        np.zeros((len(links.capacity), count + 1), np.int64),
        np.zeros((engines, n + 1), np.int64),
        np.zeros((engines, n + 1), np.int64),
        np.zeros(engines, np.int64),
        np.full((n, COLUMNS), NO, np.int64),
    )
    for place in range(count):
        r.ends[place] = r.starts[place] + t.ns[sequence[place]]
        r.starts[place + 1] = r.ends[place]
    return r


@compiled
def put(into: Ints, option: Ints) -> None:
    """Copy ``option`` into another row."""
    for k in range(COLUMNS):
        into[k] = option[k]


@compiled
def end_of(r: Ledger, place: int) -> int:
    """Return when the op at ``place`` ends; 0 before the first."""
    return r.ends[place] if place >= 0 else 0


@compiled
def place_from(r: Ledger, time_ns: int) -> int:
    """The first place that starts at ``time_ns`` or later."""
    return int(_left(r.starts, len(r.ends), time_ns))


@compiled
def place_until(r: Ledger, time_ns: int) -> int:
    """The place behind the last one that ends by ``time_ns``."""
    return int(_left(r.ends, len(r.ends), time_ns + 1))


@compiled
def _left(numbers: Ints, count: int, wanted: int) -> int:
    """The first of the ascending ``numbers`` that is no less than ``wanted``."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def earliest(r: Ledger, engine: int, since: int, time_ns: int) -> int:
    """The earliest start from ``since`` on of a transfer of that length."""
    at, count = since, r.busy[engine]
    begin, time = r.begin[engine], r.time[engine]
    for k in range(max(0, _left(begin, count, since) - 1), count):
        if at + time_ns <= begin[k]:
            break
        at = max(at, begin[k] + time[k])
    return at


@compiled
def latest(r: Ledger, engine: int, since: int, until: int, time_ns: int) -> int:
    """The latest start of a transfer of that length that lies between ``since`` and ``until``; NO if there is none."""
    at = until - time_ns
    begin, time = r.begin[engine], r.time[engine]
    for k in range(_left(begin, r.busy[engine], until + 1) - 1, -1, -1):
        if at < since or begin[k] + time[k] <= at:
            break
        if begin[k] < at + time_ns:
            at = begin[k] - time_ns
    return at if at >= since else NO


@compiled
def reserve(r: Ledger, engine: int, start: int, time_ns: int) -> None:
    """Put a transfer on the engine."""
    begin, time = r.begin[engine], r.time[engine]
    k = r.busy[engine]
    r.busy[engine] = k + 1
    while k and begin[k - 1] > start:
        begin[k], time[k] = begin[k - 1], time[k - 1]
        k -= 1
    begin[k], time[k] = start, time_ns


@compiled
def has_room(links: Links, r: Ledger, link: int, nbytes: int, first: int, last: int) -> bool:
    """Tell whether the tier has room for ``nbytes`` from the place ``first`` to the place ``last``."""
    if links.capacity[link] == UNLIMITED:
        return True
    for place in range(first, last + 1):  # noqa: SIM110 -- a generator is not compiled
        if r.tier[link, place] + nbytes > links.capacity[link]:
            return False
    return True
