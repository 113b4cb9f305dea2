"""Clusters that steps are placed on: devices of any types, the links between them, routes and times of transfers."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from heapq import heappop, heappush
from typing import TypeAlias

import msgspec

from tensortide.errors import TensortideError
from tensortide.timing.catalogue import Device
from tensortide.timing.machine import Link

_TYPICAL_BYTES = 1 << 20
"""Bytes of the transfer whose time chooses a route."""
_Leaving: TypeAlias = tuple[int, int, int]
"""A lane as a route takes it: its time, its number and its target."""


class ClusterDevice(msgspec.Struct, frozen=True):
    """One device: its name, its row of the catalogue, and the bytes a process can use of it (None: unlimited)."""

    name: str
    row: Device
    capacity_bytes: int | None = None


class Connection(msgspec.Struct, frozen=True):
    """A link between the devices number ``a`` and ``b``. With ``duplex`` each direction has a queue of its own, else
    both share one. The link's rate out is that from ``a`` to ``b``. ``buses``: numbers of the queues out and in, which
    other connections with the same numbers share; None: the connection has its own."""

    a: int
    b: int
    link: Link
    duplex: bool = True
    buses: tuple[int, int] | None = None


class LinkLane(msgspec.Struct, frozen=True):
    """A queue of transfers over one direction of a connection, or over both where they share it: first come, first
    served."""

    name: str
    source: int
    target: int
    link: Link
    inwards: bool

    def transfer_ns(self, nbytes: int) -> int:
        """Nanoseconds that ``nbytes`` take from ``source`` to ``target``; rounded up."""
        return self.link.transfer_ns(nbytes, inwards=self.inwards)


class DeviceCluster(msgspec.Struct, frozen=True, dict=True):
    """Devices and the connections between them. Devices that are not joined directly reach each other over others,
    which store and forward; see ``routes``.

    Raises TensortideError for no devices, two of one name, and devices without a route between them.
    """

    name: str
    devices: tuple[ClusterDevice, ...]
    connections: tuple[Connection, ...] = ()

    def __post_init__(self) -> None:
        names = [device.name for device in self.devices]
        if not names:
            raise TensortideError(f"the cluster {self.name!r} has no devices")
        twice = sorted(name for name, times in Counter(names).items() if times > 1)
        if twice:
            raise TensortideError(f"the cluster {self.name!r} has two devices {twice[0]!r}")
        for connection in self.connections:
            if connection.a == connection.b:
                raise TensortideError(f"a link joins {names[connection.a]!r} to itself")
        reached = _reached(len(names), self.connections)
        if alone := [target for target in range(len(names)) if target not in reached]:
            raise TensortideError(f"no links lead from {names[0]!r} to {names[alone[0]]!r} and back")

    def __len__(self) -> int:
        return len(self.devices)

    @functools.cached_property
    def lanes(self) -> tuple[LinkLane, ...]:
        """Both lanes of each connection, one after the other."""
        names = [device.name for device in self.devices]
        found = []
        for connection in self.connections:
            a, b = connection.a, connection.b
            found.append(LinkLane(f"{names[a]} > {names[b]}", a, b, connection.link, False))
            found.append(LinkLane(f"{names[b]} > {names[a]}", b, a, connection.link, True))
        return tuple(found)

    @functools.cached_property
    def queues(self) -> tuple[int, ...]:
        """For each lane the queue that it waits in: its own, that of its connection where directions share one, or that
        of a bus; numbered by their first lanes."""
        keys = [
            (number, way if each.duplex else 0) if each.buses is None else (each.buses[way],)
            for number, each in enumerate(self.connections)
            for way in (0, 1)
        ]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        return tuple(numbers[key] for key in keys)

    @functools.cached_property
    def routes(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """From each device to each other the lanes that a transfer takes one after the other: the fastest for 1 MiB, of
        equal ones that of fewer lanes."""
        leaving: list[list[_Leaving]] = [[] for _ in self.devices]
        into = [-1] * len(self.devices)
        for number, lane in enumerate(self.lanes):
            ns = lane.transfer_ns(_TYPICAL_BYTES)
            leaving[lane.source].append((ns, number, lane.target))
            into[lane.target] = ns if into[lane.target] < 0 else min(into[lane.target], ns)
        return tuple(_ways(source, leaving, into) for source in range(len(self.devices)))

    def first_of(self, kind: str) -> int | None:
        """The number of the first device of ``kind``, such as ``cpu``."""
        return next((i for i, device in enumerate(self.devices) if device.row.kind == kind), None)

    def alike(self, a: int, b: int) -> bool:
        """Return whether two devices have the same row and memory."""
        one, other = self.devices[a], self.devices[b]
        return one.row == other.row and one.capacity_bytes == other.capacity_bytes


def _reached(count: int, connections: tuple[Connection, ...]) -> set[int]:
    """The devices, of ``count``, that connections lead to from the first: each is looked at once from either end."""
    neighbours: list[list[int]] = [[] for _ in range(count)]
    for connection in connections:
        neighbours[connection.a].append(connection.b)
        neighbours[connection.b].append(connection.a)
    found, waiting = {0}, [0]
    while waiting:
        new = [device for device in neighbours[waiting.pop()] if device not in found]
        found.update(new)
        waiting += new
    return found


def _ways(source: int, leaving: Sequence[Sequence[_Leaving]], into: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The fastest way from ``source`` to each device; ``into``: the least time of a lane that arrives at each.

    A lane between both that takes no longer than the quickest lane out of ``source`` and the quickest one into the
    target needs no search: any other way has both, and more lanes.
    """
    count = len(leaving)
    direct: dict[int, tuple[int, int]] = {}
    for ns, number, target in leaving[source]:
        direct[target] = min((ns, number), direct.get(target, (ns, number)))
    out = min((ns for ns, _ in direct.values()), default=0)
    found: dict[int, tuple[int, ...]] = {
        target: (number,) for target, (ns, number) in direct.items() if ns <= out + into[target]
    }
    found[source] = ()
    left = set(range(count)) - found.keys()
    heap: list[tuple[int, int, tuple[int, ...], int]] = [(0, 0, (), source)]
    seen: set[int] = set()
    while left and heap:
        ns, hops, way, at = heappop(heap)
        if at in seen:
            continue
        seen.add(at)
        found[at] = way
        left.discard(at)
        for taken, number, target in leaving[at]:
            if target not in seen:
                heappush(heap, (ns + taken, hops + 1, (*way, number), target))
    return tuple(found.get(target, ()) for target in range(count))


