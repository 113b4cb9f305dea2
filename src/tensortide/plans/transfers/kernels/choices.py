"""Search of choices of idle intervals to move: cover what exceeds the budget, then add, leave out and swap."""

from __future__ import annotations

import math

import numpy as np

from tensortide.compiled import compiled, entry_making_arrays, making_arrays
from tensortide.plans.instance import BEFORE
from tensortide.plans.transfers.kernels.arrays import HERE, UNLIMITED, Links
from tensortide.plans.transfers.kernels.idles import Idles, last_of
from tensortide.plans.transfers.kernels.placed import play
from tensortide.plans.transfers.kernels.placing import NEVER, NO, SHORT, Line, begin, levels
from tensortide.plans.under_budget.moves import chance
from tensortide.plans.under_budget.tables import Floats, Ints, Tables

NOW, BEST, LACKS = range(3)
SMALL = 1000
"""Storages of less than the largest by this are left alone by the search."""
MOST_CHANGED = 3
"""Intervals that change at once, at most."""
SWAPPED = 0.3
"""Share of the changes of what moves that are to another link."""
WHOLE = 0.5
"""Share of the changes to persistent storages that are to all of their intervals at once."""
NEAR, TRIES = 30, 30
"""Places that are near another; draws to find an interval that is."""


@compiled
def allowed(v: Idles, last: Ints, choice: Ints, i: int, link: int, count: int) -> bool:
    """Tell whether interval ``i`` may move over ``link`` beside what is chosen of its storage: all over one link, and
    what is at home on a tier does not wait for the start or the end of the step."""
    edge = not v.wraps[i] and (v.before[i] < 0 or v.after[i] >= count)
    k = last[v.storage[i]]
    while k >= 0:
        if k != i and choice[k] != HERE:
            if choice[k] != link or (edge and v.wraps[k]):
                return False
            if v.wraps[i] and (v.before[k] < 0 or v.after[k] >= count):
                return False
        k = v.other[k]
    return True


@entry_making_arrays
def allowed_over(v: Idles, choice: Ints, i: int, link: int, count: int) -> None:
    """Move interval ``i`` over ``link`` if it is allowed."""
    last = last_of(v, v.storage.max() + 1)
    if allowed(v, last, choice, i, link, count):
        choice[i] = link


@entry_making_arrays
def cover(t: Tables, links: Links, v: Idles, x: Line, choice: Ints, budget: int, price: float) -> None:
    """Add intervals to ``choice`` until nothing exceeds ``budget``, as far as there are any.

    The one is added that takes most bytes times time out of what exceeds it, per time of its engine, at the
    place that is over most. A copy to the tier counts ``price`` times: to have a storage at home there, and to fetch it
    twice, may cost less.
    """
    count, last = len(x.sequence), last_of(v, len(t.nbytes))
    tier = np.zeros((len(links.capacity), count + 1), np.int64)
    for i in range(len(choice)):
        if choice[i] != HERE and not _at_home(v, last, choice, i):
            _store(t, v, i, tier[choice[i]])
    over = np.zeros(count + 2)
    while True:
        level = levels(t, v, x, choice)
        at = _sum_over(t, x, level, budget, over)
        if level[at] <= budget:
            return
        best, to, pair = _best(t, links, v, last, choice, tier, over, at, level[at] - budget, price)
        if best == NO:
            return
        if not _at_home(v, last, choice, best):
            _store(t, v, best if pair == NO else pair, tier[to])
        choice[best] = to
        if pair != NO:
            choice[pair] = to


@compiled
def _best(
    t: Tables,
    links: Links,
    v: Idles,
    last: Ints,
    choice: Ints,
    tier: Ints,
    over: Floats,
    at: int,
    excess: int,
    price: float,
) -> tuple[int, int, int]:
    """The interval to add for the place ``at``, over which link, and the one over the end of the step that goes with
    it; NO where there is none."""
    # The gain is that of the interval alone: of the pair only the cost decides, as `_cost` takes the cheaper way.
    count = len(over) - 2
    best, most, to, with_it = NO, 0.0, HERE, NO
    for i in range(len(choice)):
        if choice[i] != HERE or not _covers(v, i, at):
            continue
        gain, is_home = _relief(v, over, i, count) * min(t.nbytes[v.storage[i]], excess), _at_home(v, last, choice, i)
        for link in range(len(tier)):
            cost, pair = _cost(links, v, last, choice, i, link, price, count)
            if gain <= most * cost or not allowed(v, last, choice, i, link, count):
                continue
            if pair != NO and not allowed(v, last, choice, pair, link, count):
                continue
            if is_home or _stores(t, v, i if pair == NO else pair, tier[link], links.capacity[link]):
                best, most, to, with_it = i, gain / cost, link, pair
    return best, to, with_it


