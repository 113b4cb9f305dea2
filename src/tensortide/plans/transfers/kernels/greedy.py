"""Offload that stalls nothing, at any scale: what idles long and large moves first, where engines are free.

Every idle interval whose transfers an engine can hide is a candidate. The one that takes most bytes times time out of
what exceeds the budget, per time of the engines, is chosen and reserved, until nothing exceeds it or none is left.
"""

from __future__ import annotations

import numpy as np

from tensortide.compiled import compiled, entry_making_arrays
from tensortide.plans.transfers.kernels.arrays import BACK, HERE, OUT, RUN, Links, Tokens
from tensortide.plans.transfers.kernels.idles import Idles, last_of
from tensortide.plans.transfers.kernels.ledger import (
    BACK_NS,
    BACK_START,
    BEGIN,
    BEGIN_2,
    COLUMNS,
    LINK,
    NO,
    OUT_NS,
    OUT_START,
    SINCE,
    UNTIL,
    Ledger,
    place_from,
    place_until,
    put,
    reserve,
)
from tensortide.plans.transfers.kernels.options import option_of
from tensortide.plans.under_budget.tables import Floats, Ints, Tables

CLOSE = 0.9
"""Part of what the others promised that is taken for the best."""


@compiled
def _most(r: Ledger) -> int:
    most = 0
    for place in range(len(r.excess)):
        most = max(most, r.excess[place])
    return most


@entry_making_arrays
def begin(t: Tables, links: Links, v: Idles, r: Ledger, weight: Floats, score: Floats) -> None:
    """Score all idle intervals. ``weight``: by which factor one ranks higher."""
    last = last_of(v, len(t.nbytes))
    option, best = np.zeros(COLUMNS, np.int64), np.zeros(COLUMNS, np.int64)
    _sum(r)
    for number in range(len(score)):
        score[number] = _best(t, links, v, r, last, number, weight[number], option, best)


@entry_making_arrays
def hidden(t: Tables, links: Links, v: Idles, r: Ledger, weight: Floats, score: Floats, steps: int) -> bool:
    """Choose what stalls nothing, in at most so many ``steps``; returns whether there may be more to choose.

    Gains only fall, so an option that leads when it is computed anew is close to the best.
    """
    last = last_of(v, len(t.nbytes))
    option, best = np.zeros(COLUMNS, np.int64), np.zeros(COLUMNS, np.int64)
    over = _most(r)
    while over > 0 and steps > 0:
        steps -= 1
        lead, second = _leaders(score)
        if lead == NO:
            return False
        score[lead] = _best(t, links, v, r, last, lead, weight[lead], option, best)
        if score[lead] > 0 and score[lead] >= CLOSE * second:
            _take(t, v, r, lead, best)
            _sum(r)
            over = _most(r)
            score[lead] = 0.0
    return bool(over > 0)


@compiled
def _leaders(score: Floats) -> tuple[int, float]:
    """The number of the highest score, and the second highest."""
    lead, first, second = NO, 0.0, 0.0
    for number in range(len(score)):
        if score[number] > first:
            lead, first, second = number, score[number], first
        elif score[number] > second:
            second = score[number]
    return lead, second


@compiled
def _best(
    t: Tables, links: Links, v: Idles, r: Ledger, last: Ints, number: int, weight: float, option: Ints, best: Ints
) -> float:
    """Put the option that lowers the excess most per time of engines into ``best``; returns its score, 0 if none."""
    score = 0.0
    for link in range(len(links.capacity)):
        if option_of(t, links, v, r, last, number, link, option):
            busy = max(0, option[OUT_NS]) + max(0, option[BACK_NS])
            found = _gain(t, v, r, number, option) * weight / (busy + 1)
            if found > score:
                score = found
                put(best, option)
    return score


