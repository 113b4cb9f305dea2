"""Arrays that one simulated run changes; made once for a problem and reused for every placement."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from tensortide.compiled import IS_COMPILED
from tensortide.placements.arrays import Floats, Ints, Small
from tensortide.placements.simulator.tables import Tables


class State(NamedTuple):
    """State of a run. A *resource* is a device, or a lane (numbered after the devices); each has at most one pending
    event. A *slot* holds a batch in flight; an op in a queue is numbered ``slot * parts + part``, a transfer ``op *
    devices + target device``."""

    device: Small
    """The placement: the device of each layer."""
    memory: Ints
    peak: Ints
    # Pending events, a binary heap of resources by end.
    heap: Small
    end: Floats
    """By place in the heap."""
    order: Ints
    """By place in the heap: number of the push, which decides ties with ``fifo``."""
    gradients: Small
    """By device: backward parts that are left until its weights are updated."""
    # By resource.
    running: Small
    """The op or transfer whose end is pending; -1: a wakeup is."""
    busy: Small
    start: Floats
    ready: Floats
    """Time until which the resource pauses after its last op or transfer."""
    head: Small
    tail: Small
    # By op and by transfer.
    next_op: Small
    next_transfer: Small
    hop: Small
    load: Ints
    """Bytes of a transfer."""
    waits: Small
    """By op: how many results it still waits for."""
    references: Small
    """By (slot, layer, device): consumers that still read the copy of the layer's output."""
    # By slot.
    batch: Small
    pending: Small
    """Ops and transfers of the batch that are queued or running."""
    # Of one op: the devices it sends to, and the mark that says so.
    groups: Small
    marked: Ints
    counts: Ints
    """Numbers of the run: see the constants of ``queues``."""


COUNTS = 9


Columns = TypeVar("Columns", State, Tables)


def for_runs(columns: Columns) -> Columns:
    """The tables or the state as a run takes them: arrays where Numba compiles it, else lists, which Python indexes
    three times as fast."""
    if IS_COMPILED:
        return columns
    arrays = {name: column for name, column in columns._asdict().items() if isinstance(column, np.ndarray)}
    return columns._replace(**{name: column.tolist() for name, column in arrays.items()})


def new_state(tables: Tables) -> State:
    """Make the state of a run of ``tables``."""
    parts, devices, slots = tables.parts, tables.devices, tables.in_flight
    resources, ops = devices + tables.lanes, slots * parts

    def small(count: int) -> Small:
        return np.zeros(count, np.int32)

    state = State(
        device=small(tables.layers),
        memory=np.zeros(devices, np.int64),
        peak=np.zeros(devices, np.int64),
        gradients=small(devices),
        heap=small(resources),
        end=np.zeros(resources),
        order=np.zeros(resources, np.int64),
        running=small(resources),
        busy=small(resources),
        start=np.zeros(resources),
        ready=np.zeros(resources),
        head=small(resources),
        tail=small(resources),
        next_op=small(ops),
        next_transfer=small(ops * devices),
        hop=small(ops * devices),
        load=np.zeros(ops * devices, np.int64),
        waits=small(ops),
        references=small(slots * tables.layers * devices),
        batch=small(slots),
        pending=small(slots),
        groups=small(devices),
        marked=np.zeros(devices, np.int64),
        counts=np.zeros(COUNTS, np.int64),
    )
    return for_runs(state)
