"""The simulated run of one placement: an event loop over devices and lanes, with memory kept along.

Every event changes what the published simulator changes, in the same order. Numba compiles it where it is installed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensortide.compiled import entry
from tensortide.placements.arrays import Floats, Ints, Small
from tensortide.placements.simulator.queues import (
    EVENTS,
    FAILED,
    IN_FLIGHT,
    ISSUED,
    OPS,
    SIZE,
    STAMP,
    TRANSFERS,
    begin,
    enqueue,
    inlined,
    pop,
    send,
    wake,
)
from tensortide.placements.simulator.state import State
from tensortide.placements.simulator.tables import Tables

WAKEUP, OP, TRANSFER, HOP = range(4)
"""Kinds of events in a record. HOP: a transfer reached a device on its route."""


class Record(NamedTuple):
    """Columns with an entry per event, in the order of handling; without entries where nothing is recorded.

    ``part`` is -1 for a wakeup. ``memory`` [events, devices]: bytes just after the event.
    """

    kind: Small
    resource: Small
    batch: Small
    part: Small
    start: Floats
    end: Floats
    source: Small
    target: Small
    memory: Ints


def new_record(events: int, devices: int) -> Record:
    """Make a record of ``events`` events."""
    kind, resource, batch, part, source, target = (np.full(events, -1, np.int32) for _ in range(6))
    times = np.zeros(events), np.zeros(events)
    return Record(kind, resource, batch, part, *times, source, target, np.zeros((events, devices), np.int64))


@inlined
def _keep(s: State, device: int, nbytes: int) -> None:
    s.memory[device] += nbytes
    s.peak[device] = max(s.peak[device], s.memory[device])


@inlined
def _unread(t: Tables, s: State, slot: int, layer: int, device: int) -> None:
    """One consumer fewer reads the copy of the layer's output on ``device``."""
    copy = (slot * t.layers + layer) * t.devices + device
    s.references[copy] -= 1
    if s.references[copy] == 0:
        s.memory[device] -= t.nbytes[layer]


@inlined
def _hand_over(t: Tables, s: State, op: int, device: int) -> int:
    """Give the result of an op to its local successors, and group the others by device.

    Returns:
        The number of groups; ``groups`` has their devices, in order of first appearance.
    """
    parts, layers = t.parts, t.layers
    part, slot = op % parts, op // parts
    offset = op - op % layers  # of the parts of the same direction and batch
    forward = part < layers
    s.counts[STAMP] += 1
    stamp = s.counts[STAMP]
    groups = local = 0
    for i in range(t.first[part], t.first[part + 1]):
        layer = t.successors[i]
        other = s.device[layer]
        if other == device:
            local += 1
            s.waits[offset + layer] -= 1
            if s.waits[offset + layer] == 0:
                s.pending[slot] += 1
                enqueue(s, device, offset + layer, s.next_op)
            continue
        transfer = op * t.devices + other
        if s.marked[other] != stamp:
            s.marked[other] = stamp
            s.groups[groups] = other
            s.load[transfer] = t.nbytes[part] if forward else 0
            groups += 1
        if not forward:
            s.load[transfer] += t.nbytes[layer]
    if forward:
        s.references[(slot * layers + part) * t.devices + device] = local + groups
    return groups


@inlined
def _update(t: Tables, s: State, slot: int, device: int) -> None:
    """A backward part has ended: after the last one of a step on the device its weights are updated."""
    s.gradients[device] -= 1
    if s.gradients[device] > 0:
        return
    for layer in range(t.layers):
        if s.device[layer] == device:
            s.gradients[device] += t.step_batches
            if t.resident[layer] > 0:
                s.pending[slot] += 1
                enqueue(s, device, slot * t.parts + 2 * t.layers + layer, s.next_op)


@inlined
def _op_done(t: Tables, s: State, op: int, device: int, now: float) -> None:
    parts, layers = t.parts, t.layers
    part, slot = op % parts, op // parts
    groups = 0
    if part < 2 * layers:
        groups = _hand_over(t, s, op, device)
    for i in range(groups):
        transfer = op * t.devices + s.groups[i]
        s.hop[transfer] = 0
        s.pending[slot] += 1
        send(t, s, transfer, now)
    if part < layers:
        ends = t.first[part] == t.first[part + 1]
        if ends and t.backward:
            s.pending[slot] += 1
            enqueue(s, device, op + layers, s.next_op)
        kept = t.nbytes[part] if not ends or t.keeps_ends else 0
        if t.last_use:
            for i in range(t.first[part + layers], t.first[part + layers + 1]):
                _unread(t, s, slot, t.successors[i], device)
        _keep(s, device, kept)
    elif part < 2 * layers:
        layer = part - layers
        for i in range(t.first[part], t.first[part + 1]):
            s.memory[device] += t.nbytes[t.successors[i]]
            _unread(t, s, slot, t.successors[i], device)
        readers = t.first[layer + 1] - t.first[layer]
        ended = 1 if t.keeps_ends and readers == 0 else 0
        _keep(s, device, -t.nbytes[layer] * (readers + ended))
        if parts > 2 * layers:
            _update(t, s, slot, device)
    s.ready[device] = now + t.op_gap if t.times[part * t.devices + device] > 0 else now