def joined(
    rows: list[Device], link: Link, *, capacity_bytes: int | None = None, name: str = "", duplex: bool = True
) -> DeviceCluster:
    """A cluster of ``rows``, each two joined by a ``link`` of their own; its devices are ``gpu0``, ``cpu1``, ...

    ``capacity_bytes``: of every device (None: that of its row).
    """
    devices = tuple(
        ClusterDevice(f"{row.kind}{i}", row, row.usable_bytes if capacity_bytes is None else capacity_bytes)
        for i, row in enumerate(rows)
    )
    pairs = [(a, b) for a in range(len(rows)) for b in range(a + 1, len(rows))]
    connections = tuple(Connection(a, b, link, duplex) for a, b in pairs)
    return DeviceCluster(name or f"{len(rows)} devices", devices, connections)


def faster(cluster: DeviceCluster, factor: int) -> DeviceCluster:
    """``cluster`` with ``factor`` times the bandwidth on every link."""

    def quick(link: Link) -> Link:
        inwards = None if link.in_bytes_per_s is None else link.in_bytes_per_s * Fraction(factor)
        return Link(link.name, link.bytes_per_s * factor, link.latency_ns, link.about, inwards, link.capacity_bytes)

    connections = [msgspec.structs.replace(each, link=quick(each.link)) for each in cluster.connections]
    return msgspec.structs.replace(cluster, connections=tuple(connections))
