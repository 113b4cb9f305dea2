"""One step under a memory budget, compiled: ``engine.Engine`` for the named heuristics."""

from __future__ import annotations

from numba import njit

from tensortide.replay.remat.fast.pool import choose, enter
from tensortide.replay.remat.fast.state import (
    ASKED,
    BUDGET,
    CLOCK,
    COLLECT,
    EVENT,
    FULL,
    LIMIT,
    MEMORY,
    NODES,
    OK,
    OOM,
    PEAK,
    POOL_LIVE,
    REMAT,
    THRASH,
    TOKEN,
    TRACE,
    World,
)
from tensortide.replay.remat.fast.storages import (
    evict,
    give_up,
    held_below,
    lock,
    note,
    pin,
    released,
    sever,
    unlock,
    withdraw,
)

_COMPUTE, _GET, _RELEASE = 0, 1, 2
_RUN, _AGAIN = 0, 1


@njit(cache=True, nogil=True)
def play(w: World) -> int:
    """Play all events; ``state`` tells what came of it."""
    for event in range(len(w.events)):
        w.reg[EVENT] = event
        kind, index = w.events[event] & 3, w.events[event] >> 2
        status = OK
        if kind == _COMPUTE:
            status = _compute(w, index)
        elif kind == _GET:
            w.storages[w.values[index].storage].references += 1
        elif kind == _RELEASE:
            w.storages[w.values[index].storage].references -= 1
            released(w, w.values[index].storage)
        else:
            if not w.values[index].defined:
                status = _execute(w, w.values[index].op, index)
            if status == OK:
                pin(w, w.values[index].storage)
        full = w.reg[TRACE] == len(w.trace) or w.reg[NODES] == len(w.nodes)
        if full:
            return FULL
        if status != OK:
            return status
    return OK


@njit(cache=True)
def _compute(w: World, op: int) -> int:
    """The model's own execution of ``op``."""
    first, end = w.ops[op].output, w.ops[op].output_end
    overwrites = False
    for value in range(first, end):
        overwrites = overwrites or w.values[value].replaces >= 0
    if overwrites and w.reg[COLLECT]:
        status = _secure(w, first, end)
        if status != OK:
            return status
    for edge in range(w.ops[op].edge, w.ops[op].edge_end):
        made, source = w.edges[edge].made, w.edges[edge].source
        w.storages[made].up_end += 1
        w.storages[source].down_end += 1
        if not w.storages[made].fixed:
            w.storages[source].dependents += 1
    for value in range(first, end):
        made = w.values[value].storage
        w.storages[made].newest = value
        if w.values[value].replaces < 0:
            w.storages[made].references += 1
        again = False
        for other in range(first, value):
            again = again or w.values[other].storage == made
        if not again:
            w.storages[made].work += w.ops[op].cost
    status = _execute(w, op, -1)
    if status == OK and overwrites and w.reg[COLLECT]:
        _settle(w, op)
    return status


@njit(cache=True)
def _secure(w: World, first: int, end: int) -> int:
    """Before what the values ``first`` to ``end - 1`` replace is overwritten: whatever the program still holds and is
    made of that is computed again if it is not there, and stays from now on."""
    count = 0
    w.reg[TOKEN] += 1
    for value in range(first, end):
        if w.values[value].replaces >= 0:
            count = held_below(w, w.values[value].storage, count)
    for i in range(count):
        storage = w.held[i]
        newest = w.storages[storage].newest
        if not w.values[newest].defined:
            status = _execute(w, w.values[newest].op, newest)
            if status != OK:
                return status
        pin(w, storage)
    for i in range(count):
        sever(w, w.held[i])
    return OK


@njit(cache=True)
def _settle(w: World, op: int) -> None:
    """After ``op`` has overwritten its inputs: what else it made cannot be made again."""
    first, end = w.ops[op].output, w.ops[op].output_end
    for value in range(first, end):
        made = w.values[value].storage
        if w.storages[made].fixed:
            continue
        for other in range(first, end):
            if w.values[other].replaces >= 0 and w.values[other].storage != made:
                pin(w, made)
                sever(w, made)
                break


