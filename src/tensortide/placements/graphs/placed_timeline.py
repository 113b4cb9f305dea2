"""The Timeline of a placed step: a lane per device, direction of a link and host, and the bytes of every device."""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple, TypeAlias

import numpy as np

from tensortide.placements.arrays import Ints
from tensortide.placements.graphs.simulate import Simulated
from tensortide.timelines.events import Events, Kind
from tensortide.timelines.timeline import Timeline

_RELEASE, _ALLOCATE = 0, 1
_Change: TypeAlias = tuple[int, int, int, int]
"""A change of a device's bytes: time, release or allocation, number of what is concerned, bytes."""


class DeviceBytes(NamedTuple):
    """Bytes of a device over time: ``level[i]`` from ``time_ns[i]`` on. At one instant, releases come first, so that
    what is held for no time may be missing: the highest level is at most the peak of ``Simulated``."""

    time_ns: Ints
    level: Ints


class PlacedTimeline(Timeline):
    """A Timeline on several devices. Its lanes are the devices, the directions of their links, the links on which
    gradients leave the group beside the computation, if any do, and the hosts of devices that have one, whose numbers
    ``hosts`` has; ``device`` is the first one. ``resident_bytes`` of an op are those on its own device when it starts,
    of a transfer those where it goes. ``peak_bytes`` is therefore the largest peak of any device during an op.
    """

    def __init__(self, simulated: Simulated) -> None:
        self.simulated = simulated
        cluster = simulated.step.cluster
        self.devices = tuple(device.name for device in cluster.devices)
        beside, tables, count = simulated.step.beside, simulated.step.tables, len(self.devices)
        exchange_lanes = () if beside is None else beside.lanes
        self.hosts = tuple(d for d in range(count) if tables.launch[d] or tables.issue[d::count].any())
        hosts = (f"host of {self.devices[d]}" for d in self.hosts)
        lanes = (*self.devices, *(wire.name for wire in cluster.wires), *exchange_lanes, *hosts)
        super().__init__(simulated.step.graph, self.devices[0], self._events, lanes)

    @functools.cached_property
    def levels(self) -> tuple[DeviceBytes, ...]:
        """The bytes of each device over time, derived from when ops and transfers run."""
        found = []
        for changes in _changes(self.simulated):
            rows = np.array(sorted(changes), np.int64).reshape(-1, 4)
            found.append(DeviceBytes(rows[:, 0], np.cumsum(rows[:, 3])))
        return tuple(found)

    def _events(self) -> Events:
        run, step = self.simulated, self.simulated.step
        ops, sends = len(step.graph), len(run.sent)
        storages = step.tables.storage_of[run.sent] if sends else run.sent
        ring = run.device + step.devices + len(step.cluster.wires)
        lanes = np.concatenate([np.where(step.computes, run.device, ring), run.send_lane + step.devices])
        starts, ends = (
            np.concatenate(pair) for pair in ((run.start_ns, run.send_start_ns), (run.end_ns, run.send_end_ns))
        )
        where = np.concatenate([run.device, run.send_target])
        resident = np.zeros(ops + sends, np.int64)
        for device, (times, level) in enumerate(self.levels):
            own = where == device
            at = np.searchsorted(times, starts[own], side="right") - 1
            resident[own] = np.where(at >= 0, level[np.maximum(at, 0)], 0) if len(level) else 0
        kinds = np.concatenate([np.full(ops, Kind.RUN), np.full(sends, Kind.SEND)])
        index = np.concatenate([np.arange(ops), storages])
        columns = [kinds, index, lanes, starts, ends, resident]
        for number, host in enumerate(self.hosts):
            own = np.flatnonzero((run.device == host) & (run.issuing_ns > 0))
            lane = len(self.lanes) - len(self.hosts) + number
            issued = run.issued_ns[own]
            more = (0 * own + Kind.ISSUE, own, 0 * own + lane, issued - run.issuing_ns[own], issued, resident[own])
            columns = [np.concatenate(pair) for pair in zip(columns, more, strict=True)]
        order = np.lexsort((columns[1], columns[0], columns[3]))
        return Events(*(column[order] for column in columns))


def _changes(run: Simulated) -> list[list[_Change]]:
    """For each device the changes of its bytes."""
    changes: list[list[_Change]] = [[] for _ in range(run.step.devices)]
    released = _of_ops(run, changes)
    _of_transfers(run, changes, released)
    step, tables, start = run.step, run.step.tables, run.start_ns.tolist()
    for device, nbytes in enumerate(step.libraries.resident(run.place)):
        changes[device] += [(0, _RELEASE, -1, nbytes)] * (nbytes > 0)
    for storage, (unit, nbytes) in enumerate(zip(tables.home.tolist(), tables.nbytes.tolist(), strict=True)):
        if unit < 0 and run.place:
            continue
        home = run.place[unit] if run.place else 0
        if tables.early[storage]:
            changes[home].append((0, _RELEASE, storage, nbytes))
        elif (birth := step.graph.storages[storage].birth) is not None:
            changes[home].append((start[birth], _ALLOCATE, storage, nbytes))
        else:
            continue
        if step.released[storage]:
            changes[home].append((released[storage], _RELEASE, storage, -nbytes))
    return changes


def _of_ops(run: Simulated, changes: list[list[_Change]]) -> dict[int, int]:
    """Workspace of ops, of which exchanges beside the others have none; returns for each storage when the last op ends
    that touches it."""
    tables, found, exchange = run.step.tables, dict[int, int](), run.step.tables.exchanges.number
    for storage, (first, last) in enumerate(itertools.pairwise(tables.users_at.tolist())):
        found[storage] = int(run.end_ns[tables.users[first:last]].max(initial=0))
    for op, (start, end) in enumerate(zip(run.start_ns.tolist(), run.end_ns.tolist(), strict=True)):
        if exchange[op] < 0 and (extra := int(tables.workspace[op])):
            changes[int(run.device[op])] += [(start, _ALLOCATE, op, extra), (end, _RELEASE, op, -extra)]
    return found


def _of_transfers(run: Simulated, changes: list[list[_Change]], released: dict[int, int]) -> None:
    """Copies, from the start of their last transfer to their last use; a source is resident until they have left."""
    step, values = run.step, run.step.values.values
    columns = (run.sent, run.send_lane, run.send_target, run.send_start_ns, run.send_end_ns)
    for value, wire, target, begin, end in zip(*(column.tolist() for column in columns), strict=True):
        storage, nbytes, hop = values[value].storage, values[value].nbytes, step.cluster.wires[wire]
        if hop.source == run.place[step.units.home[storage]]:
            released[storage] = max(released.get(storage, 0), end)
            if step.tables.staged:
                changes[hop.source] += [(begin, _ALLOCATE, value, nbytes), (end, _RELEASE, value, -nbytes)]
        if hop.target == target:
            last = max(int(run.end_ns[op]) for op in values[value].readers if run.device[op] == target)
            changes[target] += [(begin, _ALLOCATE, value, nbytes), (last, _RELEASE, value, -nbytes)]
