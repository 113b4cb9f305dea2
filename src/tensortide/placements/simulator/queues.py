"""Pending events and the queues of devices and lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensortide.compiled import IS_COMPILED
from tensortide.placements.arrays import Small
from tensortide.placements.simulator.state import State
from tensortide.placements.simulator.tables import Tables

if IS_COMPILED:
    import numba

SIZE, PUSHES, STAMP, EVENTS, OPS, TRANSFERS, ISSUED, IN_FLIGHT, FAILED = range(9)
"""Places of ``State.counts``: events pending; events pushed so far; ops handled, as a mark; events, ops and transfers
handled; batches issued; batches in flight; the pair of devices between which no route leads, plus 1."""


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` into each caller: a call would hand over every array one by one."""
    if not IS_COMPILED:
        return function
    made: Callable[..., Any] = numba.njit(inline="always")(function)
    return made


@inlined
def push(t: Tables, s: State, resource: int, end: float) -> None:
    """Append to the heap, and move up while strictly smaller than the parent."""
    at = s.counts[SIZE]
    number = s.counts[PUSHES]
    s.counts[SIZE] = at + 1
    s.counts[PUSHES] = number + 1
    while at > 0:
        above = (at - 1) >> 1
        if not end < s.end[above]:
            break
        s.heap[at], s.end[at], s.order[at] = s.heap[above], s.end[above], s.order[above]
        at = above
    s.heap[at], s.end[at], s.order[at] = resource, end, number


@inlined
def pop(t: Tables, s: State) -> int:
    """Take the root: the last one fills the hole, which moves down to a leaf along the smaller children, then up."""
    top = s.heap[0]
    size = s.counts[SIZE] - 1
    s.counts[SIZE] = size
    resource, end, number = s.heap[size], s.end[size], s.order[size]
    at = 0
    below = 1
    while below < size:
        right = below + 1
        if right < size and not _before(t, s.end[below], s.order[below], s.end[right], s.order[right]):
            below = right
        s.heap[at], s.end[at], s.order[at] = s.heap[below], s.end[below], s.order[below]
        at = below
        below = 2 * at + 1
    while at > 0:
        above = (at - 1) >> 1
        if not _before(t, end, number, s.end[above], s.order[above]):
            break
        s.heap[at], s.end[at], s.order[at] = s.heap[above], s.end[above], s.order[above]
        at = above
    s.heap[at], s.end[at], s.order[at] = resource, end, number
    return top


@inlined
def _before(t: Tables, end: float, number: int, other_end: float, other: int) -> bool:
    return end < other_end or (t.fifo and end == other_end and number < other)


@inlined
def enqueue(s: State, resource: int, item: int, chain: Small) -> None:
    """Append to the queue of a device or lane; ``chain`` has what follows each item."""
    chain[item] = -1
    if s.head[resource] < 0:
        s.head[resource] = item
    else:
        chain[s.tail[resource]] = item
    s.tail[resource] = item


@inlined
def wake(t: Tables, s: State, resource: int, now: float) -> None:
    """Mark a free resource busy, and let an event look at its queue."""
    if not s.busy[resource]:
        s.busy[resource] = 1
        s.running[resource] = -1
        s.start[resource] = now
        push(t, s, resource, now)


@inlined
def _take_op(t: Tables, s: State, device: int) -> int:
    """Remove from the device's queue the op that waits longest, or that with the smallest rank."""
    parts = t.parts
    item = s.head[device]
    before = -1
    if len(t.rank):
        last, candidate = item, s.next_op[item]
        while candidate >= 0:
            if t.rank[candidate % parts] < t.rank[item % parts]:
                item, before = candidate, last
            last, candidate = candidate, s.next_op[candidate]
    if before < 0:
        s.head[device] = s.next_op[item]
    else:
        s.next_op[before] = s.next_op[item]
        if s.tail[device] == item:
            s.tail[device] = before
    return item


@inlined
def begin(t: Tables, s: State, resource: int, now: float) -> None:
    """Start the next op of a device, or the next transfer of a lane; free it if there is none."""
    if s.head[resource] < 0:
        s.busy[resource] = 0
        return
    start = max(now, s.ready[resource])
    if resource < t.devices:
        item = _take_op(t, s, resource)
        took = t.times[(item % t.parts) * t.devices + resource]
    else:
        item = s.head[resource]
        s.head[resource] = s.next_transfer[item]
        op, target = item // t.devices, item % t.devices
        source = s.device[op % t.parts % t.layers]
        hop = t.route[source * t.devices + target] + s.hop[item]
        took = t.hop_latency[hop] + max(t.cycle[source], s.load[item] / t.gigabyte / t.hop_rate[hop] * 1000 / t.network)
    s.running[resource] = item
    s.start[resource] = start
    push(t, s, resource, start + took)


@inlined
def send(t: Tables, s: State, item: int, now: float) -> None:
    """Queue a transfer on the lane of its next hop."""
    op, target = item // t.devices, item % t.devices
    source = s.device[op % t.parts % t.layers]
    pair = source * t.devices + target
    if t.route[pair] == t.route[pair + 1]:
        s.counts[FAILED] = pair + 1
        return
    lane = t.devices + t.hop_lane[t.route[pair] + s.hop[item]]
    enqueue(s, lane, item, s.next_transfer)
    wake(t, s, lane, now)
