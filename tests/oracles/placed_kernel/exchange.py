"""Collectives beside compute: buckets of each device, launched in order as their gradients are ready.

An exchange takes a share of its device's rate: an op that runs beside it takes longer. It shares channels with other
exchanges and with transfers. The update of a device, all that is recorded after the exchanges, begins once its last
bucket has arrived, as with ``DistributedDataParallel``.
"""

from __future__ import annotations

from tests.oracles.placed_kernel.records import Run, Tables

FULL = 1000
"""The rate of a device without an exchange, per mille."""


def fill_buckets(t: Tables, r: Run, devices: int) -> None:
    """Divide the gradients of every device into buckets (``timelines.data_parallel.buckets_of``). A bucket is known by
    the place of its first gradient."""
    e = t.exchanges
    for d in range(devices):
        r.due[d] = r.last_bucket[d] = -1
        for stream in range(d * e.streams, (d + 1) * e.streams):
            r.open[stream] = r.begun[stream] = -1
            r.filled[stream] = 0
    for i in range(len(e.ops)):
        op = e.ops[i]
        d = r.device[op]
        stream = d * e.streams + e.stream[i]
        if r.open[stream] < 0:
            r.open[stream] = i
            r.bucket_bytes[i] = r.bucket_ns[i] = r.bucket_left[i] = 0
        if r.begun[stream] < 0:
            r.begun[stream] = i
        b = r.bucket[i] = r.open[stream]
        r.bucket_bytes[b] += e.nbytes[i]
        r.bucket_ns[b] += t.ns[op * devices + d]
        r.bucket_left[b] += 1
        if r.bucket_bytes[b] >= (e.limit_bytes if r.filled[stream] else e.first_bytes):
            append_bucket(r, d, b)
            r.open[stream], r.filled[stream] = -1, 1
    for d in range(devices):
        for _ in range(e.streams):  # the rest, that of the stream that began last first
            last = -1
            for stream in range(d * e.streams, (d + 1) * e.streams):
                if r.open[stream] >= 0 and (last < 0 or r.begun[stream] > r.begun[last]):
                    last = stream
            if last >= 0:
                append_bucket(r, d, r.open[last])
                r.open[last] = -1


def append_bucket(r: Run, d: int, b: int) -> None:
    """Put a bucket at the end of those of a device."""
    before = r.last_bucket[d]
    r.bucket_after[b] = -1
    if before < 0:
        r.due[d], r.bucket_turn[b] = b, 0
    else:
        r.bucket_after[before], r.bucket_turn[b] = b, r.bucket_turn[before] + 1
    r.last_bucket[d] = b


def exchange_ns(t: Tables, r: Run, d: int, b: int) -> int:
    """The time of a bucket on a device: between the sizes of the table on the line that joins them; where there is no
    table, that of its collectives one after the other."""
    e = t.exchanges
    count = len(e.sizes)
    first = (d * e.streams + e.stream[b]) * count
    if count == 0 or e.size_ns[first] < 0:
        return int(r.bucket_ns[b])
    nbytes = r.bucket_bytes[b]
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        if e.sizes[middle] < nbytes:
            low = middle + 1
        else:
            high = middle
    if e.sizes[low] == nbytes or low == 0:
        return int(e.size_ns[first + low])
    before, after = e.size_ns[first + low - 1], e.size_ns[first + low]
    span, part = e.sizes[low] - e.sizes[low - 1], nbytes - e.sizes[low - 1]
    return int(before + round((after - before) * (part / span)))


def begin_exchange(t: Tables, r: Run, devices: int, d: int, now: int) -> None:
    """Launch the next bucket of a device, if all its gradients are ready and the one before has arrived."""
    slot, b = devices + len(t.lane_target) + d, r.due[d]
    if b < 0 or r.busy_end[slot] >= 0 or r.bucket_left[b] > 0:
        return
    for i in range(b, len(t.exchanges.ops)):
        if r.bucket[i] == b:
            r.start[t.exchanges.ops[i]] = now
    r.busy_end[slot], r.busy_item[slot] = now + exchange_ns(t, r, d, b), b


def end_exchange(t: Tables, r: Run, d: int, now: int) -> None:
    """A bucket has arrived: the next one of its device is due."""
    b = r.due[d]
    for i in range(b, len(t.exchanges.ops)):
        if r.bucket[i] == b:
            r.end[t.exchanges.ops[i]] = now
    r.due[d] = r.bucket_after[b]


def share(t: Tables, r: Run, devices: int, now: int) -> None:
    """Divide devices and channels among all that runs from now on.

    An op has the rest of its device beside an exchange. Each channel is divided equally among all that pass it: an
    exchange or a transfer has the least share of those on its way, of what it has alone.
    """
    e = t.exchanges
    for d in range(devices):
        if r.busy_end[d] >= 0 and r.busy_item[d] >= 0:
            beside = r.busy_end[devices + len(t.lane_target) + d] >= 0
            at_rate(r, d, e.rate if beside else FULL, FULL, now)
    r.load[:] = 0
    for n in range(len(e.sharers)):
        if r.busy_end[e.sharers[n]] >= 0:
            for i in range(e.channel_at[n], e.channel_at[n + 1]):
                r.load[e.channel[i]] += e.flows[i]
    for n in range(len(e.sharers)):
        if r.busy_end[e.sharers[n]] >= 0:
            part, whole = 1, 1
            for i in range(e.channel_at[n], e.channel_at[n + 1]):
                if e.flows[i] * whole < part * r.load[e.channel[i]]:
                    part, whole = e.flows[i], r.load[e.channel[i]]
            at_rate(r, e.sharers[n], part, whole, now)


def at_rate(r: Run, slot: int, part: int, whole: int, now: int) -> None:
    """Let what runs go on at ``part`` of ``whole`` of the rate that it has alone."""
    if part * r.whole[slot] == whole * r.part[slot]:
        return
    left, rate = (r.busy_end[slot] - now) * r.part[slot] * whole, r.whole[slot] * part
    r.busy_end[slot] = now + (left + rate - 1) // rate
    r.part[slot], r.whole[slot] = part, whole