@compiled
def _cost(
    links: Links, v: Idles, last: Ints, choice: Ints, i: int, link: int, price: float, count: int
) -> tuple[float, int]:
    """Time of the engines for interval ``i``, and the interval over the end of the step that would make it cheaper."""
    s = v.storage[i]
    # Two ways to be away within the step: copied out and fetched back, or at home on the tier (the interval over the
    # end of the step moves, too), with no copy out, but a fetch before the first use and another after this interval.
    # The second holds for contents from before the step alone: what an op has written differs from what is at home.
    out, back, k = price * links.out_ns[link, s], float(links.back_ns[link, s] + 1), last[v.storage[i]]
    if v.wraps[i] or v.before[i] < 0 or v.after[i] >= count or v.state[i] != BEFORE:
        return out + back, NO
    while k != NO and not v.wraps[k]:
        k = v.other[k]
    if k == NO:
        return out + back, NO
    if choice[k] != HERE:
        return back, NO
    return (out + back, NO) if out <= back else (2 * back, int(k))


@compiled
def _sum_over(t: Tables, x: Line, level: Ints, budget: int, over: Floats) -> int:
    """Sum up into ``over`` the time during which something exceeds the budget, and return the place that is worst."""
    at, count = 0, len(x.sequence)
    for place in range(count + 1):
        at = place if level[place] > level[at] else at
        long = t.ns[x.sequence[place]] + 1 if place < count else 1
        over[place + 1] = over[place] + (long if level[place] > budget else 0)
    return at


@compiled
def _at_home(v: Idles, last: Ints, choice: Ints, i: int) -> bool:
    """Tell whether the storage of an interval that does not wrap is at home on a tier."""
    k = last[v.storage[i]] if not v.wraps[i] else NO
    while k != NO and not (v.wraps[k] and choice[k] != HERE):
        k = v.other[k]
    return bool(k != NO)


@compiled
def _store(t: Tables, v: Idles, i: int, tier: Ints) -> None:
    """Add interval ``i`` to the bytes that its tier holds by place."""
    first, last = (0, len(tier) - 1) if v.wraps[i] else (max(0, v.since[i]), v.after[i])
    for place in range(first, last + 1):
        tier[place] += t.nbytes[v.storage[i]]


@compiled
def _stores(t: Tables, v: Idles, i: int, tier: Ints, capacity: int) -> bool:
    """Tell whether a tier has room for interval ``i``."""
    if capacity == UNLIMITED:
        return True
    first, last = (0, len(tier) - 1) if v.wraps[i] else (max(0, v.since[i]), v.after[i])
    for place in range(first, last + 1):  # noqa: SIM110 -- a generator is not compiled
        if tier[place] + t.nbytes[v.storage[i]] > capacity:
            return False
    return True


@compiled
def _covers(v: Idles, i: int, place: int) -> bool:
    if v.wraps[i]:
        return bool(place > v.before[i] or place < v.after[i])
    return bool(v.before[i] < place < v.after[i])


@compiled
def _relief(v: Idles, over: Floats, i: int, count: int) -> float:
    """Time during which something exceeds the budget while interval ``i`` may be away."""
    if not v.wraps[i]:
        return float(over[v.after[i]] - over[v.before[i] + 1])
    if v.after[i] > v.before[i]:
        return float(over[count + 1])
    return float(over[v.after[i]] - over[0] + over[count + 1] - over[v.before[i] + 1])


