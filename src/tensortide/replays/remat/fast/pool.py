"""The pool of storages that may be evicted, in order of entry, and the cheapest of them without looking at all.

Positions are never used twice; when they run out, the pool is moved together. What an entry is worth, its bytes by the
work that evicting it may cause and times its staleness, grows with time at a constant rate. So each block of entries,
and each block of blocks, knows which of these lines is on top, and until when no other can be: a kinetic tournament
(Basch, Guibas and Hershberger 1999). A line only promises that its entry is worth no more; blocks are renewed when they
are looked through.
"""

from __future__ import annotations

import math

import numpy as np

from tensortide.compiled import compiled
from tensortide.plans.remat.policies import Work
from tensortide.replays.remat.fast.costs import cost, gain
from tensortide.replays.remat.fast.state import FAN, World

_LATEST = np.iinfo(np.int64).max
_FAR = 4e18
_SAFE = 1 - 1e-9


@compiled
def worth(w: World, most: float, last: int) -> float:
    """Compute the worth of an entry of this gain and last access now: the reciprocal of its cost."""
    reg = w.reg[0]
    if reg.work == Work.LAST_ACCESS:
        return -float(last)
    if not reg.by_staleness:
        return float(most)
    time = reg.clock - last
    return most * float(time) if time > 0 else 0.0


@compiled
def bound(w: World, value: float) -> float:
    """Least that entries can cost which are worth at most ``value``."""
    reg = w.reg[0]
    if reg.work == Work.LAST_ACCESS:
        return -value
    if value <= 0:
        return math.inf
    if reg.work == Work.ONE and not reg.by_staleness:
        return 1 / value
    return _SAFE / value


@compiled
def enter(w: World, storage: int) -> None:
    """Append ``storage`` to the pool."""
    if w.reg[0].pool_end == len(w.slot):
        _compact(w)
    _append(w, storage)


@compiled
def _append(w: World, storage: int) -> None:
    reg = w.reg[0]
    at = reg.pool_end
    reg.pool_end += 1
    reg.pool_live += 1
    w.slot[at] = storage
    w.storages[storage].place = at
    most, last = w.storages[storage].gain, w.storages[storage].last
    opens = True
    for level in range(reg.height):
        opens = opens and at % FAN == 0
        at //= FAN
        block = reg.levels[level] + at
        if opens:
            _empty(w, block)
            w.blocks[block].live = 0
        w.blocks[block].live += 1
        _raise(w, block, most, last)


@compiled
def _empty(w: World, block: int) -> None:
    w.blocks[block].gain = 0
    w.blocks[block].last = w.blocks[block].until = _LATEST


@compiled
def _raise(w: World, block: int, most: float, last: int) -> None:
    """Raise the line of ``block``: an entry may now be worth as much as ``most`` and ``last`` say."""
    top, since = w.blocks[block].gain, w.blocks[block].last
    leading, trailing = worth(w, top, since), worth(w, most, last)
    if trailing > leading or (trailing == leading and most > top):
        w.blocks[block].gain, w.blocks[block].last = most, last
        leading, trailing, top, most = trailing, leading, most, top
    if most > top and w.reg[0].by_staleness:
        ahead = (leading - trailing) / (float(most) - float(top))
        if ahead < _FAR:
            w.blocks[block].until = min(w.blocks[block].until, w.reg[0].clock + int(ahead))


@compiled
def leave(w: World, storage: int) -> None:
    """Take ``storage`` out of the pool, if it is there."""
    at = w.storages[storage].place
    if at < 0 or not w.storages[storage].resident:
        return
    w.storages[storage].place = -1
    w.slot[at] = -1
    w.reg[0].pool_live -= 1
    for level in range(w.reg[0].height):
        at //= FAN
        w.blocks[w.reg[0].levels[level] + at].live -= 1


@compiled
def cheaper(w: World, storage: int) -> None:
    """Evicting ``storage``, which is resident, may now cause no work but its own."""
    most = gain(w, storage, w.storages[storage].work)
    if most <= w.storages[storage].gain:
        return
    w.storages[storage].gain = most
    at = w.storages[storage].place
    if at < 0:
        return
    for level in range(w.reg[0].height):
        at //= FAN
        _raise(w, w.reg[0].levels[level] + at, most, w.storages[storage].last)


@compiled
def _compact(w: World) -> None:
    reg = w.reg[0]
    end = reg.pool_end
    reg.pool_end = reg.pool_live = 0
    for position in range(end):
        storage = w.slot[position]
        if storage >= 0:
            w.slot[position] = -1
            _append(w, storage)


@compiled
def choose(w: World) -> int:
    """The storage to evict next; the pool is not empty."""
    reg = w.reg[0]
    if reg.dice:
        reg.evaluations += 1
        return _ranked(w, below(w, reg.pool_live))
    if reg.exhaustive:
        found, evaluated = _scan(w)
    else:
        found, best = _sweep(w)
        evaluated = reg.pool_live if best else _rank(w, found) + 1
    reg.evaluations += evaluated
    return found


@compiled
def below(w: World, count: int) -> int:
    """A number below ``count``, as ``random.Random.choice`` draws it. Without words left, the run ends as if the trace
    were full, to be repeated with more."""
    reg = w.reg[0]
    bits = 0
    while count >> bits:
        bits += 1
    while reg.drawn < len(w.words):
        drawn = np.int64(w.words[reg.drawn]) >> (32 - bits)
        reg.drawn += 1
        if drawn < count:
            return int(drawn)
    reg.traced = len(w.trace)
    return 0


