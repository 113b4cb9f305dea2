"""One step under a memory budget, compiled: ``engine.Engine`` for the named heuristics."""

from __future__ import annotations

from tensortide.compiled import compiled, entry
from tensortide.plans.remat.schedule import Event
from tensortide.replays.remat.fast.costs import gain, token
from tensortide.replays.remat.fast.pool import choose, enter
from tensortide.replays.remat.fast.state import FULL, HELD, OK, OOM, THRASH, Step, World
from tensortide.replays.remat.fast.storages import (
    evict,
    held_below,
    last_resort,
    lock,
    note,
    pin,
    released,
    sever,
    spare,
    unlock,
    withdraw,
)
from tensortide.timelines.events import Kind


@entry
def play(s: Step, w: World) -> int:
    """Play all events; the result is in ``state``."""
    for event in range(len(s.kinds)):
        kind, index = s.kinds[event], s.indexes[event]
        status = OK
        if kind == Event.COMPUTE:
            status = _compute(s, w, index)
        elif kind == Event.GET:
            w.storages[s.storage[index]].references += 1
        elif kind == Event.RELEASE:
            w.storages[s.storage[index]].references -= 1
            released(w, s.storage[index])
        else:
            if not w.defined[index]:
                status = _execute(s, w, s.made[index], index)
            if status == OK:
                pin(w, s.storage[index])
        if w.reg[0].traced == len(w.trace):
            return FULL
        if status != OK:
            return status
    return OK


@compiled
def _compute(s: Step, w: World, op: int) -> int:
    """The model's own execution of ``op``."""
    first, end = s.output_ends[op], s.output_ends[op + 1]
    overwrites = False
    for value in range(first, end):
        overwrites = overwrites or s.replaces[value] >= 0
    if overwrites and w.reg[0].collect:
        status = _secure(s, w, first, end)
        if status != OK:
            return status
    gathered = _gathered(s, w, op)
    for value in range(first, end):
        made = s.storage[value]
        _connect(w, made, s.added[value])
        w.storages[made].newest = value
        if s.replaces[value] < 0:
            w.storages[made].references += 1
        counted = False
        for other in range(first, value):
            counted = counted or s.storage[other] == made
        if not counted:
            w.storages[made].work += s.cost_ns[op]
    status = _execute(s, w, op, -1)
    if status == OK and w.reg[0].collect and w.reg[0].eager:
        _spare_gradients(s, w, op, gathered)
    if status == OK and overwrites and w.reg[0].collect:
        _settle(s, w, op)
    return status


@compiled
def _gathered(s: Step, w: World, op: int) -> int:
    """Return the storage in which ``op`` is about to sum gradients, if it is the only op to use the sum so far; else
    -1."""
    if s.sums[op] and w.reg[0].collect and w.reg[0].eager:
        before = s.storage[s.inputs[s.input_ends[op]]]
        if not w.storages[before].dependents:
            return int(s.storage[s.output_ends[op]])
    return -1


@compiled
def _spare_gradients(s: Step, w: World, op: int, gathered: int) -> None:
    """Spare the gradients that ``op`` has made, and the sum ``gathered``, unless that is -1."""
    if gathered >= 0:
        spare(w, gathered)
    for value in range(s.output_ends[op], s.output_ends[op + 1]):
        if s.gradient[s.storage[value]]:
            spare(w, s.storage[value])


@compiled
def _connect(w: World, made: int, count: int) -> None:
    """Link ``made`` to the ``count`` more storages that it is computed from."""
    known = w.storages[made].up_end
    w.storages[made].up_end += count
    for edge in range(known, known + count):
        source = w.near[edge]
        w.storages[source].down_end += 1
        if not w.storages[made].fixed:
            w.storages[source].dependents += 1


@compiled
def _secure(s: Step, w: World, first: int, end: int) -> int:
    """Secure what the program holds and is made of the values that ``first`` to ``end - 1`` overwrite: recompute it if
    it is not resident, and pin it. The smallest comes first."""
    count, mark = 0, token(w)
    for value in range(first, end):
        if s.replaces[value] >= 0:
            count = held_below(w, s.storage[value], mark, count)
    _by_size(w, count)
    for i in range(count):
        storage = w.lists[HELD, i]
        newest = w.storages[storage].newest
        if not w.defined[newest]:
            status = _execute(s, w, s.made[newest], newest)
            if status != OK:
                return status
        pin(w, storage)
    for i in range(count):
        sever(w, w.lists[HELD, i])
    return OK


