"""Pages of tensors that move in batches: the compiled core of G10's page policies.

The pages of a tensor are alike, so counts of them stand for them: on the device, at the host, on the drive; the others
are not allocated. A kernel finds pages absent (faults), requests say what moves besides. A batch moves in this order:
planned evictions, faults from the drive, from the host, those that allocate, prefetches from the drive, from the host,
preallocations. What has no room evicts the pages that arrived longest ago: in the logs of the original a page
that a kernel finds resident is not renewed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensortide.compiled import compiled, entry
from tensortide.replays.g10.machine import Ints

FETCH, TO_HOST, TO_DRIVE, DROP = range(4)
"""Kinds of requests: pages of a tensor to the device, allocated where there are none; to a tier; freed everywhere."""
HOST_IN, HOST_OUT, DRIVE_IN, DRIVE_OUT, TIME, OVERLAP, STUCK = range(7)
"""What is counted: pages by tier and direction, nanoseconds of the step and of computing while pages move."""
COUNTS = 7
FREE, AT_HOST, TICK, NOW, NEWEST, OLDEST, ASKED, SERVED, LEAVING, LEFT, KERNEL = range(11)
"""Registers: free pages of the device and of the host, the number of the next batch, time, both ends of the list of
tensors by arrival, ends of the queue of fetches and of that of planned evictions, kernels started in all steps."""
INTO, FROM_DRIVE, OUT, TO_DRIVE_LEFT, FRESH, STOP = range(11, 17)
"""Registers: pages that the batch may still move in, of these from the drive, out, of these to it, and allocate; not 0:
the play is to end at once."""
REGISTERS = 17


class Rules(NamedTuple):
    """Numbers of the machine and the policy, in pages and nanoseconds.

    ``wire_rate``: pages per nanosecond to and from the host, ``beside_rate`` while the drive is in use, ``drive_rate``
    to and from the drive. ``fault_share``: the rate at which faults on the drive are handled over that of the host.
    ``ahead``: how many kernels after it was requested a tensor is not evicted. ``lazy``: dead pages leave only when
    they are the oldest, but without being moved.
    """

    batch_ns: int
    batch: int
    drive: int
    allocated: int
    wire_rate: float
    beside_rate: float
    drive_rate: float
    fault_share: float
    ahead: int
    lazy: bool


class Steps(NamedTuple):
    """A trace as arrays: the operands of kernel ``k`` are ``operands[ends[k]:ends[k + 1]]``, of which those that are
    inputs are ``read``; its requests likewise. ``death``: the kernel from which on a tensor is dead, -1 for those that
    last. ``rate_in`` and ``rate_out``: pages per nanosecond at which faults on them are handled."""

    ns: Ints
    rate_in: NDArray[np.float64]
    rate_out: NDArray[np.float64]
    operands: Ints
    read: NDArray[np.bool_]
    ends: Ints
    requests: Ints
    kinds: Ints
    request_ends: Ints
    pages: Ints
    death: Ints


class World(NamedTuple):
    """Pages of each tensor by place, its neighbours in the list by arrival, the kernel that last ``used`` it and that
    ``until`` which it stays, both counted over all steps, pages ``due`` for the running kernel, whether it is
    ``asked`` for by a request in the queue, and the queues."""

    device: Ints
    host: Ints
    drive: Ints
    older: Ints
    newer: Ints
    used: Ints
    until: Ints
    due: Ints
    asked: Ints
    queue: Ints
    leaving: Ints
    to_drive: Ints
    registers: Ints


@entry
def play(s: Steps, r: Rules, w: World, counts: Ints) -> None:
    """Play one step and add what it moves to ``counts``."""
    began = w.registers[NOW]
    for kernel in range(len(s.ns)):
        _request(s, r, w, kernel)
        _kernel(s, r, w, counts, kernel)
        w.registers[KERNEL] += 1
        if counts[STUCK] or w.registers[STOP]:
            return
    counts[TIME] = w.registers[NOW] - began


@compiled
def _request(s: Steps, r: Rules, w: World, kernel: int) -> None:
    for at in range(s.request_ends[kernel], s.request_ends[kernel + 1]):
        tensor, kind = s.requests[at], s.kinds[at]
        if kind == DROP:
            w.asked[tensor] = 0
            _drop(w, tensor)
        elif kind == FETCH:
            w.queue[w.registers[ASKED] % len(w.queue)] = tensor
            w.registers[ASKED] += 1
            w.asked[tensor] = 1
            w.until[tensor] = w.registers[KERNEL] + r.ahead
        else:
            place = w.registers[LEAVING] % len(w.leaving)
            w.leaving[place] = tensor
            w.to_drive[place] = kind == TO_DRIVE
            w.registers[LEAVING] += 1


@compiled
def _drop(w: World, tensor: int) -> None:
    w.registers[FREE] += w.device[tensor]
    w.registers[AT_HOST] += w.host[tensor]
    w.device[tensor] = w.host[tensor] = w.drive[tensor] = 0
    _unlink(w, tensor)


@compiled
def _kernel(s: Steps, r: Rules, w: World, counts: Ints, kernel: int) -> None:
    first, end = s.ends[kernel], s.ends[kernel + 1]
    late = _touch(s, r, w, kernel)
    done = w.registers[NOW] + s.ns[kernel] + late
    arrived, busy, idle = w.registers[NOW], 0, 0
    while not w.registers[STOP]:
        missing = _missing(s, w, first, end)
        at = w.registers[TICK] * r.batch_ns
        if not missing and at >= done:
            break
        moved = _batch(s, r, w, counts, kernel, missing > 0)
        w.registers[TICK] += 1
        if moved and at <= done:
            busy += r.batch_ns
        if missing and not _missing(s, w, first, end):
            arrived = at
        idle = 0 if moved or at < done else idle + 1
        if idle > 4:
            counts[STUCK] = kernel + 1
            return
    w.registers[NOW] = max(done, arrived)
    counts[OVERLAP] += min(busy, s.ns[kernel])


@compiled
def _touch(s: Steps, r: Rules, w: World, kernel: int) -> int:
    """Use the operands of a kernel; return by how much its faults delay it at least."""
    into_host = into_drive = out_host = out_drive = 0
    for at in range(s.ends[kernel], s.ends[kernel + 1]):
        tensor = s.operands[at]
        w.used[tensor] = w.registers[KERNEL]
        w.due[tensor] = s.pages[tensor] - w.device[tensor]
        if w.asked[tensor]:
            continue
        absent, on_drive = w.due[tensor], w.drive[tensor]
        if s.read[at]:
            into_host += absent - on_drive
            into_drive += on_drive
        else:
            out_host += absent - on_drive
            out_drive += on_drive
    wire = r.beside_rate if into_drive or out_drive else r.wire_rate
    rate_in, rate_out = s.rate_in[kernel], s.rate_out[kernel]
    host = into_host / min(rate_in, wire) + out_host / min(rate_out, wire)
    slow_in, slow_out = min(rate_in * r.fault_share, r.drive_rate), min(rate_out * r.fault_share, r.drive_rate)
    drive = into_drive / slow_in + out_drive / slow_out
    return int(max(host, drive))


@compiled
def _missing(s: Steps, w: World, first: int, end: int) -> int:
    found = 0
    for at in range(first, end):
        found += w.due[s.operands[at]]
    return found


@compiled
def _batch(s: Steps, r: Rules, w: World, counts: Ints, kernel: int, faults: bool) -> int:
    """Move a batch; return the number of pages that moved or were allocated."""
    w.registers[INTO], w.registers[FROM_DRIVE] = r.batch, r.drive
    w.registers[OUT], w.registers[TO_DRIVE_LEFT] = r.batch, r.drive
    w.registers[FRESH] = r.allocated
    moved = _planned(w, counts)
    if faults:
        for phase in range(3):
            for at in range(s.ends[kernel], s.ends[kernel + 1]):
                moved += _bring(s, r, w, counts, s.operands[at], phase, kernel, True)
    return int(moved + _prefetched(s, r, w, counts, kernel))


@compiled
def _planned(w: World, counts: Ints) -> int:
    """Move out what is planned to leave, to both tiers at a time."""
    moved = 0
    for number in range(w.registers[LEFT], w.registers[LEAVING]):
        at = number % len(w.leaving)
        tensor = w.leaving[at]
        if tensor >= 0 and w.device[tensor] and not w.asked[tensor]:
            moved += _leave(w, counts, tensor, w.device[tensor], w.to_drive[at] > 0)
        if tensor < 0 or w.asked[tensor] or not w.device[tensor]:
            w.leaving[at] = -1  # done, or wanted back: it must not leave again later
            w.registers[LEFT] += number == w.registers[LEFT]
        if not w.registers[OUT]:
            break
    return moved


@compiled
def _prefetched(s: Steps, r: Rules, w: World, counts: Ints, kernel: int) -> int:
    """Bring what was requested, the first request first."""
    moved = 0
    for phase in range(3):
        for number in range(w.registers[SERVED], w.registers[ASKED]):
            if not w.registers[FRESH if phase == 2 else INTO] or (not phase and not w.registers[FROM_DRIVE]):
                break
            tensor = w.queue[number % len(w.queue)]
            if w.asked[tensor]:
                moved += _bring(s, r, w, counts, tensor, phase, kernel, False)
                w.asked[tensor] = w.device[tensor] < s.pages[tensor]
    while w.registers[SERVED] < w.registers[ASKED]:
        if w.asked[w.queue[w.registers[SERVED] % len(w.queue)]]:
            break
        w.registers[SERVED] += 1
    return moved


@compiled
def _bring(s: Steps, r: Rules, w: World, counts: Ints, tensor: int, phase: int, kernel: int, now: bool) -> int:
    """Bring pages of a tensor from the drive (phase 0), from the host (1), or allocate them (2), as far as the batch
    allows; ``now``: those that the running kernel waits for."""
    if phase == 0:
        want = min(w.drive[tensor], w.registers[INTO], w.registers[FROM_DRIVE])
    elif phase == 1:
        want = min(w.host[tensor], w.registers[INTO])
    else:
        absent = s.pages[tensor] - w.device[tensor] - w.host[tensor] - w.drive[tensor]
        want = min(absent, w.registers[FRESH])
    if now:
        want = min(want, w.due[tensor])
    got = 0
    while got < want:
        if not w.registers[FREE] and not _evict(s, r, w, counts, want - got, kernel, now):
            break
        n = min(want - got, w.registers[FREE])
        _arrive(w, counts, tensor, n, phase)
        got += n
    return got


@compiled
def _arrive(w: World, counts: Ints, tensor: int, count: int, phase: int) -> None:
    w.device[tensor] += count
    w.registers[FREE] -= count
    w.due[tensor] -= min(count, w.due[tensor])
    _unlink(w, tensor)
    _link(w, tensor)
    if phase == 2:
        w.registers[FRESH] -= count
        return
    w.registers[INTO] -= count
    if phase == 0:
        w.drive[tensor] -= count
        w.registers[FROM_DRIVE] -= count
        counts[DRIVE_IN] += count
    else:
        w.host[tensor] -= count
        w.registers[AT_HOST] += count
        counts[HOST_IN] += count


@compiled
def _evict(s: Steps, r: Rules, w: World, counts: Ints, want: int, kernel: int, now: bool) -> int:
    """Free pages of the tensor that arrived longest ago, ``want`` at most unless they are dead; return how many."""
    tensor = w.registers[OLDEST]
    while tensor >= 0:
        if r.ahead and not now and w.until[tensor] >= w.registers[KERNEL]:
            tensor = w.newer[tensor]
            continue
        if r.lazy and _is_dead(s, w, tensor, kernel):
            count = w.device[tensor]
            _drop(w, tensor)
            return int(count)
        return int(_leave(w, counts, tensor, want, w.registers[AT_HOST] == 0))
    return 0


@compiled
def _is_dead(s: Steps, w: World, tensor: int, kernel: int) -> bool:
    """Tell whether no kernel will read what the pages hold: they are of the step before, or of a tensor that died."""
    before = w.used[tensor] < w.registers[KERNEL] - kernel
    return bool(s.death[tensor] >= 0 and (before or kernel >= s.death[tensor]))


@compiled
def _leave(w: World, counts: Ints, tensor: int, want: int, to_drive: bool) -> int:
    """Move pages of a tensor out, as far as the batch and the host allow; return how many."""
    room = w.registers[TO_DRIVE_LEFT] if to_drive else w.registers[AT_HOST]
    count = min(want, w.device[tensor], w.registers[OUT], room)
    if not count:
        return 0
    w.device[tensor] -= count
    w.registers[FREE] += count
    w.registers[OUT] -= count
    if to_drive:
        w.registers[TO_DRIVE_LEFT] -= count
        w.drive[tensor] += count
        counts[DRIVE_OUT] += count
    else:
        w.host[tensor] += count
        w.registers[AT_HOST] -= count
        counts[HOST_OUT] += count
    if not w.device[tensor]:
        _unlink(w, tensor)
    return int(count)


@compiled
def _unlink(w: World, tensor: int) -> None:
    older, newer = w.older[tensor], w.newer[tensor]
    if older < -1:
        return
    if older >= 0:
        w.newer[older] = newer
    else:
        w.registers[OLDEST] = newer
    if newer >= 0:
        w.older[newer] = older
    else:
        w.registers[NEWEST] = older
    w.older[tensor] = w.newer[tensor] = -2


@compiled
def _link(w: World, tensor: int) -> None:
    """Make a tensor the one that arrived last."""
    newest = w.registers[NEWEST]
    w.older[tensor], w.newer[tensor] = newest, -1
    if newest >= 0:
        w.newer[newest] = tensor
    else:
        w.registers[OLDEST] = tensor
    w.registers[NEWEST] = tensor