@njit(cache=True)
def _execute(w: World, op: int, wanted: int) -> int:
    """Run ``op``, and before it whatever it needs that is not there."""
    reg = w.reg
    w.missing[0] = 0
    depth = _begin(w, 0, 0, op, wanted)
    top = 0
    while top >= 0:
        if depth > w.frames[top].base:
            value = w.missing[depth - 1]
            if w.values[value].defined:
                depth -= 1
                lock(w, w.values[value].storage)
            else:
                top += 1
                depth = _begin(w, top, depth, w.values[value].op, value)
            continue
        op, wanted = w.frames[top].op, w.frames[top].wanted
        need = w.ops[op].total + w.ops[op].extra
        while reg[MEMORY] + need > reg[BUDGET]:
            if not reg[POOL_LIVE]:
                if reg[COLLECT] and give_up(w):
                    continue
                reg[ASKED] = need
                return OOM
            if reg[NODES] == len(w.nodes) or reg[TRACE] + 1 >= len(w.trace):
                return FULL
            evict(w, choose(w))
        if reg[TRACE] + 1 >= len(w.trace):
            return FULL
        _run(w, op, wanted)
        top -= 1
        if reg[REMAT] > reg[LIMIT]:
            return THRASH
    return OK


@njit(cache=True)
def _begin(w: World, top: int, depth: int, op: int, wanted: int) -> int:
    """Push a frame; returns the new depth of ``w.missing``."""
    clock = w.reg[CLOCK]
    first, end = w.ops[op].input, w.ops[op].input_end
    for i in range(first, end):
        w.storages[w.values[w.inputs[i]].storage].last = clock
    w.frames[top].op, w.frames[top].wanted, w.frames[top].base = op, wanted, depth
    for i in range(first, end):
        if w.values[w.inputs[i]].defined:
            lock(w, w.values[w.inputs[i]].storage)
    for i in range(end - 1, first - 1, -1):
        if not w.values[w.inputs[i]].defined:
            w.missing[depth] = w.inputs[i]
            depth += 1
    return depth


@njit(cache=True)
def _run(w: World, op: int, wanted: int) -> None:
    """Run ``op``: its inputs are there, and so is the room for its outputs."""
    reg = w.reg
    note(w, _RUN if wanted < 0 else _AGAIN, op if wanted < 0 else wanted)
    reg[CLOCK] += w.ops[op].cost
    if wanted >= 0:
        reg[REMAT] += w.ops[op].cost
    reg[MEMORY] += w.ops[op].total
    reg[PEAK] = max(reg[PEAK], reg[MEMORY] + w.ops[op].extra)
    first, end = w.ops[op].output, w.ops[op].output_end
    if wanted < 0:
        for value in range(first, end):
            w.storages[w.values[value].storage].last = reg[CLOCK]
    asked = first if wanted < 0 else wanted
    for value in range(first, end):
        if value != asked:
            _define(w, value)
    if first < end:
        _define(w, asked)
    for i in range(w.ops[op].input, w.ops[op].input_end):
        unlock(w, w.values[w.inputs[i]].storage)


@njit(cache=True)
def _define(w: World, value: int) -> None:
    storage = w.values[value].storage
    there = w.storages[storage].material and w.contents[w.storages[storage].value] == value
    if there or w.values[value].defined or w.storages[storage].dead:
        w.reg[MEMORY] -= w.values[value].nbytes
        return
    if w.values[value].replaces >= 0:
        w.values[w.values[value].replaces].defined = 0
    w.values[value].defined = 1
    if not w.storages[storage].material:
        withdraw(w, storage)
        w.storages[storage].material = 1
        w.storages[storage].least = w.storages[storage].work
        if not w.storages[storage].locks:
            enter(w, storage)
