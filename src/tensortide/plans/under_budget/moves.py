"""Local search on sequences, compiled: repair what is over the budget, prune recomputations, ruin and repair parts.

Random numbers are drawn from ``dice``, an array with the state of a linear congruential generator, so they are the same
with and without Numba.
"""

from __future__ import annotations

import math

import numpy as np

from tensortide.compiled import compiled, entry, entry_making_arrays, making_arrays
from tensortide.plans.under_budget.kernels import (
    EVALUATED,
    FULL,
    STAMP,
    STOP,
    Survey,
    _last_event,
    _most,
    best_idle,
    profile,
    restore,
    survey,
)
from tensortide.plans.under_budget.tables import NONE, Floats, Ints, Tables

TRIED = 6
"""Idle intervals that are tried for each step of a repair, the most promising ones."""
MOST_RUINED = 32
"""Recomputations that are left out at once, at most."""
_PARTS = 32
"""Longest chain of writes that is left out together."""
_UNLIMITED = 1 << 61
_FLOOR = 1e-4
"""Least weight of an op that exceeds the limit, of the largest price."""
_PRICED = 0.5
"""Share of the repairs that go by prices, where there are any."""
ILLEGAL = -(1 << 61)
"""The most bytes of a sequence that is no plan."""
FITS, STUCK, MORE = 1, 0, -1
"""Outcomes of a repair."""


@entry_making_arrays
def evaluated(t: Tables, v: Survey, sequence: Ints) -> tuple[int, Ints, Ints]:
    """The most bytes of ``sequence`` (-1: it is not legal), the place of each op's first run, and the bytes of each
    place."""
    first = np.full(len(t.ns), -1, np.int64)
    for place in range(len(sequence) - 1, -1, -1):
        first[sequence[place]] = place
    level = np.zeros(len(sequence), np.int64)
    v.counts[EVALUATED] += 1
    if profile(t, sequence, first, v.need, level) >= 0:
        return -1, first, level
    most = 0
    for place in range(len(level)):
        most = max(most, level[place])
    return most, first, level


@making_arrays
def beside(t: Tables, v: Survey, sequence: Ints, away: Ints) -> tuple[int, Ints, Ints]:
    """As ``evaluated``, less what is ``away`` at each place; ILLEGAL for the most bytes of what is not legal."""
    most, first, level = evaluated(t, v, sequence)
    if most < 0:
        return ILLEGAL, first, level
    most = ILLEGAL
    for place in range(len(level)):
        level[place] -= away[place]
        most = max(most, level[place])
    return most, first, level


@compiled
def time_of(t: Tables, sequence: Ints) -> int:
    """The time of ``sequence`` in nanoseconds."""
    total = 0
    for place in range(len(sequence)):
        total += t.ns[sequence[place]]
    return total


@entry
def chance(dice: Ints) -> float:
    """A number of [0, 1)."""
    dice[0] = (dice[0] * 1103515245 + 12345) % 2147483648
    return dice[0] / 2147483648