@compiled
def _sum(r: Ledger) -> None:
    """Sum up the time during which something exceeds the budget, before each place."""
    total = 0
    for place in range(len(r.excess)):
        r.over_ns[place] = total
        if r.excess[place] > 0:
            total += r.starts[place + 1] - r.starts[place] + 1
    r.over_ns[len(r.excess)] = total


@compiled
def _gain(t: Tables, v: Idles, r: Ledger, number: int, option: Ints) -> float:
    """Bytes times the time during which they are away while something exceeds the budget."""
    total = 0
    for pair in (BEGIN, BEGIN_2):
        if option[pair] < option[pair + 1]:
            total += r.over_ns[option[pair + 1]] - r.over_ns[option[pair]]
    return float(t.nbytes[v.storage[number]]) * total


@compiled
def _take(t: Tables, v: Idles, r: Ledger, number: int, option: Ints) -> None:
    """Choose ``option`` for an idle interval."""
    link, nbytes = option[LINK], t.nbytes[v.storage[number]]
    if option[OUT_NS] != NO:
        reserve(r, 2 * link, option[OUT_START], option[OUT_NS])
    if option[BACK_NS] != NO:
        reserve(r, 2 * link + 1, option[BACK_START], option[BACK_NS])
    for pair in (BEGIN, BEGIN_2):
        for place in range(max(0, option[pair]), option[pair + 1]):
            r.excess[place] -= nbytes
    if option[SINCE] != NO:
        for place in range(option[SINCE], option[UNTIL] + 1):
            r.tier[link, place] += nbytes
    put(r.chosen[number], option)


@entry_making_arrays
def tokens(v: Idles, r: Ledger, sequence: Ints, home: Ints) -> Tokens:
    """Ops and transfers in an order that fits the budget: between two ops the copies stand before the fetches.

    ``home``: the homes of storages that no chosen option says otherwise of.
    """
    count, most = len(sequence), len(sequence) + 2 * len(v.storage)
    rows, key, start = np.zeros((3, most), np.int64), np.zeros(most, np.int64), np.zeros(most, np.int64)
    homes = home.copy()
    last = last_of(v, len(home))
    for place in range(count):
        rows[0, place], rows[1, place], rows[2, place], key[place] = RUN, sequence[place], HERE, 4 * place
    n = count
    for number in range(len(v.storage)):
        option, s = r.chosen[number], v.storage[number]
        if option[LINK] == NO:
            continue
        if v.wraps[number]:
            homes[s] = option[LINK]
        if option[OUT_NS] != NO and _is_first(v, r, last, number):
            rows[0, n], rows[1, n], rows[2, n], start[n] = OUT, s, option[LINK], option[OUT_START]
            key[n] = 4 * max(_place_at(r, option[OUT_START]), v.since[number]) + 1
            n += 1
        if option[BACK_NS] != NO:
            rows[0, n], rows[1, n], rows[2, n], start[n] = BACK, s, option[LINK], option[BACK_START]
            key[n] = 4 * min(place_until(r, option[BACK_START]), v.after[number]) - 1
            n += 1
    order = np.argsort(start[:n], kind="mergesort")
    order = order[np.argsort(key[:n][order], kind="mergesort")]
    return Tokens(rows[0, :n][order], rows[1, :n][order], rows[2, :n][order], homes)


@compiled
def _is_first(v: Idles, r: Ledger, last: Ints, number: int) -> bool:
    """Tell whether no other option copies the same contents to the same tier earlier, which serves this one too."""
    start, k = r.chosen[number, OUT_START], last[v.storage[number]]
    while k != NO:
        other = r.chosen[k]
        alike = other[LINK] == r.chosen[number, LINK] and other[OUT_NS] != NO and v.state[k] == v.state[number]
        if alike and (other[OUT_START] < start or (other[OUT_START] == start and k < number)):
            return False
        k = v.other[k]
    return True


@compiled
def _place_at(r: Ledger, time_ns: int) -> int:
    """The last place that has begun by ``time_ns``; -1 before the first."""
    return int(place_from(r, time_ns + 1) - 1)
