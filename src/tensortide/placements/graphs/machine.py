"""Clusters that steps are placed on: devices of any types, the links between them, routes and times of transfers."""

from __future__ import annotations

import functools
from collections import defaultdict
from fractions import Fraction
from heapq import heappop, heappush

import msgspec

from tensortide.errors import TensortideError
from tensortide.timing.catalogue import Device
from tensortide.timing.machine import Link

_TYPICAL_BYTES = 1 << 20
"""Bytes of the transfer whose time chooses a route."""


class ClusterDevice(msgspec.Struct, frozen=True):
    """One device: its name, its row of the catalogue, and the bytes a process can use of it (None: unlimited)."""

    name: str
    row: Device
    capacity_bytes: int | None = None


class Connection(msgspec.Struct, frozen=True):
    """A link between the devices number ``a`` and ``b``. With ``duplex`` each direction has a queue of its own, else
    both share one. The link's rate out is that from ``a`` to ``b``."""

    a: int
    b: int
    link: Link
    duplex: bool = True


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
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise TensortideError(f"the cluster {self.name!r} has two devices {twice[0]!r}")
        for connection in self.connections:
            if connection.a == connection.b:
                raise TensortideError(f"a link joins {names[connection.a]!r} to itself")
        for target in sorted({*range(len(names))} - self._reached()):
            raise TensortideError(f"no links lead from {names[0]!r} to {names[target]!r} and back")

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
        """For each lane the queue that it waits in: its own, or that of its connection where directions share one."""
        return tuple(
            2 * number + (way if connection.duplex else 0)
            for number, connection in enumerate(self.connections)
            for way in (0, 1)
        )

    @functools.cached_property
    def routes(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """From each device to each other the lanes that a transfer takes one after the other: the fastest for 1 MiB, of
        equal ones that of fewer lanes."""
        return tuple(map(self._ways, range(len(self.devices))))

    def first_of(self, kind: str) -> int | None:
        """The number of the first device of ``kind``, such as ``cpu``."""
        return next((i for i, device in enumerate(self.devices) if device.row.kind == kind), None)

    def alike(self, a: int, b: int) -> bool:
        """Return whether two devices have the same row and memory."""
        one, other = self.devices[a], self.devices[b]
        return one.row == other.row and one.capacity_bytes == other.capacity_bytes

    def _reached(self) -> set[int]:
        """The devices that links join with the first one, itself among them."""
        linked: defaultdict[int, set[int]] = defaultdict(set)
        for each in self.connections:
            linked[each.a].add(each.b)
            linked[each.b].add(each.a)
        found, left = {0}, [0]
        while left:
            new = linked[left.pop()] - found
            found |= new
            left += new
        return found

    @functools.cached_property
    def _leaving(self) -> list[list[tuple[int, int, int]]]:
        """For each device the lanes out of it: number, target, and nanoseconds of a typical transfer."""
        found: list[list[tuple[int, int, int]]] = [[] for _ in self.devices]
        for number, lane in enumerate(self.lanes):
            found[lane.source].append((number, lane.target, lane.transfer_ns(_TYPICAL_BYTES)))
        return found

    def _ways(self, source: int) -> tuple[tuple[int, ...], ...]:
        """The lanes from ``source`` to each device (Dijkstra): those of least time, then the fewest, then the first."""
        best: dict[int, tuple[int, int, tuple[int, ...]]] = {source: (0, 0, ())}
        heap: list[tuple[int, int, tuple[int, ...], int]] = [(0, 0, (), source)]
        done = set[int]()
        while heap:
            ns, hops, way, at = heappop(heap)
            if at in done:
                continue
            done.add(at)
            for number, target, lane_ns in self._leaving[at]:
                known = best.get(target)
                if known is not None and (ns + lane_ns, hops + 1) > known[:2]:
                    continue
                reached = ns + lane_ns, hops + 1, (*way, number)
                if known is None or reached < known:
                    best[target] = reached
                    heappush(heap, (*reached, target))
        return tuple(best[target][2] if target in best else () for target in range(len(self.devices)))


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
