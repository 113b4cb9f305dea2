"""Offload at any scale: what idles long and large moves first, where engines are free; ops wait only where they must.

Every idle interval whose transfers an engine can hide is a candidate. The one that takes most bytes times time out of
what exceeds the budget, per time of the engines, is chosen and reserved, until nothing exceeds it. Where no candidate
is left, an op waits: for the transfers that stall the step least per byte. What turns out to be needless is undone. The
axis then gives a list of steps, and the event rules say how long it takes: no longer than the axis.
"""

from __future__ import annotations

import numpy as np

from tensortide.compiled import compiled, entry_making_arrays, making_arrays
from tensortide.plans.transfers.kernels.arrays import BACK, HERE, OUT, RUN, Links, Tokens
from tensortide.plans.transfers.kernels.idles import Idles
from tensortide.plans.transfers.kernels.ledger import (
    BACK_NS,
    BACK_START,
    BEGIN,
    BEGIN_2,
    COLUMNS,
    END,
    END_2,
    LINK,
    NO,
    OUT_NS,
    OUT_START,
    SINCE,
    STALL,
    UNTIL,
    WAIT_AT,
    Ledger,
    cancel,
    end_of,
    place_from,
    place_until,
    put,
    reserve,
    stall,
)
from tensortide.plans.transfers.kernels.options import covers, is_used, option_of
from tensortide.plans.under_budget.tables import Floats, Ints, Tables

CLOSE = 0.9
"""Part of what the others promised that is taken for the best."""


@making_arrays
def last_of(v: Idles, storages: int) -> Ints:
    """For each storage the number of its last idle interval, or NO."""
    last = np.full(storages, NO, np.int64)
    for number in range(len(v.storage)):
        last[v.storage[number]] = number
    return last


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
        if option_of(t, links, v, r, last, number, link, NO, option):
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


@entry_making_arrays
def forced(t: Tables, links: Links, v: Idles, r: Ledger, steps: int) -> bool:
    """Let ops wait, in at most so many ``steps``; returns whether there may be more to do."""
    last = last_of(v, len(t.nbytes))
    option, best = np.zeros(COLUMNS, np.int64), np.zeros(COLUMNS, np.int64)
    while _most(r) > 0:
        if steps == 0:
            return True
        steps -= 1
        if not _forced(t, links, v, r, last, option, best):
            return False
    return False


@making_arrays
def _forced(t: Tables, links: Links, v: Idles, r: Ledger, last: Ints, option: Ints, best: Ints) -> bool:
    """Take something away where most is over the budget: what stalls the step least per byte."""
    at = r.excess.argmax()
    over, chosen, least, gain = r.excess[at], NO, 0.0, 0.0
    old = np.zeros(COLUMNS, np.int64)
    _sum(r)
    for number in range(len(v.storage)):
        inside = (
            (at < v.after[number] or at > v.before[number])
            if v.wraps[number]
            else v.before[number] < at < v.after[number]
        )
        known = r.chosen[number, LINK] != NO
        if not inside or (known and (covers(r.chosen[number], at) or is_used(v, r, last, number))):
            continue
        if known:
            put(old, r.chosen[number])
            _undo(t, v, r, number)
        for link in range(len(links.capacity)):
            if option_of(t, links, v, r, last, number, link, at, option):
                key = (option[STALL] + 1) / min(t.nbytes[v.storage[number]], over)
                gains = _gain(t, v, r, number, option)
                if chosen == NO or key < least or (key == least and gains > gain):
                    chosen, least, gain = number, key, gains
                    put(best, option)
        if known:
            _take(t, v, r, number, old)
    if chosen == NO:
        return False
    if r.chosen[chosen, LINK] != NO:
        _undo(t, v, r, chosen)
    _take(t, v, r, chosen, best)
    return True


@entry_making_arrays
def prune(t: Tables, v: Idles, r: Ledger) -> None:
    """Undo what is not needed, the least first."""
    last = last_of(v, len(t.nbytes))
    size = np.zeros(len(v.storage), np.int64)
    for number in range(len(size)):
        option = r.chosen[number]
        if option[LINK] != NO:
            length = option[END] - option[BEGIN] + option[END_2] - option[BEGIN_2]
            size[number] = 1 + t.nbytes[v.storage[number]] * length
    for number in np.argsort(size, kind="mergesort"):
        if not size[number] or is_used(v, r, last, number):
            continue
        option, nbytes, needed = r.chosen[number], t.nbytes[v.storage[number]], False
        for pair in (BEGIN, BEGIN_2):
            for place in range(max(0, option[pair]), option[pair + 1]):
                needed = needed or r.excess[place] + nbytes > 0
        if not needed:
            _undo(t, v, r, number)


@compiled
def _take(t: Tables, v: Idles, r: Ledger, number: int, option: Ints) -> None:
    """Choose ``option`` for an idle interval."""
    if option[STALL] > 0:
        _wait(v, r, number, option)
    link = option[LINK]
    if option[OUT_NS] != NO:
        reserve(r, 2 * link, option[OUT_START], option[OUT_NS], number)
    if option[BACK_NS] != NO:
        reserve(r, 2 * link + 1, option[BACK_START], option[BACK_NS], number)
    _hold(t, v, r, number, option, 1)
    put(r.chosen[number], option)
    r.chosen[number, STALL], r.chosen[number, WAIT_AT] = 0, NO


@compiled
def _undo(t: Tables, v: Idles, r: Ledger, number: int) -> None:
    option = r.chosen[number]
    link = option[LINK]
    if option[OUT_NS] != NO:
        cancel(r, 2 * link, number)
    if option[BACK_NS] != NO:
        cancel(r, 2 * link + 1, number)
    _hold(t, v, r, number, option, -1)
    option[LINK] = NO


@compiled
def _hold(t: Tables, v: Idles, r: Ledger, number: int, option: Ints, sign: int) -> None:
    nbytes = sign * t.nbytes[v.storage[number]]
    for pair in (BEGIN, BEGIN_2):
        for place in range(max(0, option[pair]), option[pair + 1]):
            r.excess[place] -= nbytes
    if option[SINCE] != NO:
        for place in range(option[SINCE], option[UNTIL] + 1):
            r.tier[option[LINK], place] += nbytes


@compiled
def _wait(v: Idles, r: Ledger, number: int, option: Ints) -> None:
    """Make the ops wait that the option makes wait; of its own transfers those shift that do not cause it."""
    count, before, after = len(r.ends), v.before[number], v.after[number]
    has_back = option[BACK_NS] != NO
    for turn in range(3):
        released = turn == (1 if has_back and option[WAIT_AT] > after else 0)
        if turn == 2:
            place = count if v.wraps[number] else NO
        elif released:
            place = option[WAIT_AT]
        else:
            place = after if has_back else NO
        if place == NO:
            continue
        begin = r.starts[place]
        if turn < 2 and not released:
            by = option[BACK_START] + option[BACK_NS] - begin
        else:
            out = option[OUT_START] + option[OUT_NS] if option[OUT_NS] != NO else 0
            by = max(out, end_of(r, before)) - begin
        if by <= 0:
            continue
        if turn < 2 and released and has_back and option[BACK_START] >= begin:
            option[BACK_START] += by
        if turn < 2 and not released and option[OUT_NS] != NO and option[OUT_START] >= begin:
            option[OUT_START] += by
        stall(r, place, by)


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