@inlined
def _transfer_done(t: Tables, s: State, transfer: int, now: float) -> None:
    parts, layers = t.parts, t.layers
    op, target = transfer // t.devices, transfer % t.devices
    part, slot = op % parts, op // parts
    offset = op - op % layers
    source = s.device[part % layers]
    count = 0
    for i in range(t.first[part], t.first[part + 1]):
        layer = t.successors[i]
        if s.device[layer] != target:
            continue
        count += 1
        s.waits[offset + layer] -= 1
        if s.waits[offset + layer] == 0:
            s.pending[slot] += 1
            enqueue(s, target, offset + layer, s.next_op)
            wake(t, s, target, now)
    if part < layers:
        s.references[(slot * layers + part) * t.devices + target] = count
        _unread(t, s, slot, part, source)
    else:
        s.memory[source] -= s.load[transfer]
    _keep(s, target, s.load[transfer])


@inlined
def _issue(t: Tables, s: State, now: float) -> None:
    """Let the next batch in, if one may enter and the devices of its first layers are free."""
    if s.counts[ISSUED] >= t.batches or s.counts[IN_FLIGHT] >= t.in_flight:
        return
    for i in range(len(t.roots)):
        if s.busy[s.device[t.roots[i]]]:
            return
    slot = 0
    while s.batch[slot] >= 0:
        slot += 1
    layers, base = t.layers, slot * t.parts
    s.batch[slot] = s.counts[ISSUED]
    s.counts[ISSUED] += 1
    s.counts[IN_FLIGHT] += 1
    for layer in range(layers):
        s.waits[base + layer] = t.first[layers + layer + 1] - t.first[layers + layer]
        s.waits[base + layers + layer] = t.first[layer + 1] - t.first[layer]
    s.pending[slot] = len(t.roots)
    for device in range(t.devices):
        for i in range(len(t.roots)):
            if s.device[t.roots[i]] == device:
                enqueue(s, device, base + t.roots[i], s.next_op)
                wake(t, s, device, now)


@inlined
def _reset(t: Tables, s: State) -> None:
    for i in range(len(s.counts)):
        s.counts[i] = 0
    for i in range(len(s.head)):
        s.head[i] = -1
        s.busy[i] = 0
        s.ready[i] = 0.0
    for i in range(len(s.batch)):
        s.batch[i] = -1
    for i in range(t.devices):
        s.marked[i] = 0
        s.memory[i] = 0
        s.gradients[i] = 0
    for layer in range(t.layers):
        s.memory[s.device[layer]] += t.resident[layer]
        s.gradients[s.device[layer]] += t.step_batches
    for i in range(t.devices):
        s.peak[i] = s.memory[i]


@inlined
def _done(t: Tables, s: State, slot: int) -> None:
    """One op or transfer of a batch fewer is pending."""
    s.pending[slot] -= 1
    if s.pending[slot] == 0:
        s.batch[slot] = -1
        s.counts[IN_FLIGHT] -= 1


@inlined
def _handle(t: Tables, s: State, resource: int, item: int, now: float) -> int:
    """Handle the end of an op or of a transfer; returns the kind of the event."""
    if resource < t.devices:
        s.counts[OPS] += 1
        _op_done(t, s, item, resource, now)
        return OP
    s.ready[resource] = now + t.transfer_gap
    op = item // t.devices
    pair = s.device[op % t.parts % t.layers] * t.devices + item % t.devices
    s.hop[item] += 1
    if t.route[pair] + s.hop[item] < t.route[pair + 1]:
        s.pending[op // t.parts] += 1
        send(t, s, item, now)
        return HOP
    s.counts[TRANSFERS] += 1
    _transfer_done(t, s, item, now)
    return TRANSFER


@inlined
def _note(t: Tables, s: State, record: Record, resource: int, item: int, kind: int, batch: int, now: float) -> None:
    """Write the event that was handled last, if the record has room."""
    at = s.counts[EVENTS] - 1
    if at >= len(record.kind):
        return
    op = item // t.devices if kind >= TRANSFER else item
    record.kind[at] = kind
    record.resource[at] = resource
    record.start[at] = s.start[resource]
    record.end[at] = now
    record.batch[at] = batch
    if kind != WAKEUP:
        record.part[at] = op % t.parts
    if kind >= TRANSFER:
        record.source[at] = s.device[op % t.parts % t.layers]
        record.target[at] = item % t.devices
    for device in range(t.devices):
        record.memory[at, device] = s.memory[device]


@entry
def run(t: Tables, s: State, record: Record) -> float:
    """Simulate the placement ``s.device``.

    Returns:
        The makespan, ms; infinite where no route leads between two devices (``s.counts[FAILED]``). ``s`` has the peaks
        and the counts. ``record`` takes as many events as it has room for.
    """
    _reset(t, s)
    now = 0.0
    _issue(t, s, now)
    while s.counts[SIZE] > 0:
        now = s.end[0]
        resource = pop(t, s)
        s.counts[EVENTS] += 1
        item = s.running[resource]
        # The batch of a wakeup is that of what it will find in the queue.
        found = item if item >= 0 else s.head[resource]
        slot = (found if resource < t.devices else found // t.devices) // t.parts
        batch = s.batch[slot]
        kind = WAKEUP
        if item >= 0:
            kind = _handle(t, s, resource, item, now)
            _done(t, s, slot)
        _note(t, s, record, resource, item, kind, batch, now)
        begin(t, s, resource, now)
        if s.counts[FAILED]:
            return np.inf
        _issue(t, s, now)
    return now


@entry
def over_use(t: Tables, s: State) -> float:
    """Bytes by which the peaks of the last run exceed the devices' memory, summed."""
    total = 0.0
    for device in range(t.devices):
        total += max(0.0, s.peak[device] - t.capacity[device])
    return total