@entry_making_arrays
def searched(
    t: Tables,
    links: Links,
    v: Idles,
    x: Line,
    budget: int,
    choice: Ints,
    best: Ints,
    times: Ints,
    dice: Ints,
    steps: int,
    heat: float,
    least: int,
) -> None:
    """Change ``choice`` in so many ``steps``: what stalls the step is moved, or left alone, or moves over another link.

    ``best``: the fastest choice so far. ``times``: of ``choice`` and of that, and the bytes that ``choice`` lacks.
    ``heat``: nanoseconds by which a choice may get slower; ``least``: the time that is enough.
    """
    last, movable, base = last_of(v, len(t.nbytes)), _movable(t, v), 0
    for op in x.sequence:
        base += t.ns[op]
    z = begin(t, links, v, x, choice, budget)
    times[NOW] = NEVER if z.register[SHORT] else play(t, links, v, x, choice, budget, NEVER, z)
    times[LACKS], stall = z.register[SHORT], z.stall
    if times[NOW] < times[BEST]:
        times[BEST] = times[NOW]
        best[:] = choice
    trial = choice.copy()
    for _ in range(steps if len(movable) else 0):
        if times[BEST] <= least:
            break
        trial[:] = choice
        _change(links, v, last, movable, choice, trial, stall, dice)
        z = begin(t, links, v, x, trial, budget)
        if z.register[SHORT]:
            if times[NOW] == NEVER and z.register[SHORT] <= times[LACKS]:
                times[LACKS] = z.register[SHORT]
                choice[:] = trial
            continue
        limit = times[NOW] if times[NOW] == NEVER else times[NOW] - heat * math.log(1 - chance(dice))
        found = play(t, links, v, x, trial, budget, int(limit) - base, z)
        if found <= limit and found < NEVER:
            choice[:] = trial
            times[NOW], stall = found, z.stall
            if found < times[BEST]:
                times[BEST] = found
                best[:] = trial


@making_arrays
def _movable(t: Tables, v: Idles) -> Ints:
    """The intervals of all but the smallest storages."""
    largest = 0
    for i in range(len(v.storage)):
        largest = max(largest, t.nbytes[v.storage[i]])
    return np.flatnonzero(t.nbytes[v.storage] * SMALL >= max(1, largest))


@compiled
def _change(
    links: Links, v: Idles, last: Ints, movable: Ints, choice: Ints, trial: Ints, stall: Ints, dice: Ints
) -> None:
    """Change the links of a few intervals of ``trial``, most often of one; or of all of a storage."""
    at = _stalled(stall, dice)
    for _ in range(1 + int(MOST_CHANGED * chance(dice) ** 2)):
        i = _near(v, movable, at, dice)
        link = int(len(links.capacity) * chance(dice))
        if links.persistent[v.storage[i]] and chance(dice) < WHOLE:
            _change_all(v, last, trial, i, HERE if choice[i] != HERE else link, len(stall) - 1)
            continue
        trial[i] = HERE
        if choice[i] == HERE or (choice[i] != link and chance(dice) < SWAPPED):
            trial[i] = link if allowed(v, last, trial, i, link, len(stall) - 1) else choice[i]


@compiled
def _change_all(v: Idles, last: Ints, trial: Ints, i: int, link: int, count: int) -> None:
    """Have all intervals of the storage of ``i`` stay, or move over ``link`` as far as they may."""
    for turn in range(2):
        k = last[v.storage[i]]
        while k != NO:
            if turn == 0:
                trial[k] = HERE
            elif link != HERE and allowed(v, last, trial, k, link, count):
                trial[k] = link
            k = v.other[k]


@compiled
def _stalled(stall: Ints, dice: Ints) -> int:
    """A place, drawn by how long its op waits; -1 if none does."""
    total = 0
    for place in range(len(stall)):
        total += stall[place]
    drawn = total * chance(dice)
    for place in range(len(stall)):
        drawn -= stall[place]
        if drawn < 0:
            return place
    return -1


@compiled
def _near(v: Idles, movable: Ints, at: int, dice: Ints) -> int:
    """An interval; half the time one that covers a place, or begins or ends near it."""
    i = movable[int(len(movable) * chance(dice))]
    if at < 0 or chance(dice) < 0.5:
        return int(i)
    covering = chance(dice) < 0.5
    for _ in range(TRIES):
        if _covers(v, i, at) if covering else abs(v.before[i] - at) <= NEAR or abs(v.after[i] - at) <= NEAR:
            break
        i = movable[int(len(movable) * chance(dice))]
    return int(i)
