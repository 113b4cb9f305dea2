"""The pool of storages that may be evicted, in order of entry, and the cheapest of them without looking at all.

Positions are never used twice; when they run out, the pool is moved together. A block of positions knows a bound of
the gain ``bytes / work`` of its entries and of their last access, hence the least that any of them can cost at any
later time; so does a superblock of blocks. Bounds are refreshed when a block is looked through.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from tensortide.replay.remat.fast.costs import cost
from tensortide.replay.remat.fast.dice import below
from tensortide.replay.remat.fast.state import (
    BLOCK,
    BY_SIZE,
    BY_STALENESS,
    CLOCK,
    DICE,
    EVALUATIONS,
    EXHAUSTIVE,
    POOL_END,
    POOL_LIVE,
    WORK,
    World,
)

_LATEST = np.iinfo(np.int64).max
_SAFE = 1 - 1e-9
_LAST_ACCESS = 6


@njit(cache=True)
def gain(w: World, storage: int) -> float:
    """Most bytes per ns of work that evicting ``storage`` may bring."""
    if w.reg[WORK] == _LAST_ACCESS:
        return 1.0
    nbytes = float(w.storages[storage].size) if w.reg[BY_SIZE] else 1.0
    if nbytes == 0:
        return 0.0
    least = w.storages[storage].least if w.reg[WORK] else 1
    return nbytes / least if least > 0 else math.inf


@njit(cache=True)
def bound(w: World, most: float, last: int) -> float:
    """Least that entries can cost which gain at most ``most`` and were last used at ``last`` or later."""
    reg = w.reg
    if reg[WORK] == _LAST_ACCESS:
        return float(last)
    divisor = most
    if reg[BY_STALENESS]:
        divisor *= reg[CLOCK] - last
    return _SAFE / divisor if divisor > 0 else math.inf


@njit(cache=True)
def enter(w: World, storage: int) -> None:
    """Append ``storage`` to the pool."""
    if w.reg[POOL_END] == len(w.slot):
        _compact(w)
    _append(w, storage)


@njit(cache=True)
def _append(w: World, storage: int) -> None:
    reg = w.reg
    position = reg[POOL_END]
    reg[POOL_END] += 1
    reg[POOL_LIVE] += 1
    w.slot[position] = storage
    w.storages[storage].position = position
    block = position // BLOCK
    if position % BLOCK == 0:
        _open(w, block)
    w.blocks[block].live += 1
    w.supers[block // BLOCK].live += 1
    _widen(w, block, gain(w, storage), w.storages[storage].last)


@njit(cache=True)
def _open(w: World, block: int) -> None:
    w.blocks[block].live = 0
    w.blocks[block].gain = 0
    w.blocks[block].last = _LATEST
    if block % BLOCK == 0:
        upper = block // BLOCK
        w.supers[upper].live = 0
        w.supers[upper].gain = 0
        w.supers[upper].last = _LATEST


@njit(cache=True)
def _widen(w: World, block: int, most: float, last: int) -> None:
    upper = block // BLOCK
    w.blocks[block].gain = max(w.blocks[block].gain, most)
    w.blocks[block].last = min(w.blocks[block].last, last)
    w.supers[upper].gain = max(w.supers[upper].gain, most)
    w.supers[upper].last = min(w.supers[upper].last, last)


@njit(cache=True)
def leave(w: World, storage: int) -> None:
    """Take ``storage`` out of the pool, if it is there."""
    position = w.storages[storage].position
    if position < 0:
        return
    w.storages[storage].position = -1
    w.slot[position] = -1
    w.reg[POOL_LIVE] -= 1
    w.blocks[position // BLOCK].live -= 1
    w.supers[position // BLOCK // BLOCK].live -= 1


@njit(cache=True)
def cheaper(w: World, storage: int, least: int) -> None:
    """Evicting ``storage`` may now cause as little work as ``least``."""
    w.storages[storage].least = least
    position = w.storages[storage].position
    if position >= 0:
        _widen(w, position // BLOCK, gain(w, storage), w.storages[storage].last)


@njit(cache=True)
def _compact(w: World) -> None:
    reg = w.reg
    end = reg[POOL_END]
    reg[POOL_END] = reg[POOL_LIVE] = 0
    for position in range(end):
        storage = w.slot[position]
        if storage >= 0:
            w.slot[position] = -1
            _append(w, storage)


@njit(cache=True)
def choose(w: World) -> int:
    """The storage to evict next; the pool is not empty."""
    reg = w.reg
    if reg[DICE]:
        reg[EVALUATIONS] += 1
        return _ranked(w, below(w.words, reg[POOL_LIVE]))
    found, best, passed = -1, math.inf, 0
    everything = reg[EXHAUSTIVE]
    blocks = (reg[POOL_END] + BLOCK - 1) // BLOCK
    for upper in range((blocks + BLOCK - 1) // BLOCK):
        live = w.supers[upper].live
        if not live:
            continue
        if not everything and bound(w, w.supers[upper].gain, w.supers[upper].last) > best:
            passed += live
            continue
        most_above, last_above = 0.0, _LATEST
        for block in range(upper * BLOCK, min(upper * BLOCK + BLOCK, blocks)):
            live = w.blocks[block].live
            if not live:
                continue
            if everything or bound(w, w.blocks[block].gain, w.blocks[block].last) <= best:
                found, best, stopped = _search(w, block, found, best)
                if stopped:
                    reg[EVALUATIONS] += passed + stopped
                    return found
            passed += live
            most_above = max(most_above, w.blocks[block].gain)
            last_above = min(last_above, w.blocks[block].last)
        w.supers[upper].gain = most_above
        w.supers[upper].last = last_above
    reg[EVALUATIONS] += passed
    return found


@njit(cache=True)
def _search(w: World, block: int, found: int, best: float) -> tuple[int, float, int]:
    """Look through ``block`` for what costs at most ``best``. The last result is 0; or the rank in the block of an
    entry without cost, which ends the search."""
    everything = w.reg[EXHAUSTIVE]
    most, earliest, looked = 0.0, _LATEST, 0
    for position in range(block * BLOCK, min(block * BLOCK + BLOCK, w.reg[POOL_END])):
        storage = w.slot[position]
        if storage < 0:
            continue
        looked += 1
        last = w.storages[storage].last
        if everything or bound(w, gain(w, storage), last) <= best:
            here = cost(w, storage)
            if here <= best:
                found, best = storage, here
            if here == 0:
                return found, best, looked
        most = max(most, gain(w, storage))
        earliest = min(earliest, last)
    w.blocks[block].gain = most
    w.blocks[block].last = earliest
    return found, best, 0


@njit(cache=True)
def _ranked(w: World, rank: int) -> int:
    """The entry that ``rank`` others come before."""
    block = 0
    while rank >= w.blocks[block].live:
        rank -= w.blocks[block].live
        block += 1
    position = block * BLOCK
    while True:
        if w.slot[position] >= 0:
            if rank == 0:
                return w.slot[position]
            rank -= 1
        position += 1
