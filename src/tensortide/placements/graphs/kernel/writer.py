"""A placement of a step written as tasks: ops, then gates, transfers, exchanges, and all that is given back.

An op needs the values that it reads on its device. What a device makes is sent at once to all devices that read it,
over each lane of the route in turn; a queue is first come, first served. An op that overwrites a value needs the ends
of its other readers at home, and that copies have left. A storage is given back after its last user, a copy after
its last reader: who reads a copy is a user of the storage too, and ends after the copy has left.
"""

from __future__ import annotations

from tensortide.compiled import compiled
from tensortide.placements.arrays import Ints
from tensortide.placements.graphs.kernel.buckets import exchange_ns, fill_buckets
from tensortide.placements.graphs.kernel.records import Draft, Order, Run, Tables
from tensortide.play.machine_code import add, need
from tensortide.play.tasks import FREE, MOVE, NOWHERE, RUN

_AWAITED = -2


@compiled
def write(t: Tables, o: Order, r: Run, place: Ints, devices: int) -> None:
    """Write one placement: the device of each unit."""
    w, ops, lanes = r.draft, len(t.unit), len(t.queue)
    r.tasks.queue_ends[1] = r.tasks.need_ends[1] = 0
    _begin(t, o, r, place, devices)
    fill_buckets(t, w, devices)
    gates = len(o.micro_at) - 1
    count = ops + devices * gates
    for i in range(len(t.sending)):
        count = _number_sends(t, w, place, devices, t.sending[i], count)
    for d in range(devices):
        b = w.first_bucket[d]
        while b >= 0:
            w.bucket_task[b] = count
            count, b = count + 1, w.bucket_after[b]
    for op in range(ops):
        _write_op(t, o, r, place, devices, op)
    for d in range(devices):
        for turn in range(gates):
            _write_gate(o, r, d, turn)
    for i in range(len(t.sending)):
        _write_sends(t, r, place, devices, t.sending[i])
    for d in range(devices):
        b, before = w.first_bucket[d], NOWHERE
        while b >= 0:
            before = _write_bucket(t, r, place, devices, devices + lanes + d, b, before)
            b = w.bucket_after[b]
    _write_releases(t, r, place)


@compiled
def home_of(t: Tables, place: Ints, storage: int) -> int:
    """The device that a storage is on."""
    return place[t.home[storage]] if t.home[storage] >= 0 else 0


@compiled
def _begin(t: Tables, o: Order, r: Run, place: Ints, devices: int) -> None:
    """Every op has a device; what exists before the step is resident at home, and what a library keeps on each device
    that runs its ops."""
    w, level = r.draft, r.record.level
    level[:] = 0
    w.seen[:] = -1
    for s in range(len(t.home)):
        if t.early[s] and t.home[s] >= 0:
            level[place[t.home[s]]] += t.nbytes[s]
    for handle in range(len(t.handle_units_at) - 1):
        for i in range(t.handle_units_at[handle], t.handle_units_at[handle + 1]):
            d = place[t.handle_units[i]]
            if w.seen[d] != handle:
                w.seen[d] = handle
                level[d] += t.handle_bytes[handle * devices + d]
    for op in range(len(t.unit)):
        w.device[op] = place[t.unit[op]]
    if o.strict:
        w.seen[:] = -1
        for rank in range(len(o.by_rank)):
            op = o.by_rank[rank]
            if t.exchanges.number[op] < 0:  # what runs beside the others keeps no order
                w.before[op] = w.seen[w.device[op]]
                w.seen[w.device[op]] = op
    w.seen[:] = -1


@compiled
def _number_sends(t: Tables, w: Draft, place: Ints, devices: int, v: int, count: int) -> int:
    """Number the tasks of a value, after ``count`` others: for every device that reads it from another, those of its
    way there, and one that gives back the copy. Returns how many there are then.

    Ops are written before the transfers that they need, so these have numbers before they are tasks: numbers must be
    given in the order in which ``write`` writes, gates, then sends, then buckets, and here as ``_write_sends`` does.
    """
    home, first = home_of(t, place, t.storage_of[v]), v * devices
    for d in range(devices):
        w.arrival[first + d] = t.writer[v]
    if t.free[v]:
        return count
    copied = False
    for i in range(t.readers_at[v], t.readers_at[v + 1]):
        d = w.device[t.readers[i]]
        if d != home:
            w.arrival[first + d], copied = _AWAITED, True
    if copied:
        for d in range(devices):
            if w.arrival[first + d] == _AWAITED:
                count += t.route_at[home * devices + d + 1] - t.route_at[home * devices + d] + 1
                w.arrival[first + d] = count - 2
    return count


@compiled
def _departed(t: Tables, w: Draft, devices: int, home: int, v: int, d: int) -> int:
    """The task after which a value has left for a device: the first of its way. -1: it does not go there."""
    task = w.arrival[v * devices + d]
    if task < len(t.unit):
        return -1
    return task + 1 - (t.route_at[home * devices + d + 1] - t.route_at[home * devices + d])


