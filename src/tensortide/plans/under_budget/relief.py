"""Recomputation beside transfers, compiled: at the peaks that remain when what can move unnoticed has moved."""

from __future__ import annotations

import numpy as np

from tensortide.plans.compiled import compiled, making_arrays
from tensortide.plans.under_budget.kernels import FULL, STAMP, Survey, _last_event, best_idle, restore, survey
from tensortide.plans.under_budget.moves import TRIED, _excess, _without, evaluated, unit
from tensortide.plans.under_budget.tables import Floats, Ints, Tables

_UNLIMITED = 1 << 61
_PARTS = 32
"""Longest chain of writes that is left out together."""


@making_arrays
def relieve(
    t: Tables, v: Survey, sequence: Ints, away: Ints, limit: int, noise: Floats, sharpness: float, steps: int
) -> tuple[bool, Ints, Ints]:
    """Insert recomputations until ``sequence`` fits within ``limit`` bytes and those ``away`` at each of its places, or
    so many ``steps``; returns whether there may be more to do. ``noise``, ``sharpness``: see ``moves.repair``."""
    peak, first, level = evaluated(t, v, sequence)
    if peak < 0:
        return False, sequence, away
    level -= away
    best, score = np.zeros(TRIED, np.int64), np.zeros(TRIED)
    while level.max() > limit:
        if steps == 0:
            return True, sequence, away
        steps -= 1
        count = survey(t, sequence, first, level, v)
        if count == FULL:
            return False, sequence, away
        most, worst = level.max() - limit, level.argmax()
        sums = np.zeros(len(sequence) + 1)
        for place in range(len(sequence)):
            over = max(level[place] - limit, 0)
            sums[place + 1] = sums[place] + (over / most) ** sharpness * (over > 0)
        v.counts[STAMP] = best_idle(t, v, count, worst, sums, noise, limit, v.counts[STAMP], best, score)
        total, moved = _excess(first, level, limit), False
        for k in range(TRIED):
            if best[k] < 0:
                break
            place, length = v.behind[best[k]], _burst(t, v, best[k], limit)
            longer, gone = _inserted(sequence, away, v.burst, place, length)
            peak, places, levels = evaluated(t, v, longer)
            levels -= gone
            after = _excess(places, levels, limit) if peak >= 0 else 0
            if peak >= 0 and (after < total or (after == total and levels.max() < most + limit)):
                sequence, away, first, level, moved = longer, gone, places, levels, True
                break
        if not moved:
            return False, sequence, away
    return False, sequence, away


@compiled
def _burst(t: Tables, v: Survey, interval: int, limit: int) -> int:
    """Put the ops that restore what interval ``interval`` holds into ``v.burst``; returns how many."""
    s, place = v.storage[interval], v.behind[interval]
    v.counts[STAMP] += 1
    return restore(t, v, s, v.needed[_last_event(v, s, place)], place, v.counts[STAMP], limit, _UNLIMITED)


@making_arrays
def _inserted(sequence: Ints, away: Ints, burst: Ints, place: int, length: int) -> tuple[Ints, Ints]:
    """``sequence`` with a burst before ``place``, during which as much is away as then."""
    found, gone = np.empty(len(sequence) + length, np.int64), np.empty(len(sequence) + length, np.int64)
    found[:place], gone[:place] = sequence[:place], away[:place]
    found[place : place + length], gone[place : place + length] = burst[:length], away[place]
    found[place + length :], gone[place + length :] = sequence[place:], away[place:]
    return found, gone


@making_arrays
def trim(t: Tables, v: Survey, sequence: Ints, away: Ints, limit: int, steps: int) -> tuple[bool, Ints, Ints]:
    """Leave out recomputations that are superfluous, the longest first, so many at most; returns whether there may be
    more. ``sequence`` fits within ``limit`` bytes and those ``away`` at each of its places, before and after."""
    parts = np.zeros(_PARTS, np.int64)
    for _ in range(steps):
        peak, first, level = evaluated(t, v, sequence)
        level -= away
        if peak < 0 or survey(t, sequence, first, level, v) == FULL:
            return False, sequence, away
        times = np.zeros(len(sequence), np.int64)
        for place in range(len(sequence)):
            if first[sequence[place]] != place and unit(t, v, sequence, first, place, limit, parts):
                times[place] = -1 - t.ns[sequence[place]]
        moved = False
        for place in np.argsort(times, kind="mergesort"):
            if times[place] == 0:
                break
            count = unit(t, v, sequence, first, place, limit, parts)
            shorter, gone = _without(sequence, parts, count), _without(away, parts, count)
            peak, _, level = evaluated(t, v, shorter)
            if peak >= 0 and (level - gone).max() <= limit:
                sequence, away, moved = shorter, gone, True
                break
        if not moved:
            return False, sequence, away
    return True, sequence, away