@compiled
def _by_size(w: World, count: int) -> None:
    """Sort the first ``count`` of the HELD by size."""
    for end in range(1, count):
        storage = w.lists[HELD, end]
        at = end
        while at and w.sizes[w.lists[HELD, at - 1]] > w.sizes[storage]:
            w.lists[HELD, at] = w.lists[HELD, at - 1]
            at -= 1
        w.lists[HELD, at] = storage


@compiled
def _settle(s: Step, w: World, op: int) -> None:
    """Fix the other outputs of ``op``, which has overwritten its inputs: they cannot be recomputed."""
    first, end = s.output_ends[op], s.output_ends[op + 1]
    for value in range(first, end):
        made = s.storage[value]
        if w.storages[made].fixed:
            continue
        for other in range(first, end):
            if s.replaces[other] >= 0 and s.storage[other] != made:
                pin(w, made)
                sever(w, made)
                break


@compiled
def _execute(s: Step, w: World, op: int, wanted: int) -> int:
    """Run ``op``, and before it whatever it needs that is not there."""
    reg = w.reg[0]
    s.missing[0] = 0
    depth = _begin(s, w, 0, 0, op, wanted)
    top = 0
    while top >= 0:
        if depth > s.frames[top].base:
            value = s.missing[depth - 1]
            if w.defined[value]:
                depth -= 1
                lock(w, s.storage[value])
            else:
                top += 1
                depth = _begin(s, w, top, depth, s.made[value], value)
            continue
        op, wanted = s.frames[top].op, s.frames[top].wanted
        total = 0
        for value in range(s.output_ends[op], s.output_ends[op + 1]):
            total += s.nbytes[value]
        need = total + s.extra_bytes[op]
        least = total if reg.overruns else need
        while reg.memory + total > reg.budget or reg.memory + need > reg.budget + reg.overrun:
            if not reg.pool_live:
                if reg.memory + least <= reg.budget:
                    reg.overrun = reg.memory + need - reg.budget
                    break
                if reg.collect and last_resort(w):
                    continue
                reg.asked = least
                return OOM
            if reg.traced + 1 >= len(w.trace):
                return FULL
            evict(w, choose(w))
        if reg.traced + 1 >= len(w.trace):
            return FULL
        _run(s, w, op, wanted, total)
        top -= 1
        if reg.remat > reg.limit:
            return THRASH
    return OK


@compiled
def _begin(s: Step, w: World, top: int, depth: int, op: int, wanted: int) -> int:
    """Push a frame; returns the new depth of ``s.missing``."""
    clock = w.reg[0].clock
    first, end = s.input_ends[op], s.input_ends[op + 1]
    s.frames[top].op, s.frames[top].wanted, s.frames[top].base = op, wanted, depth
    for i in range(end - 1, first - 1, -1):
        value = s.inputs[i]
        w.storages[s.storage[value]].last = clock
        if w.defined[value]:
            lock(w, s.storage[value])
        else:
            s.missing[depth] = value
            depth += 1
    return depth


@compiled
def _run(s: Step, w: World, op: int, wanted: int, total: int) -> None:
    """Run ``op``: its inputs are there, and so is the room for its outputs."""
    reg = w.reg[0]
    note(w, Kind.RUN if wanted < 0 else Kind.RECOMPUTE, op if wanted < 0 else wanted)
    reg.clock += s.cost_ns[op]
    if wanted >= 0:
        reg.remat += s.cost_ns[op]
    reg.memory += total
    reg.peak = max(reg.peak, reg.memory + s.extra_bytes[op])
    first, end = s.output_ends[op], s.output_ends[op + 1]
    if wanted < 0:
        for value in range(first, end):
            w.storages[s.storage[value]].last = reg.clock
    asked = first if wanted < 0 else wanted
    for value in range(first, end):
        if value != asked:
            _define(s, w, value)
    if first < end:
        _define(s, w, asked)
    for i in range(s.input_ends[op], s.input_ends[op + 1]):
        unlock(w, s.storage[s.inputs[i]])


@compiled
def _define(s: Step, w: World, value: int) -> None:
    storage = s.storage[value]
    intact = w.storages[storage].resident and s.root[storage] == value
    if intact or w.defined[value] or w.storages[storage].dead:
        w.reg[0].memory -= s.nbytes[value]
        return
    if s.replaces[value] >= 0:
        w.defined[s.replaces[value]] = 0
    w.defined[value] = 1
    if not w.storages[storage].resident:
        withdraw(w, storage)
        w.storages[storage].resident = 1
        w.storages[storage].gain = gain(w, storage, w.storages[storage].work)
        if not w.storages[storage].locks:
            enter(w, storage)
