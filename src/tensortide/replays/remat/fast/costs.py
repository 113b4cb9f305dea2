"""Cost of an eviction, compiled: the named heuristics over flat arrays."""

from __future__ import annotations

import math

import numpy as np

from tensortide.compiled import compiled
from tensortide.plans.remat.policies import Work
from tensortide.replays.remat.fast.state import QUEUE, World

_SPLIT = 134217729.0
_EXACT = 9007199254740992.0
_LAST_TOKEN = np.iinfo(np.int32).max
_UPWARDS = 1 + 2e-7


@compiled
def token(w: World) -> int:
    """A number that no storage and no node is stamped with."""
    w.reg[0].token += 1
    if w.reg[0].token >= _LAST_TOKEN:
        for storage in range(len(w.storages)):
            w.storages[storage].stamp = 0
        for node in range(w.reg[0].nodes):
            w.nodes[node].stamp = 0
        w.reg[0].token = 1
    return int(w.reg[0].token)


@compiled
def gain(w: World, storage: int, least: int) -> np.float32:
    """Most bytes per ns that evicting ``storage`` may bring if it causes ``least`` ns of work or more, rounded up."""
    if w.reg[0].work == Work.LAST_ACCESS:
        return np.float32(1)
    nbytes = w.sizes[storage] if w.reg[0].by_size else 1
    if nbytes == 0:
        return np.float32(0)
    if w.reg[0].work == Work.ONE:
        least = 1
    if least <= 0:
        return np.float32(math.inf)
    exact = nbytes / least
    rounded = np.float32(exact)
    return rounded if rounded >= exact else np.float32(exact * _UPWARDS)


@compiled
def ratio(work: int, nbytes: int, time: int) -> float:
    """``work / (nbytes * time)`` for factors below 2**53, whose product need not be.

    Rounded once, but for quotients that are halfway between two numbers to twice as many digits.
    """
    a, b = float(nbytes), float(time)
    high = a * b
    quotient = work / high
    if high < _EXACT:
        return quotient
    low = _product_error(a, b, high)
    back = quotient * high
    rest = ((work - back) - _product_error(quotient, high, back)) - quotient * low
    return quotient + rest / high


@compiled
def _product_error(a: float, b: float, product: float) -> float:
    """``a * b - product``, exactly (Dekker 1971)."""
    t = _SPLIT * a
    a1 = t - (t - a)
    a2 = a - a1
    t = _SPLIT * b
    b1 = t - (t - b)
    b2 = b - b1
    return ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


@compiled
def cost(w: World, storage: int) -> float:
    """Cost of evicting ``storage`` now (``policies.Heuristic.cost``); its record learns what bounds can count on."""
    reg = w.reg[0]
    kind = reg.work
    last = w.storages[storage].last
    if kind == Work.LAST_ACCESS:
        return float(last)
    work, slack = 1, 0
    if kind != Work.ONE:
        work = w.storages[storage].work
        if kind == Work.CLASSES:
            around, slack = _classes(w, storage)
            work += around
        elif kind == Work.ANCESTORS:
            work += _around(w, storage, True)
        elif kind == Work.NEIGHBOURHOOD:
            work += _around(w, storage, True) + _around(w, storage, False)
        elif kind == Work.UNION:
            last, around = _union(w, storage)
            work += around
    w.storages[storage].gain = min(w.storages[storage].gain, gain(w, storage, work - slack))
    nbytes = w.sizes[storage] if reg.by_size else 1
    time = reg.clock - last if reg.by_staleness else 1
    if nbytes <= 0 or time <= 0:
        return math.inf
    return ratio(work, nbytes, time)


@compiled
def span(w: World, storage: int, upwards: bool) -> tuple[int, int]:
    """Return the span in ``w.near`` of the neighbours of ``storage``, as far as ops have run."""
    if upwards:
        return w.storages[storage].up, w.storages[storage].up_end
    return w.storages[storage].down, w.storages[storage].down_end


@compiled
def reach(w: World, storage: int, upwards: bool, count: int) -> tuple[int, int, int]:
    """Append to the first ``count`` of the QUEUE the storages that are not resident and that ``storage`` reaches
    through such ones. Returns how many it has then, the work of the new ones, and how many neighbours were looked
    at."""
    mark = token(w)
    work = looked = 0
    head, at = count, storage
    while True:
        start, end = span(w, at, upwards)
        looked += end - start
        for edge in range(start, end):
            other = w.near[edge]
            if not w.storages[other].resident and not w.storages[other].dead and w.storages[other].stamp != mark:
                w.storages[other].stamp = mark
                w.lists[QUEUE, count] = other
                count += 1
                work += w.storages[other].work
        if head == count:
            return count, work, looked
        at = w.lists[QUEUE, head]
        head += 1


@compiled
def _around(w: World, storage: int, upwards: bool) -> int:
    """Work of what ``reach`` finds."""
    _, work, looked = reach(w, storage, upwards, 0)
    w.reg[0].accesses += looked
    return work


@compiled
def _union(w: World, storage: int) -> tuple[int, int]:
    """The youngest last access in the neighbourhood of ``storage``, and the work of the rest of it."""
    above, _, looked = reach(w, storage, True, 0)
    count, _, more = reach(w, storage, False, above)
    w.reg[0].accesses += looked + more
    mark, last, work = token(w), w.storages[storage].last, 0
    for i in range(count):
        other = w.lists[QUEUE, i]
        if w.storages[other].stamp != mark:
            w.storages[other].stamp = mark
            work += w.storages[other].work
            last = max(last, w.storages[other].last)
    return last, work


@compiled
def root(w: World, storage: int) -> int:
    """The class of ``storage``, which is not resident; -1 if it never was, and nothing next to it was evicted since."""
    node = w.storages[storage].place
    if node < 0:
        return -1
    top = node
    while w.nodes[top].above != top:
        top = w.nodes[top].above
        w.reg[0].accesses += 1
    while w.nodes[node].above != top:
        following = w.nodes[node].above
        w.nodes[node].above = top
        node = following
    return top


@compiled
def _classes(w: World, storage: int) -> tuple[int, int]:
    """Work of the classes next to ``storage``, each once; and how much of it is above their floors."""
    mark = token(w)
    work = slack = 0
    for upwards in (True, False):
        start, end = span(w, storage, upwards)
        for edge in range(start, end):
            w.reg[0].accesses += 1
            other = w.near[edge]
            if w.storages[other].resident or w.storages[other].dead:
                continue
            top = root(w, other)
            if top >= 0 and w.nodes[top].stamp != mark:
                w.nodes[top].stamp = mark
                work += w.nodes[top].value
                slack += w.nodes[top].value - w.nodes[top].floor
    return work, slack
