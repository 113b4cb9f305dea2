"""Collectives beside compute: buckets of each device, launched in order as their gradients are ready.

An exchange takes a share of its device's rate: an op that runs beside it takes longer. It shares channels with other
exchanges and with transfers. The update of a device, all that is recorded after the exchanges, begins once its last
bucket has arrived, as with ``DistributedDataParallel``.
"""

from __future__ import annotations

from tensortide.compiled import compiled
from tensortide.placements.graphs.kernel.records import Draft, Tables


@compiled
def fill_buckets(t: Tables, w: Draft, devices: int) -> None:
    """Divide the gradients of every device into buckets (``timelines.data_parallel.buckets_of``). A bucket is known by
    the place of its first gradient."""
    e = t.exchanges
    for d in range(devices):
        w.first_bucket[d] = w.last_bucket[d] = -1
        for stream in range(d * e.streams, (d + 1) * e.streams):
            w.open[stream] = w.begun[stream] = -1
            w.filled[stream] = 0
    for i in range(len(e.ops)):
        op = e.ops[i]
        d = w.device[op]
        stream = d * e.streams + e.stream[i]
        if w.open[stream] < 0:
            w.open[stream] = i
            w.bucket_bytes[i] = w.bucket_ns[i] = 0
        if w.begun[stream] < 0:
            w.begun[stream] = i
        b = w.bucket[i] = w.open[stream]
        w.bucket_bytes[b] += e.nbytes[i]
        w.bucket_ns[b] += t.ns[op * devices + d]
        if w.bucket_bytes[b] >= (e.limit_bytes if w.filled[stream] else e.first_bytes):
            _append(w, d, b)
            w.open[stream], w.filled[stream] = -1, 1
    for d in range(devices):
        for _ in range(e.streams):  # the rest, that of the stream that began last first
            last = -1
            for stream in range(d * e.streams, (d + 1) * e.streams):
                if w.open[stream] >= 0 and (last < 0 or w.begun[stream] > w.begun[last]):
                    last = stream
            if last >= 0:
                _append(w, d, w.open[last])
                w.open[last] = -1


@compiled
def _append(w: Draft, d: int, b: int) -> None:
    """Put a bucket at the end of those of a device."""
    w.bucket_after[b] = -1
    if w.last_bucket[d] < 0:
        w.first_bucket[d] = b
    else:
        w.bucket_after[w.last_bucket[d]] = b
    w.last_bucket[d] = b


@compiled
def exchange_ns(t: Tables, w: Draft, d: int, b: int) -> int:
    """The time of a bucket on a device: between the sizes of the table on the line that joins them; where there is no
    table, that of its collectives one after the other."""
    e = t.exchanges
    count = len(e.sizes)
    first = (d * e.streams + e.stream[b]) * count
    if count == 0 or e.size_ns[first] < 0:
        return w.bucket_ns[b]
    nbytes = w.bucket_bytes[b]
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        if e.sizes[middle] < nbytes:
            low = middle + 1
        else:
            high = middle
    if e.sizes[low] == nbytes or low == 0:
        return e.size_ns[first + low]
    before, after = e.size_ns[first + low - 1], e.size_ns[first + low]
    span, part = e.sizes[low] - e.sizes[low - 1], nbytes - e.sizes[low - 1]
    return before + round((after - before) * (part / span))
