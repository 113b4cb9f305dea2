"""Storages of the compiled engine: locked, pinned, evicted, dropped for good."""

from __future__ import annotations

from tensortide.compiled import compiled
from tensortide.plans.remat.policies import Work
from tensortide.replays.remat.fast.classes import join, leave_class
from tensortide.replays.remat.fast.costs import span, token
from tensortide.replays.remat.fast.pool import cheaper, choose, enter, leave
from tensortide.replays.remat.fast.state import BURIED, HELD, QUEUE, WAITS, World
from tensortide.timelines.events import Kind


@compiled
def withdraw(w: World, storage: int) -> None:
    """Withdraw the evicted ``storage``, which needs no recomputation any more: evicting others may become cheaper."""
    kind = w.reg[0].work
    if kind == Work.CLASSES:
        leave_class(w, storage)
    if kind in (Work.ANCESTORS, Work.NEIGHBOURHOOD, Work.UNION):
        _relax(w, storage, False)
    if kind in (Work.NEIGHBOURHOOD, Work.UNION):
        _relax(w, storage, True)


@compiled
def _relax(w: World, storage: int, upwards: bool) -> None:
    """Relax the costs of storages that reached ``storage`` through evicted ones: they may be cheaper without it."""
    mark = token(w)
    found, head, at = -1, 0, storage
    while True:
        start, end = span(w, at, upwards)
        for edge in range(start, end):
            other = w.near[edge]
            if w.storages[other].dead or w.storages[other].stamp == mark:
                continue
            w.storages[other].stamp = mark
            if w.storages[other].resident:
                cheaper(w, other)
            else:
                found += 1
                w.lists[QUEUE, found] = other
        if head > found:
            return
        at = w.lists[QUEUE, head]
        head += 1


@compiled
def note(w: World, kind: int, index: int) -> None:
    """Append to the trace."""
    at = w.reg[0].traced
    if at < len(w.trace):
        w.trace[at] = index << 3 | kind
        w.reg[0].traced += 1


@compiled
def lock(w: World, storage: int) -> None:
    """``storage`` must not be evicted."""
    if not w.storages[storage].locks:
        leave(w, storage)
    w.storages[storage].locks += 1


@compiled
def unlock(w: World, storage: int) -> None:
    """Take one lock off ``storage``."""
    w.storages[storage].locks -= 1
    if not w.storages[storage].locks and w.storages[storage].resident:
        enter(w, storage)


@compiled
def pin(w: World, storage: int) -> None:
    """``storage`` must never be evicted again."""
    if not w.storages[storage].pinned:
        lock(w, storage)
    w.reg[0].spared -= w.storages[storage].pinned == 2
    w.storages[storage].pinned = 1


@compiled
def spare(w: World, storage: int) -> None:
    """Do not evict ``storage`` before everything else."""
    if not w.storages[storage].pinned:
        w.storages[storage].pinned = 2
        w.reg[0].spared += 1
        lock(w, storage)


@compiled
def _unspare(w: World, storage: int) -> None:
    """Allow the eviction of ``storage``, if it is spared."""
    if w.storages[storage].pinned == 2:
        w.storages[storage].pinned = 0
        w.reg[0].spared -= 1
        unlock(w, storage)


@compiled
def _unspare_one(w: World) -> bool:
    """Allow the eviction of that spared storage which the policy would evict first; False if there is none."""
    for storage in range(len(w.storages)):
        if w.storages[storage].pinned == 2:
            unlock(w, storage)
    found = choose(w) if w.reg[0].pool_live else -1
    for storage in range(len(w.storages)):
        if w.storages[storage].pinned == 2:
            lock(w, storage)
    if found >= 0:
        _unspare(w, found)
    return found >= 0


@compiled
def _clear(w: World, storage: int) -> None:
    """Take ``storage`` out of memory."""
    leave(w, storage)
    w.storages[storage].resident = 0
    newest = value = w.storages[storage].newest
    while True:
        w.defined[value] = 0
        value = w.following[value]
        if value == newest:
            break
    w.reg[0].memory -= w.sizes[storage]