@compiled
def _scan(w: World) -> tuple[int, int]:
    """Return the cheapest entry, of equals the last, and how many were evaluated: all up to the first of cost 0.

    Costs may be negative here, as classes may be: an entry of cost 0 ends the search, but need not be the cheapest.
    """
    found, best, evaluated = -1, math.inf, 0
    for position in range(w.reg[0].pool_end):
        storage = w.slot[position]
        if storage >= 0:
            price = cost(w, storage)
            evaluated += 1
            if price <= best:
                found, best = storage, price
            if price == 0:
                break
    return found, evaluated


@compiled
def _sweep(w: World) -> tuple[int, float]:
    """The cheapest entry and its cost: first the block that promises most, then all that may hold a cheaper one, last
    ones first."""
    reg = w.reg[0]
    top = reg.height - 1
    first = 0
    for level in range(top, 0, -1):
        first = _leading(w, level - 1, first)
    found, best = _search_block(w, first, -1, math.inf)
    level, at = top, 0
    while True:
        if _promises(w, level, at, found, best):
            if level:
                level -= 1
                at = min(at * FAN + FAN - 1, _last(w, level))
                continue
            if at != first:
                found, best = _search_block(w, at, found, best)
        while at % FAN == 0:
            if level == top:
                return found, best
            level += 1
            at //= FAN
            _renew(w, level, at)
        at -= 1


@compiled
def _last(w: World, level: int) -> int:
    """The last block of ``level`` that has had entries."""
    at = w.reg[0].pool_end - 1
    for _ in range(level + 1):
        at //= FAN
    return int(at)


@compiled
def _leading(w: World, level: int, parent: int) -> int:
    """The block of ``level`` below ``parent`` whose line is on top."""
    start, lead, most = w.reg[0].levels[level], -1, -math.inf
    for at in range(parent * FAN, min(parent * FAN + FAN - 1, _last(w, level)) + 1):
        record = w.blocks[start + at]
        if record.live:
            value = worth(w, record.gain, record.last)
            if lead < 0 or value > most or (value == most and record.gain > w.blocks[start + lead].gain):
                lead, most = at, value
    return lead


@compiled
def _promises(w: World, level: int, at: int, found: int, best: float) -> bool:
    """Return whether a block may contain a better candidate for eviction than ``found``."""
    record = w.blocks[w.reg[0].levels[level] + at]
    if not record.live:
        return False
    if record.until < w.reg[0].clock:
        return True
    least = bound(w, worth(w, record.gain, record.last))
    if least != best or best == 0:
        return least <= best
    end = at + 1
    for _ in range(level + 1):
        end *= FAN
    return end > w.storages[found].place


@compiled
def _renew(w: World, level: int, at: int) -> None:
    """Renew a block: the line of the blocks below that is on top, and until when."""
    block, start = w.reg[0].levels[level] + at, w.reg[0].levels[level - 1]
    lead = _leading(w, level - 1, at)
    _empty(w, block)
    if lead < 0:
        return
    _raise(w, block, w.blocks[start + lead].gain, w.blocks[start + lead].last)
    for lower in range(start + at * FAN, start + min(at * FAN + FAN - 1, _last(w, level - 1)) + 1):
        if w.blocks[lower].live:
            _raise(w, block, w.blocks[lower].gain, w.blocks[lower].last)
            w.blocks[block].until = min(w.blocks[block].until, w.blocks[lower].until)


@compiled
def _search_block(w: World, block: int, found: int, best: float) -> tuple[int, float]:
    """Look through a lowest ``block``, and renew it."""
    start, end = block * FAN, min(block * FAN + FAN, w.reg[0].pool_end)
    found, best = _search(w, start, end, found, best)
    _empty(w, block)
    lead, most = -1, -math.inf
    for position in range(start, end):
        storage = w.slot[position]
        if storage >= 0:
            value = worth(w, w.storages[storage].gain, w.storages[storage].last)
            if value > most:
                lead, most = storage, value
    if lead >= 0:
        _raise(w, block, w.storages[lead].gain, w.storages[lead].last)
    for position in range(start, end):
        storage = w.slot[position]
        if storage >= 0:
            _raise(w, block, w.storages[storage].gain, w.storages[storage].last)
    return found, best


@compiled
def _search(w: World, start: int, end: int, found: int, best: float) -> tuple[int, float]:
    """Return the cheapest of ``found``, which costs ``best``, and the entries from ``start`` to ``end - 1``, with its
    cost: of equals the last, but of those without cost the first. No cost is negative."""
    for position in range(start, end):
        storage = w.slot[position]
        if storage < 0:
            continue
        if bound(w, worth(w, w.storages[storage].gain, w.storages[storage].last)) > best:
            continue
        price = cost(w, storage)
        if found < 0 or price < best:
            found, best = storage, price
        elif price == best and (position < w.storages[found].place) == (price == 0):
            found = storage
    return found, best


@compiled
def _rank(w: World, storage: int) -> int:
    """Count the entries before ``storage``."""
    at = w.storages[storage].place
    count = 0
    for position in range(at // FAN * FAN, at):
        count += w.slot[position] >= 0
    for level in range(w.reg[0].height):
        at //= FAN
        for before in range(at // FAN * FAN, at):
            count += w.blocks[w.reg[0].levels[level] + before].live
    return count


@compiled
def _ranked(w: World, rank: int) -> int:
    """The entry that ``rank`` others come before."""
    at = 0
    for level in range(w.reg[0].height - 2, -1, -1):
        at *= FAN
        while rank >= w.blocks[w.reg[0].levels[level] + at].live:
            rank -= w.blocks[w.reg[0].levels[level] + at].live
            at += 1
    at *= FAN
    while True:
        if w.slot[at] >= 0:
            if rank == 0:
                return int(w.slot[at])
            rank -= 1
        at += 1
