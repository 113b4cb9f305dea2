"""What an eviction would cost, compiled: the named heuristics over flat arrays."""

from __future__ import annotations

import math

from numba import njit

from tensortide.replay.remat.fast.state import ACCESSES, BY_SIZE, BY_STALENESS, CLOCK, TOKEN, WORK, World

_SPLIT = 134217729.0
_ONE, _LOCAL, _CLASSES, _ANCESTORS, _NEIGHBOURHOOD, _UNION, _LAST_ACCESS = range(7)
_EXACT = 9007199254740992.0


@njit(cache=True)
def ratio(work: int, nbytes: int, time: int) -> float:
    """``work / (nbytes * time)``, rounded once, for factors below 2**53 whose product need not be."""
    a, b = float(nbytes), float(time)
    high = a * b
    quotient = work / high
    if high < _EXACT:
        return quotient
    low = _product_error(a, b, high)
    back = quotient * high
    rest = ((work - back) - _product_error(quotient, high, back)) - quotient * low
    return quotient + rest / high


@njit(cache=True)
def _product_error(a: float, b: float, product: float) -> float:
    """``a * b - product``, exactly (Dekker 1971)."""
    t = _SPLIT * a
    a1 = t - (t - a)
    a2 = a - a1
    t = _SPLIT * b
    b1 = t - (t - b)
    b2 = b - b1
    return ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


@njit(cache=True)
def cost(w: World, storage: int) -> float:
    """Cost of evicting ``storage`` now (``policies.Heuristic.cost``); its record learns what bounds can count on."""
    reg = w.reg
    kind = reg[WORK]
    last = w.storages[storage].last
    if kind == _LAST_ACCESS:
        return float(last)
    work, slack = 1, 0
    if kind != _ONE:
        work = w.storages[storage].work
        if kind == _CLASSES:
            around, slack = _classes(w, storage)
            work += around
        elif kind == _ANCESTORS:
            work += reach(w, storage, True)
        elif kind == _NEIGHBOURHOOD:
            work += reach(w, storage, True) + reach(w, storage, False)
        elif kind == _UNION:
            last, around = _union(w, storage)
            work += around
    w.storages[storage].least = work - slack
    nbytes = w.storages[storage].size if reg[BY_SIZE] else 1
    time = reg[CLOCK] - last if reg[BY_STALENESS] else 1
    if nbytes <= 0 or time <= 0:
        return math.inf
    return ratio(work, nbytes, time)


@njit(cache=True)
def span(w: World, storage: int, upwards: bool) -> tuple[int, int]:
    """Where in ``w.up`` or ``w.down`` the storages next to ``storage`` are, as far as ops have run."""
    if upwards:
        return w.storages[storage].up, w.storages[storage].up_end
    return w.storages[storage].down, w.storages[storage].down_end


@njit(cache=True)
def reach(w: World, storage: int, upwards: bool) -> int:
    """Work of the storages that are not resident and that ``storage`` reaches through such ones.

    They, and only they, carry the stamp ``w.reg[TOKEN]`` afterwards.
    """
    w.reg[TOKEN] += 1
    token = w.reg[TOKEN]
    near = w.up if upwards else w.down
    work = looked = 0
    found = -1
    at = storage
    head = 0
    while True:
        start, end = span(w, at, upwards)
        for edge in range(start, end):
            looked += 1
            other = near[edge]
            if not w.storages[other].material and not w.storages[other].dead and w.storages[other].stamp != token:
                w.storages[other].stamp = token
                found += 1
                w.queue[found] = other
                work += w.storages[other].work
        if head > found:
            break
        at = w.queue[head]
        head += 1
    w.reg[ACCESSES] += looked
    return work


@njit(cache=True)
def _union(w: World, storage: int) -> tuple[int, int]:
    """The youngest last access in the neighbourhood of ``storage``, and the work of the rest of it."""
    reg = w.reg
    last, work = w.storages[storage].last, 0
    seen = reg[TOKEN] + 1
    for upwards in (True, False):
        reg[TOKEN] += 1
        token = reg[TOKEN]
        near = w.up if upwards else w.down
        found, head, at = -1, 0, storage
        while True:
            start, end = span(w, at, upwards)
            for edge in range(start, end):
                reg[ACCESSES] += 1
                other = near[edge]
                if w.storages[other].material or w.storages[other].dead or w.storages[other].stamp == token:
                    continue
                if w.storages[other].stamp != seen:
                    work += w.storages[other].work
                    last = max(last, w.storages[other].last)
                w.storages[other].stamp = token
                found += 1
                w.queue[found] = other
            if head > found:
                break
            at = w.queue[head]
            head += 1
    return last, work


@njit(cache=True)
def root(w: World, storage: int) -> int:
    """The class of ``storage``, which is not resident."""
    node = w.storages[storage].node
    top = node
    while w.nodes[top].above != top:
        top = w.nodes[top].above
        w.reg[ACCESSES] += 1
    while w.nodes[node].above != top:
        following = w.nodes[node].above
        w.nodes[node].above = top
        node = following
    return top


@njit(cache=True)
def _classes(w: World, storage: int) -> tuple[int, int]:
    """Work of the classes next to ``storage``, each once; and how much of it is above their floors."""
    w.reg[TOKEN] += 1
    token = w.reg[TOKEN]
    work = slack = 0
    for upwards in (True, False):
        near = w.up if upwards else w.down
        start, end = span(w, storage, upwards)
        for edge in range(start, end):
            w.reg[ACCESSES] += 1
            other = near[edge]
            if w.storages[other].material or w.storages[other].dead:
                continue
            top = root(w, other)
            if w.nodes[top].stamp != token:
                w.nodes[top].stamp = token
                work += w.nodes[top].value
                slack += w.nodes[top].value - w.nodes[top].floor
    return work, slack
