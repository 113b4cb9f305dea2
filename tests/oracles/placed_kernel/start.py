"""Setting up the simulator of placed steps for one placement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracles.placed_kernel.exchange import fill_buckets
from tests.oracles.placed_kernel.records import Order, Run, Tables

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints


def prepare(t: Tables, o: Order, r: Run, place: Ints, devices: int) -> None:
    """Fill in the device of each op, what it waits for, and how often storages and copies are used."""
    _empty(t, r, place, devices)
    _assign(t, o, r, place, devices)
    fill_buckets(t, r, devices)
    for v in range(len(t.writer)):
        _count_readers(t, r, place, devices, v)
    for op in range(len(t.unit)):
        _count_waits(t, r, devices, op)
    for op in range(t.exchanges.update, len(t.unit)):
        if r.due[r.device[op]] >= 0:
            r.pending[op] += 1
    if o.strict:
        _line_up(t, o, r, devices)


def _empty(t: Tables, r: Run, place: Ints, devices: int) -> None:
    """Nothing has happened yet; what exists before the step is resident at home, and what a library keeps on each
    device that runs its ops."""
    r.totals[:] = 0
    r.moved[:] = 0
    r.copies[:] = 0
    r.left[:] = 0
    r.oldest[:] = 0
    r.level[:] = 0
    r.busy_end[:] = -1
    r.part[:] = 1
    r.whole[:] = 1
    r.queue_head[:] = -1
    r.queue_tail[:] = -1
    r.seen[:] = -1
    for s in range(len(t.home)):
        r.rest[s] = t.users[s]
        if t.early[s] and t.home[s] >= 0:
            r.level[place[t.home[s]]] += t.nbytes[s]
    for handle in range(len(t.handle_units_at) - 1):
        for i in range(t.handle_units_at[handle], t.handle_units_at[handle + 1]):
            d = place[t.handle_units[i]]
            if r.seen[d] != handle:
                r.seen[d] = handle
                r.level[d] += t.handle_bytes[handle * devices + d]
    for d in range(devices):
        r.heap_count[d] = r.later_count[d] = 0
        r.host[d], r.launch[d], r.clear[d], r.seen[d] = 0, t.launch[d], 0, -1
        r.peak[d] = r.level[d]


def _assign(t: Tables, o: Order, r: Run, place: Ints, devices: int) -> None:
    """Every op has a device, every device room for its ops in a heap, and ops left of every micro-batch."""
    for i in range(devices + 1):
        r.heap_at[i] = r.later_at[i] = 0
    for op in range(len(t.unit)):
        d = place[t.unit[op]]
        r.device[op] = d
        r.pending[op] = 0
        if t.hosts:
            listed = t.listed[op]
            r.issuing[op] = 0 if listed >= 0 and r.seen[d] == listed else t.issue[op * devices + d]
            r.seen[d] = listed
        if o.forward[op]:
            r.later_at[d + 1] += 1
        elif t.exchanges.number[op] < 0:
            r.heap_at[d + 1] += 1
        if o.micro[op] >= 0:
            r.left[d * o.micro_batches + o.micro[op]] += 1
    for i in range(devices):
        r.heap_at[i + 1] += r.heap_at[i]
        r.later_at[i + 1] += r.later_at[i]


def _count_readers(t: Tables, r: Run, place: Ints, devices: int, v: int) -> None:
    """Readers of a value wait for it or for its copy; those at home are noted, for the op that overwrites it."""
    home = place[t.home[t.storage_of[v]]] if t.home[t.storage_of[v]] >= 0 else 0
    local = 0
    for i in range(t.readers_at[v], t.readers_at[v + 1]):
        reader = t.readers[i]
        d = r.device[reader]
        if d == home:
            local += 1
            if t.writer[v] >= 0:
                r.pending[reader] += 1
        else:
            r.pending[reader] += 1
            if r.copies[v * devices + d] == 0 and r.rest[t.storage_of[v]] >= 0:
                r.rest[t.storage_of[v]] += 1
            r.copies[v * devices + d] += 1
    r.send_hop[v] = local


def _count_waits(t: Tables, r: Run, devices: int, op: int) -> None:
    """An op that overwrites a value waits for its readers at home and its copies; users of a view for its maker."""
    for i in range(t.writes_at[op], t.writes_at[op + 1]):
        old = t.before[t.writes[i]]
        if old >= 0:
            r.pending[op] += r.send_hop[old]
            for d in range(devices):
                if r.copies[old * devices + d] > 0:
                    r.pending[op] += 1
            for j in range(t.readers_at[old], t.readers_at[old + 1]):
                if t.readers[j] == op:  # it reads what it writes
                    r.pending[op] -= 1
    for i in range(t.after_at[op], t.after_at[op + 1]):
        if r.device[t.after[i]] == r.device[op]:
            r.pending[t.after[i]] += 1


def _line_up(t: Tables, o: Order, r: Run, devices: int) -> None:
    """Put the ops of every device into a line, in place of a heap; what runs beside them keeps no order."""
    for rank in range(len(o.by_rank)):
        if t.exchanges.number[o.by_rank[rank]] >= 0:
            continue
        d = r.device[o.by_rank[rank]]
        r.heap[r.heap_at[d] + r.heap_count[d]] = rank
        r.heap_count[d] += 1
    for d in range(devices):
        r.heap_count[d] = 0