@entry_making_arrays
def repair(
    t: Tables,
    v: Survey,
    sequence: Ints,
    away: Ints,
    limit: int,
    noise: Floats,
    sharpness: float,
    prices: Floats,
    steps: int,
) -> tuple[int, Ints, Ints]:
    """Insert recomputations until ``sequence`` fits within ``limit`` bytes and those ``away`` at each of its places:
    FITS; STUCK if no move helps any more; MORE after so many ``steps``. Returns what is away at the new places, too.

    At the place with the most bytes, what is idle is evicted that relieves it and its neighbours most for the time that
    it takes to restore it, closures included. ``sharpness``: 0: any excess counts alike; 1: as much as it is; below 0:
    as much as the ``prices`` of the ops that exceed the limit, of their first runs.
    """
    most, first, level = beside(t, v, sequence, away)
    best, score = np.zeros(TRIED, np.int64), np.zeros(TRIED)
    while most > limit and steps > 0 and not v.counts[STOP]:
        steps -= 1
        count = survey(t, sequence, first, level, v)
        if count == FULL:
            return STUCK, sequence, away
        worst = 0
        sums = np.zeros(len(sequence) + 1)
        for place in range(len(sequence)):
            over = max(level[place] - limit, 0)
            worst = place if level[place] > level[worst] else worst
            if sharpness >= 0:
                weight = (over / (most - limit)) ** sharpness
            else:
                weight = _FLOOR + prices[sequence[place]] * (first[sequence[place]] == place)
            sums[place + 1] = sums[place] + weight * (over > 0)
        v.counts[STAMP] = best_idle(t, v, count, worst, sums, noise, limit, v.counts[STAMP], best, score)
        total = _excess(first, level, limit)
        moved = False
        for k in range(TRIED):
            if best[k] < 0:
                break
            place, length = v.behind[best[k]], _burst(t, v, best[k], limit)
            longer = _inserted(sequence, v.burst[:length], place)
            gone = _inserted(away, np.full(length, away[place] if place < len(away) else 0), place)
            peak, places, levels = beside(t, v, longer, gone)
            after = _excess(places, levels, limit) if peak != ILLEGAL else 0
            if peak != ILLEGAL and (after < total or (after == total and peak < most)):
                sequence, away, most, first, level, moved = longer, gone, peak, places, levels, True
                break
        if not moved:
            return STUCK, sequence, away
    return (FITS if most <= limit else MORE), sequence, away


@compiled
def _excess(first: Ints, level: Ints, limit: int) -> int:
    """Bytes above ``limit``, summed over first runs."""
    total = 0
    for op in range(len(first)):
        total += max(0, level[first[op]] - limit)
    return total


@compiled
def _burst(t: Tables, v: Survey, interval: int, limit: int) -> int:
    """Put the ops that restore what idle ``interval`` holds into ``v.burst``; returns how many."""
    v.counts[STAMP] += 1
    return restore(t, v, interval, v.counts[STAMP], limit, _UNLIMITED)


@making_arrays
def _inserted(numbers: Ints, more: Ints, place: int) -> Ints:
    """``numbers`` with ``more`` before ``place``."""
    found = np.empty(len(numbers) + len(more), np.int64)
    found[:place] = numbers[:place]
    found[place : place + len(more)] = more
    found[place + len(more) :] = numbers[place:]
    return found


@compiled
def unit(t: Tables, v: Survey, sequence: Ints, first: Ints, place: int, limit: int, parts: Ints) -> int:
    """Put ``place``, a recomputation, and the writes into what it makes that follow it into ``parts``; returns how many
    can be left out together if what they make stays resident instead, within ``limit``; else 0."""
    count = 1
    parts[0] = place
    op = sequence[place]
    for k in range(t.make_ends[op], t.make_ends[op + 1]):
        s = t.made[k]
        event = _last_event(v, s, place + 1)
        if event < 0 or v.place[event] != place:
            continue
        before = event - 1
        while event + 1 < v.ends[s] and v.needed[event] != NONE and v.after[event + 1] != v.needed[event]:
            writer = v.place[event + 1]
            if first[sequence[writer]] == writer or count == len(parts):
                return 0
            event += 1
            parts[count] = writer
            count += 1
        if v.needed[event] == NONE:
            continue
        if before < v.begins[s] or v.after[before] != v.needed[event]:
            return 0
        if _most(v, v.place[before] + 1, v.place[event]) + t.nbytes[s] > limit:
            return 0
    return count


@making_arrays
def _without(sequence: Ints, parts: Ints, count: int) -> Ints:
    """``sequence`` without the places ``parts[:count]``."""
    gone = np.zeros(len(sequence), np.int64)
    for k in range(count):
        gone[parts[k]] = 1
    found = np.empty(len(sequence) - gone.sum(), np.int64)
    at = 0
    for place in range(len(sequence)):
        if not gone[place]:
            found[at] = sequence[place]
            at += 1
    return found


