"""The simulator of placed steps, over flat arrays: when each op and each transfer runs, and the most bytes per device.

Every device runs one op at a time, every queue of a link one transfer. An op is ready once what it reads is on its
device; of the ready ops a device starts the one of the lowest rank, or it keeps strictly to the order of ranks. What a
device makes is sent at once to all devices that read it; a queue is first come, first served. All that ends at one
instant ends before anything starts, whatever the numbers of the devices are. The host of a device issues its ops in the
order in which they run, ahead of the device but for ops whose result it waits for; an op starts once it is issued.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracles.placed_kernel.exchange import begin_exchange, end_exchange, share
from tests.oracles.placed_kernel.records import Order, Run, Tables
from tests.oracles.placed_kernel.start import prepare

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints


def push(heap: Ints, base: int, count: int, item: int) -> None:
    """Put ``item`` on the heap of ``count`` items that begins at ``base``."""
    at = count
    while at > 0:
        up = (at - 1) // 2
        if heap[base + up] <= item:
            break
        heap[base + at] = heap[base + up]
        at = up
    heap[base + at] = item


def pop(heap: Ints, base: int, count: int) -> int:
    """Take the least item off the heap of ``count`` items that begins at ``base``."""
    least = heap[base]
    item = heap[base + count - 1]
    at = 0
    while True:
        down = 2 * at + 1
        if down >= count - 1:
            break
        if down + 1 < count - 1 and heap[base + down + 1] < heap[base + down]:
            down += 1
        if heap[base + down] >= item:
            break
        heap[base + at] = heap[base + down]
        at = down
    heap[base + at] = item
    return int(least)


def ready(t: Tables, o: Order, r: Run, op: int) -> None:
    """Note that nothing is left that ``op`` waits for."""
    d = r.device[op]
    number = t.exchanges.number[op]
    if number >= 0:
        r.bucket_left[r.bucket[number]] -= 1
        return
    if o.strict:
        return
    if o.forward[op]:
        push(r.later, r.later_at[d], r.later_count[d], o.rank[op])
        r.later_count[d] += 1
    else:
        push(r.heap, r.heap_at[d], r.heap_count[d], o.rank[op])
        r.heap_count[d] += 1


def arrived(t: Tables, o: Order, r: Run, v: int, d: int) -> None:
    """A value is on a device: ops there that read it wait for one thing less."""
    for i in range(t.readers_at[v], t.readers_at[v + 1]):
        reader = t.readers[i]
        if r.device[reader] == d:
            r.pending[reader] -= 1
            if r.pending[reader] == 0:
                ready(t, o, r, reader)


def used(t: Tables, r: Run, place: Ints, s: int) -> None:
    """One use of a storage is over; after the last one it is released, if it may be."""
    if r.rest[s] > 0:
        r.rest[s] -= 1
        if r.rest[s] == 0:
            r.level[place[t.home[s]]] -= t.nbytes[s]


def read_once(t: Tables, o: Order, r: Run, v: int, successor: int) -> None:
    """A reader or a copy of an old value is done: the op that overwrites it waits for one thing less."""
    if successor >= 0:
        r.pending[successor] -= 1
        if r.pending[successor] == 0:
            ready(t, o, r, successor)


def enqueue(t: Tables, r: Run, number: int, lane: int) -> None:
    """Put a transfer at the end of the queue of ``lane``."""
    queue = t.queue[lane]
    r.send_lane[number] = lane
    r.next_send[number] = -1
    if r.queue_tail[queue] < 0:
        r.queue_head[queue] = number
    else:
        r.next_send[r.queue_tail[queue]] = number
    r.queue_tail[queue] = number


def send(t: Tables, o: Order, r: Run, place: Ints, devices: int, v: int, successor: int) -> None:
    """Send a value to every device that reads it and does not have it."""
    unit = t.home[t.storage_of[v]]
    home = place[unit] if unit >= 0 else 0
    for d in range(devices):
        if d == home or r.copies[v * devices + d] == 0:
            continue
        if t.free[v]:
            r.totals[3] += 1
            used(t, r, place, t.storage_of[v])
            read_once(t, o, r, v, successor)
            arrived(t, o, r, v, d)
            continue
        number = r.totals[0]
        r.totals[0] += 1
        r.sent[number], r.send_target[number], r.send_source[number] = v, d, home
        r.send_hop[number] = t.route_at[home * devices + d]
        enqueue(t, r, number, t.route[r.send_hop[number]])


def noted(t: Tables, r: Run, devices: int, d: int, op: int) -> None:
    """The host notes the end of an op: it works after it, or has waited for it."""
    if not t.hosts:
        return
    r.clear[d] = max(r.clear[d], r.end[op] + t.busy_after[op * devices + d])
    if t.waits[op * devices + d]:
        r.host[d], r.launch[d] = r.end[op], t.launch[d]


def ended(t: Tables, o: Order, r: Run, place: Ints, devices: int, following: Ints, op: int) -> None:
    """An op has ended: release, hand on and send what it made."""
    d = r.device[op]
    r.level[d] -= t.workspace[op]
    noted(t, r, devices, d, op)
    if o.micro[op] >= 0:
        r.left[d * o.micro_batches + o.micro[op]] -= 1
        while r.oldest[d] < o.micro_batches and r.left[d * o.micro_batches + r.oldest[d]] == 0:
            r.oldest[d] += 1
    for i in range(t.after_at[op], t.after_at[op + 1]):
        later = t.after[i]
        if r.device[later] == d:
            r.pending[later] -= 1
            if r.pending[later] == 0:
                ready(t, o, r, later)
    for i in range(t.writes_at[op], t.writes_at[op + 1]):
        v = t.writes[i]
        arrived(t, o, r, v, d)
        send(t, o, r, place, devices, v, following[v])
    for i in range(t.reads_at[op], t.reads_at[op + 1]):
        v = t.reads[i]
        if place[t.home[t.storage_of[v]]] == d:
            if following[v] != op:
                read_once(t, o, r, v, following[v])
        else:
            r.copies[v * devices + d] -= 1
            if r.copies[v * devices + d] == 0:
                r.level[d] -= t.copy_bytes[v]
    for i in range(t.touches_at[op], t.touches_at[op + 1]):
        used(t, r, place, t.touches[i])


def passed(t: Tables, o: Order, r: Run, place: Ints, devices: int, following: Ints, number: int, now: int) -> None:
    """A transfer has ended over a lane: over the first one its source is free of it, after the last it is there."""
    v, target = r.sent[number], r.send_target[number]
    r.send_end[number] = now
    home = r.send_source[number]
    if r.send_hop[number] == t.route_at[home * devices + target]:
        used(t, r, place, t.storage_of[v])
        if t.staged:
            r.level[home] -= t.copy_bytes[v]
        read_once(t, o, r, v, following[v])
    if t.lane_target[r.send_lane[number]] == target:
        arrived(t, o, r, v, target)
        return
    more = r.totals[0]
    r.totals[0] += 1
    r.sent[more], r.send_target[more], r.send_source[more] = v, target, home
    r.send_hop[more] = r.send_hop[number] + 1
    enqueue(t, r, more, t.route[r.send_hop[more]])


def exchanged(t: Tables, o: Order, r: Run, place: Ints, devices: int, following: Ints, d: int, now: int) -> None:
    """A bucket of a device has arrived; with the last one all its gradients are there, and its update may begin."""
    end_exchange(t, r, d, now)
    if r.due[d] >= 0:
        return
    for i in range(len(t.exchanges.ops)):
        op = t.exchanges.ops[i]
        if r.device[op] == d:
            r.totals[1] += 1
            ended(t, o, r, place, devices, following, op)
    for op in range(t.exchanges.update, len(t.unit)):
        if r.device[op] == d:
            r.pending[op] -= 1
            if r.pending[op] == 0:
                ready(t, o, r, op)


def choose(o: Order, r: Run, d: int) -> int:
    """The op that a device starts next, of those that are ready; -1 if there is none."""
    if o.strict:
        at = r.heap_count[d]
        if r.heap_at[d] + at < r.heap_at[d + 1]:
            op = o.by_rank[r.heap[r.heap_at[d] + at]]
            if r.pending[op] == 0:
                r.heap_count[d] += 1
                return int(op)
        return -1
    late = -1
    if r.later_count[d] > 0:
        op = o.by_rank[r.later[r.later_at[d]]]
        if o.micro[op] < r.oldest[d] + o.limit[d]:
            late = op
    if r.heap_count[d] > 0 and not (o.first and late >= 0):
        rank = pop(r.heap, r.heap_at[d], r.heap_count[d])
        r.heap_count[d] -= 1
        return int(o.by_rank[rank])
    if late >= 0:
        pop(r.later, r.later_at[d], r.later_count[d])
        r.later_count[d] -= 1
    return late


def begin(t: Tables, r: Run, devices: int, d: int, op: int, now: int) -> None:
    """Start an op: its outputs and workspace are resident beside what it reads."""
    for i in range(t.makes_at[op], t.makes_at[op + 1]):
        r.level[d] += t.nbytes[t.makes[i]]
    r.level[d] += t.workspace[op]
    r.peak[d] = max(r.peak[d], r.level[d])
    r.start[op] = now
    r.busy_end[d], r.busy_item[d] = now + t.ns[op * devices + d], op


def begin_issued(t: Tables, r: Run, devices: int, d: int, op: int, now: int) -> None:
    """Start an op as soon as its host has issued it."""
    if not t.hosts:
        begin(t, r, devices, d, op, now)
        return
    r.issuing[op] += r.launch[d]
    r.launch[d] = 0
    r.host[d] += r.issuing[op]
    r.issued[op] = r.host[d]
    start = max(now, r.host[d], r.clear[d])
    if start == now:
        begin(t, r, devices, d, op, now)
    else:
        r.busy_end[d] = start
        r.busy_item[d] = -1 - op


def begin_send(t: Tables, r: Run, devices: int, queue: int, now: int) -> None:
    """Start the first transfer of a queue: room for it is taken where it goes."""
    number = r.queue_head[queue]
    r.queue_head[queue] = r.next_send[number]
    if r.queue_head[queue] < 0:
        r.queue_tail[queue] = -1
    v, lane = r.sent[number], r.send_lane[number]
    home, target = r.send_source[number], r.send_target[number]
    if t.staged and r.send_hop[number] == t.route_at[home * devices + target]:
        r.level[home] += t.copy_bytes[v]
        r.peak[home] = max(r.peak[home], r.level[home])
    if t.lane_target[lane] == target:
        r.level[target] += t.copy_bytes[v]
        r.peak[target] = max(r.peak[target], r.level[target])
    r.moved[lane] += t.copy_bytes[v]
    r.send_start[number] = now
    r.busy_end[devices + queue] = now + t.send_ns[v * len(t.lane_target) + lane]
    r.busy_item[devices + queue] = number


def dispatch(t: Tables, o: Order, r: Run, devices: int, now: int) -> None:
    """Start an op on every device and a transfer in every queue that is free and has one."""
    for d in range(devices):
        if r.busy_end[d] < 0:
            op = choose(o, r, d)
            if op >= 0:
                begin_issued(t, r, devices, d, op, now)
        elif r.busy_item[d] < 0 and r.busy_end[d] == now:
            begin(t, r, devices, d, -1 - r.busy_item[d], now)
    for queue in range(len(t.lane_target)):
        if r.busy_end[devices + queue] < 0 and r.queue_head[queue] >= 0:
            begin_send(t, r, devices, queue, now)
    if len(t.exchanges.ops) > 0:
        for d in range(devices):
            begin_exchange(t, r, devices, d, now)
        share(t, r, devices, now)


def soonest(r: Run, count: int) -> int:
    """The time at which the next of what runs ends; -1 if nothing runs."""
    found = -1
    for i in range(count):
        if r.busy_end[i] >= 0 and (found < 0 or r.busy_end[i] < found):
            found = r.busy_end[i]
    return found


def ending(t: Tables, r: Run, count: int, devices: int, now: int) -> int:
    """The device or queue whose op ends now, that of the least number; after ops, that of the least value; then the
    exchange of the least bucket; else -1.

    Devices that wait for their host have the op that they will start as a negative item.
    """
    which, least = -1, 0
    queues, ops = devices + len(t.lane_target), len(t.unit)
    for i in range(count):
        if r.busy_end[i] == now and r.busy_item[i] >= 0:
            key = r.busy_item[i]
            if i >= queues:
                key += ops + len(t.writer)
            elif i >= devices:
                key = ops + r.sent[key]
            if which < 0 or key < least:
                which, least = i, key
    return which


def play(t: Tables, o: Order, r: Run, place: Ints, following: Ints, devices: int) -> None:
    """Play one placement: the device of each unit. ``following``: for each value the op that overwrites it, or -1."""
    ops, queues = len(t.unit), devices + len(t.lane_target)
    count = queues + (devices if len(t.exchanges.ops) > 0 else 0)
    prepare(t, o, r, place, devices)
    for op in range(ops):
        if r.pending[op] == 0:
            ready(t, o, r, op)
    for i in range(len(t.given)):
        send(t, o, r, place, devices, t.given[i], following[t.given[i]])
    now = 0
    while now >= 0:
        r.totals[2] = now
        dispatch(t, o, r, devices, now)
        now = soonest(r, count)
        which = ending(t, r, count, devices, now) if now >= 0 else -1
        while which >= 0:
            r.busy_end[which] = -1
            r.part[which] = r.whole[which] = 1
            if which < devices:
                r.totals[1] += 1
                r.end[r.busy_item[which]] = now
                ended(t, o, r, place, devices, following, r.busy_item[which])
            elif which >= queues:
                exchanged(t, o, r, place, devices, following, which - queues, now)
            else:
                passed(t, o, r, place, devices, following, r.busy_item[which], now)
            which = ending(t, r, count, devices, now)
    for d in range(devices):
        r.totals[2] = max(r.totals[2], r.clear[d])