@compiled
def evict(w: World, storage: int) -> None:
    """``storage`` leaves memory, and can come back."""
    note(w, Kind.EVICT, storage)
    _clear(w, storage)
    if w.reg[0].work == Work.CLASSES:
        join(w, storage)


@compiled
def released(w: World, storage: int) -> None:
    """The program has dropped one reference."""
    if w.storages[storage].references or w.storages[storage].dead:
        return
    if w.reg[0].collect:
        _unspare(w, storage)
        unheld = w.storages[storage].fixed and not w.reg[0].hold
        if unheld or not w.storages[storage].dependents:
            bury(w, storage)
            return
        if w.storages[storage].fixed:
            if w.storages[storage].fixed == 1:
                w.storages[storage].fixed = 2
                w.lists[WAITS, w.reg[0].waiting] = storage
                w.reg[0].waiting += 1
            return
    if w.reg[0].eager and w.storages[storage].resident and not w.storages[storage].locks:
        evict(w, storage)


@compiled
def bury(w: World, storage: int) -> None:
    """Bury the dead ``storage``, and each of its sources that dies with it."""
    w.lists[BURIED, 0] = storage
    w.storages[storage].dead = 1
    _bury_all(w, 1)


@compiled
def _bury_all(w: World, count: int) -> None:
    """Bury the first ``count`` of the BURIED, and whatever only they needed."""
    head = 0
    while head < count:
        at = w.lists[BURIED, head]
        head += 1
        if w.storages[at].resident:
            note(w, Kind.BANISH, at)
            _clear(w, at)
        else:
            note(w, Kind.DEAD, at)
            withdraw(w, at)
        if not w.storages[at].fixed:
            count = _disown(w, at, count)


@compiled
def sever(w: World, storage: int) -> None:
    """Cut the pinned ``storage``, which can never be recomputed, off from its sources."""
    if w.storages[storage].fixed:
        return
    w.storages[storage].fixed = 1
    _bury_all(w, _disown(w, storage, 0))


@compiled
def _disown(w: World, storage: int, count: int) -> int:
    """``storage`` needs nothing of what it was made of: append to the BURIED what nothing else needs."""
    for edge in range(w.storages[storage].up, w.storages[storage].up_end):
        other = w.near[edge]
        w.storages[other].dependents -= 1
        if not w.storages[other].dependents and not w.storages[other].references and not w.storages[other].dead:
            w.storages[other].dead = 1
            w.lists[BURIED, count] = other
            count += 1
    return count


@compiled
def held_below(w: World, storage: int, mark: int, count: int) -> int:
    """Append to the HELD what the program holds and is made of ``storage``, directly or through what it has dropped,
    unless it is stamped with ``mark``."""
    found, head, at = -1, 0, storage
    while True:
        for edge in range(w.storages[at].down, w.storages[at].down_end):
            other = w.near[edge]
            if w.storages[other].dead or w.storages[other].fixed or w.storages[other].stamp == mark:
                continue
            w.storages[other].stamp = mark
            if w.storages[other].references:
                w.lists[HELD, count] = other
                count += 1
            else:
                found += 1
                w.lists[QUEUE, found] = other
        if head > found:
            return count
        at = w.lists[QUEUE, head]
        head += 1


@compiled
def last_resort(w: World) -> bool:
    """The last resort: evict a gradient; or drop what only waits to make something again, and never evict what is made
    of it."""
    if w.reg[0].spared and _unspare_one(w):
        return True
    for i in range(w.reg[0].waiting):
        storage = w.lists[WAITS, i]
        record = w.storages[storage]
        if record.dead or record.references or record.locks > record.pinned or not _all_there(w, storage):
            continue
        for edge in range(record.down, record.down_end):
            made = w.near[edge]
            if not w.storages[made].dead:
                pin(w, made)
                sever(w, made)
        if not w.storages[storage].dead:
            bury(w, storage)
        return True
    return False


@compiled
def _all_there(w: World, storage: int) -> bool:
    """Return whether all live values made of ``storage`` are resident, as they were last written."""
    for edge in range(w.storages[storage].down, w.storages[storage].down_end):
        made = w.storages[w.near[edge]]
        if not made.dead and not made.fixed and not w.defined[made.newest]:
            return False
    return True