@compiled
def _need_inputs(t: Tables, r: Run, place: Ints, devices: int, op: int) -> None:
    """Need what an op waits for wherever it runs."""
    w = r.draft
    d = w.device[op]
    for i in range(t.reads_at[op], t.reads_at[op + 1]):
        need(r.tasks, w.arrival[t.reads[i] * devices + d])
    for i in range(t.makers_at[op], t.makers_at[op + 1]):
        if w.device[t.makers[i]] == d:
            need(r.tasks, t.makers[i])
    for i in range(t.writes_at[op], t.writes_at[op + 1]):
        old = t.before[t.writes[i]]
        if old < 0:
            continue
        home = home_of(t, place, t.storage_of[old])
        for j in range(t.readers_at[old], t.readers_at[old + 1]):
            reader = t.readers[j]
            if w.device[reader] != home:
                need(r.tasks, t.writer[old] if t.free[old] else _departed(t, w, devices, home, old, w.device[reader]))
            elif reader != op:
                need(r.tasks, reader)


@compiled
def _write_op(t: Tables, o: Order, r: Run, place: Ints, devices: int, op: int) -> None:
    """Write an op. An exchange beside the others has ended with the last one of its device."""
    w, tasks = r.draft, r.tasks
    d = w.device[op]
    last = w.last_bucket[d]
    if t.hosts:
        at, listed, h = op * devices + d, t.listed[op], r.hosts
        h.issuing[op] = 0 if listed >= 0 and w.seen[d] == listed else t.issue[at]
        h.after[op], h.waits[op] = t.busy_after[at], t.waits[at]
        w.seen[d] = listed
    if t.exchanges.number[op] >= 0:
        need(tasks, w.bucket_task[last])
        add(tasks, FREE, NOWHERE, 0, NOWHERE, 0)  # it ends with the bucket, which has the lane and the time
        return
    _need_inputs(t, r, place, devices, op)
    if op >= t.exchanges.update and last >= 0:
        need(tasks, w.bucket_task[last])
    if o.strict:
        need(tasks, w.before[op])
    if o.gated[op] >= o.limit[d]:
        need(tasks, len(t.unit) + d * (len(o.micro_at) - 1) + o.gated[op] - o.limit[d])
    r.record.rank[op] = o.rank[op]
    add(tasks, RUN, d, t.ns[op * devices + d], d, t.taken[op])


@compiled
def _write_gate(o: Order, r: Run, d: int, turn: int) -> None:
    """Write what ends when a device has run all ops of a micro-batch and of those before."""
    # A FREE of nothing nowhere: it takes no lane and no time, and ends with the last that it needs.
    if turn > 0:
        need(r.tasks, r.tasks.queue_ends[1] - 1)
    for i in range(o.micro_at[turn], o.micro_at[turn + 1]):
        if r.draft.device[o.micro[i]] == d:
            need(r.tasks, o.micro[i])
    add(r.tasks, FREE, NOWHERE, 0, NOWHERE, 0)


@compiled
def _write_sends(t: Tables, r: Run, place: Ints, devices: int, v: int) -> None:
    """Write the transfers of a value: room is taken where it goes, and on its source if transfers are staged."""
    w, tasks, nbytes = r.draft, r.tasks, t.copy_bytes[v]
    home = home_of(t, place, t.storage_of[v])
    for d in range(devices):
        if w.arrival[v * devices + d] < len(t.unit):
            continue
        way, end = t.route_at[home * devices + d], t.route_at[home * devices + d + 1]
        for hop in range(way, end):
            lane, task = t.route[hop], tasks.queue_ends[1]
            need(tasks, t.writer[v] if hop == way else task - 1)
            w.send_lane[task], w.send_target[task] = lane, d
            r.record.tie[task] = len(t.unit) + v
            r.record.aside[task] = home if t.staged and hop == way else NOWHERE
            ns = t.send_ns[v * len(t.queue) + lane]
            add(tasks, MOVE, devices + t.queue[lane], ns, d if hop == end - 1 else NOWHERE, nbytes)
        for i in range(t.readers_at[v], t.readers_at[v + 1]):
            if w.device[t.readers[i]] == d:
                need(tasks, t.readers[i])
        add(tasks, FREE, NOWHERE, 0, d, nbytes)


@compiled
def _write_bucket(t: Tables, r: Run, place: Ints, devices: int, lane: int, b: int, before: int) -> int:
    """Write the exchange of a bucket: all its gradients are ready, and the one ``before`` has arrived. Returns its
    number."""
    for i in range(b, len(t.exchanges.ops)):
        if r.draft.bucket[i] == b:
            _need_inputs(t, r, place, devices, t.exchanges.ops[i])
    need(r.tasks, before)
    r.record.tie[r.tasks.queue_ends[1]] = len(t.unit) + len(t.writer) + b
    r.record.aside[r.tasks.queue_ends[1]] = NOWHERE
    d = lane - devices - len(t.queue)
    return add(r.tasks, MOVE, lane, exchange_ns(t, r.draft, d, b), NOWHERE, 0)


@compiled
def _write_releases(t: Tables, r: Run, place: Ints) -> None:
    """Write what is given back: workspaces, and storages that are released."""
    w, tasks = r.draft, r.tasks
    for op in range(len(t.unit)):
        if t.workspace[op] > 0 and t.exchanges.number[op] < 0:
            need(tasks, op)
            add(tasks, FREE, NOWHERE, 0, w.device[op], t.workspace[op])
    for s in range(len(t.home)):
        if t.users_at[s] == t.users_at[s + 1] or t.home[s] < 0:  # never released, or counted with its library
            continue
        for i in range(t.users_at[s], t.users_at[s + 1]):
            need(tasks, t.users[i])
        add(tasks, FREE, NOWHERE, 0, place[t.home[s]], t.nbytes[s])