@entry_making_arrays
def prune(t: Tables, v: Survey, sequence: Ints, away: Ints, limit: int) -> tuple[Ints, Ints]:
    """Leave out recomputations that are superfluous within ``limit`` bytes and those ``away`` at each place, the
    longest first, until none is. Returns what is away at the places that are left, too."""
    parts = np.zeros(_PARTS, np.int64)
    moved = True
    while moved and not v.counts[STOP]:
        moved = False
        _, first, level = beside(t, v, sequence, away)
        if survey(t, sequence, first, level, v) == FULL:
            return sequence, away
        times = np.zeros(len(sequence), np.int64)
        for place in range(len(sequence)):
            if first[sequence[place]] != place and unit(t, v, sequence, first, place, limit, parts):
                times[place] = -1 - t.ns[sequence[place]]
        names = np.arange(len(sequence))  # of the places, which shift
        for name in np.argsort(times, kind="mergesort"):
            if times[name] == 0 or v.counts[STOP]:
                break
            place = np.searchsorted(names, name)
            if place == len(names) or names[place] != name:
                continue
            count = unit(t, v, sequence, first, place, limit, parts)
            if not count:
                continue
            shorter, gone = _without(sequence, parts, count), _without(away, parts, count)
            peak, places, levels = beside(t, v, shorter, gone)
            if peak != ILLEGAL and peak <= limit:
                moved = True
                names = _without(names, parts, count)
                sequence, away, first = shorter, gone, places
                if survey(t, sequence, first, levels, v) == FULL:
                    return sequence, away
    return sequence, away


@entry_making_arrays
def ruin(t: Tables, v: Survey, sequence: Ints, dice: Ints) -> Ints:
    """Leave out some recomputations, most often neighbours, whatever the bytes."""
    parts = np.zeros(_PARTS, np.int64)
    _, first, level = evaluated(t, v, sequence)
    again = len(sequence) - len(first)
    if not again:
        return sequence
    size = 1 + int(chance(dice) ** 2 * min(again, MOST_RUINED))
    middle = int(chance(dice) * again)
    scattered = chance(dice) < 0.3
    begin = max(0, middle - size // 2)
    for k in range(size):
        if v.counts[STOP]:
            break
        at = int(chance(dice) * again) if scattered else begin + size - 1 - k
        number = 0
        _, first, level = evaluated(t, v, sequence)
        if survey(t, sequence, first, level, v) == FULL:
            return sequence
        for place in range(len(sequence)):
            if first[sequence[place]] == place:
                continue
            if number == at:
                count = unit(t, v, sequence, first, place, _UNLIMITED, parts)
                shorter = _without(sequence, parts, count)
                peak, _, _ = evaluated(t, v, shorter)
                if peak >= 0:
                    sequence = shorter
                break
            number += 1
        again = len(sequence) - len(first)
    return sequence


@entry_making_arrays
def rounds(
    t: Tables,
    v: Survey,
    sequence: Ints,
    best: Ints,
    limit: int,
    dice: Ints,
    count: int,
    heat: float,
    prices: Floats,
) -> tuple[Ints, Ints]:
    """Ruin ``sequence`` and repair it, so many times; returns the last one taken, and the best, of ``best`` too.

    What takes longer is taken with a chance that falls with how much longer, in parts of ``heat`` nanoseconds.
    """
    time, least = time_of(t, sequence), time_of(t, best)
    noise = np.ones(len(t.nbytes))
    is_priced = prices.max() > 0
    for _ in range(count):
        if v.counts[STOP]:
            break
        strength = chance(dice)
        for s in range(len(noise)):
            noise[s] = (0.5 + chance(dice)) ** strength
        sharpness = chance(dice)
        if is_priced and chance(dice) < _PRICED:
            sharpness = -1.0
        found = ruin(t, v, sequence, dice)
        outcome, found, away = repair(t, v, found, np.zeros(len(found), np.int64), limit, noise, sharpness, prices, 256)
        if outcome != FITS:
            continue
        found, _ = prune(t, v, found, away, limit)
        taken = time_of(t, found)
        if taken <= time - heat * math.log(1 - chance(dice)):
            sequence, time = found, taken
        if taken < least:
            best, least = found, taken
    return sequence, best
