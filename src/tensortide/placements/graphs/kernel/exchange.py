"""All-reduces of gradients beside compute: buckets of each device, launched in order as their gradients are ready.

An exchange takes a share of its device's rate: an op that runs beside it takes longer. The update of a device, all that
is recorded after the exchanges, begins once its last bucket has arrived, as with ``DistributedDataParallel``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensortide.placements.graphs.kernel.records import Run, Tables
from tensortide.plans.compiled import compiled

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints

FULL = 1000
"""The rate of a device without an exchange, per mille."""


@compiled
def fill_buckets(t: Tables, r: Run, devices: int) -> None:
    """Divide the gradients of every device into buckets: one is full once it has its limit of bytes
    (``timelines.data_parallel.bucket_numbers``). A bucket is known by the place of its first gradient."""
    e = t.exchanges
    for d in range(devices):
        r.due[d] = r.open[d] = -1
    for i in range(len(e.ops)):
        op = e.ops[i]
        d = r.device[op]
        b = r.open[d]
        if b < 0 or r.bucket_bytes[b] >= (e.first_bytes if b == r.due[d] else e.limit_bytes):
            r.bucket_bytes[i] = r.bucket_ns[i] = r.bucket_left[i] = 0
            r.bucket_after[i] = -1
            if b < 0:
                r.due[d] = i
            else:
                r.bucket_after[b] = i
            r.open[d] = b = i
        r.bucket[i] = b
        r.bucket_bytes[b] += e.nbytes[i]
        r.bucket_ns[b] += t.ns[op * devices + d]
        r.bucket_left[b] += 1


@compiled
def exchange_ns(t: Tables, r: Run, d: int, b: int) -> int:
    """The time of a bucket on a device: between the sizes of the table on the line that joins them; where there is no
    table, that of its all-reduces one after the other."""
    e = t.exchanges
    count = len(e.sizes)
    if count == 0 or e.size_ns[d * count] < 0:
        return r.bucket_ns[b]
    nbytes = r.bucket_bytes[b]
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        if e.sizes[middle] < nbytes:
            low = middle + 1
        else:
            high = middle
    if e.sizes[low] == nbytes or low == 0:
        return e.size_ns[d * count + low]
    before, after = e.size_ns[d * count + low - 1], e.size_ns[d * count + low]
    span, part = e.sizes[low] - e.sizes[low - 1], nbytes - e.sizes[low - 1]
    return before + round((after - before) * (part / span))


@compiled
def begin_exchange(t: Tables, r: Run, devices: int, d: int, now: int) -> None:
    """Launch the next bucket of a device, if all its gradients are ready and the one before has arrived."""
    slot, b = devices + len(t.lane_target) + d, r.due[d]
    if b < 0 or r.busy_end[slot] >= 0 or r.bucket_left[b] > 0:
        return
    end = now + exchange_ns(t, r, d, b)
    for i in range(b, len(t.exchanges.ops)):
        if r.bucket[i] == b:
            r.start[t.exchanges.ops[i]] = now
            r.end[t.exchanges.ops[i]] = end
    r.busy_end[slot], r.busy_item[slot] = end, b
    if r.busy_end[d] > now and r.busy_item[d] >= 0:
        left = r.busy_end[d] - now
        r.end[r.busy_item[d]] = r.busy_end[d] = now + beside(t, left)


@compiled
def end_exchange(t: Tables, r: Run, devices: int, d: int, now: int) -> None:
    """A bucket has arrived: the op that runs meanwhile goes on at full rate."""
    r.due[d] = r.bucket_after[r.due[d]]
    if r.busy_end[d] > now and r.busy_item[d] >= 0:
        left = (r.busy_end[d] - now) * t.exchanges.rate
        r.end[r.busy_item[d]] = r.busy_end[d] = now + (left + FULL - 1) // FULL


@compiled
def beside(t: Tables, ns: int) -> int:
    """The time of ``ns`` of computation beside an exchange."""
    rate = t.exchanges.rate
    return (ns * FULL + rate - 1) // rate


@compiled
def exchanging(t: Tables, busy_end: Ints, devices: int, d: int) -> bool:
    """True while an exchange of a device runs."""
    if len(t.exchanges.ops) == 0:
        return False
    return bool(busy_end[devices + len(t.lane_target) + d] >= 0)
