"""Groups of equal devices, each with the whole step on its part of the batch: data parallelism of placements."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.parallelism.gradients import GROUP as DATA
from tensortide.parallelism.gradients import Replicas, average_after
from tensortide.parallelism.shards import Sharded
from tensortide.placements.arrays import Ints
from tensortide.placements.graphs.channels import (
    SharedChannel,
    first_group,
    queues_inside,
    shared_channels,
)
from tensortide.placements.graphs.durations import OpDurations
from tensortide.placements.graphs.exchanges import Beside, BucketRun, exchanges_of, streams_of
from tensortide.plans.model import Lane, Plan, Receive, Send
from tensortide.timelines.data_parallel import BUCKET_BYTES, FIRST_BUCKET_BYTES
from tensortide.timing.catalogue import Device
from tensortide.timing.clusters import Cluster, Wire
from tensortide.timing.collectives import COLLECTIVES, Nodes, predict_collective
from tensortide.timing.collectives.bound import bound
from tensortide.timing.links import Link

POINTS = 16
"""Sizes for each power of two whose time is predicted; that of a bucket lies on the line between two of them, at most
0.2 % off."""


class Ring(NamedTuple):
    """The links over which the replicas of one device exchange gradients, from each group to the next: the ``wires``,
    the queue of each in the whole cluster, the rate of the slowest, bytes per ns, and the longest latency. Wires in one
    queue share its rate."""

    wires: tuple[Wire, ...]
    queues: tuple[int, ...]
    bytes_per_ns: float
    latency_ns: int


@dataclass(frozen=True)
class Groups:
    """``count`` groups of as many lanes, as processes run them: rank r is lane r % lanes of group r // lanes.

    ``buckets``: for each lane the all-reduces of gradients that leave together, in the order in which they leave.
    ``beside``: they run while the lane goes on, up to the op that uses a gradient, in buffers of their own.
    """

    count: int = 1
    buckets: tuple[tuple[tuple[int, ...], ...], ...] = ()
    beside: bool = True


@dataclass(frozen=True)
class ReplicaGroups:
    """``count`` groups of devices that do the same: the devices of the ``whole`` cluster in order, as many each.
    ``cluster`` is the first group, with its part of the rate of channels that groups share; ``rings`` are those of its
    devices. ``channels`` are those that exchanges share with each other or with transfers."""

    count: int
    whole: Cluster
    cluster: Cluster
    rings: tuple[Ring, ...]
    channels: tuple[SharedChannel, ...]

    def all_lanes(self, plan: Plan) -> Plan:
        """The lanes of ``plan`` in every group, those of one rank after the other."""
        size, lanes = len(plan.lanes), list[Lane]()
        for rank, device in enumerate(self.whole.devices):
            first = rank // size * size
            steps = (
                replace(step, lane=first + step.lane) if isinstance(step, Send | Receive) else step
                for step in plan.lanes[rank % size].steps
            )
            lanes.append(Lane(device.name, tuple(steps)))
        return replace(plan, lanes=tuple(lanes))

    def exchange_ns(self, kind: str, device: int, nbytes: int) -> float:
        """Time of a collective of ``nbytes`` among the replicas of a device: that of as many devices in one node whose
        link is the slowest of the ring (``timing.collectives``), and at least the bound with its latency."""
        row, ring = self.cluster.devices[device].row, self.rings[device]
        link = Link(row.intra_link or "ring", Fraction(ring.bytes_per_ns) * 10**9, ring.latency_ns)
        node = Nodes(row, self.count, 1, link)
        found = predict_collective(kind, nbytes, self.count, node).ns
        return max(found, bound(COLLECTIVES[kind], self.count, nbytes, ring.bytes_per_ns, ring.latency_ns).ns)

    def sent_bytes(self, exchange: BucketRun) -> int:
        """Bytes that the collective of a bucket sends over each link of a ring, rounded to the nearest."""
        return round(COLLECTIVES[exchange.kind].phi(self.count) * exchange.nbytes)

    def sent(
        self, inside: Sequence[tuple[Wire, int]], exchanges: Sequence[Sequence[BucketRun]]
    ) -> Iterator[tuple[str, int]]:
        """Yield the names of wires with bytes sent over them: ``inside`` the first group and so in each, and over the
        rings for the ``exchanges`` of each device."""
        size, names = len(self.cluster), [device.name for device in self.whole.devices]
        for group in range(self.count):
            for wire, nbytes in inside:
                yield f"{names[group * size + wire.source]} > {names[group * size + wire.target]}", nbytes
        for ring, own in zip(self.rings, exchanges, strict=True):
            yield from ((wire.name, sum(map(self.sent_bytes, own))) for wire in ring.wires)

    def beside(self, graph: Graph, known: Collection[str], bucket_bytes: int | None) -> Beside:
        """The collectives of ``graph`` as exchanges beside compute, in buckets of ``bucket_bytes`` (None: 25 MiB, the
        first of 1 MiB); on ``known`` devices a bucket takes the times of its ops, one after the other."""
        exchanges = exchanges_of(graph)
        each, whole = {one.nbytes for one in exchanges} or {1}, max(1, sum(one.nbytes for one in exchanges))
        between = np.exp2(np.arange(math.log2(max(1, min(each))), math.log2(whole), 1 / POINTS))
        sizes = np.array(sorted({*each, *(int(size) for size in between), whole}), np.int64)
        streams = streams_of(exchanges)
        found = np.full((len(self.cluster), len(streams), len(sizes)), -1, np.int64)
        rows: dict[tuple[str, Device, float, int], Ints] = {}
        for number, device in enumerate(self.cluster.devices):
            if self._is_known(number, known):
                continue
            for stream, (kind, _) in enumerate(streams):
                key = (kind, device.row, self.rings[number].bytes_per_ns, self.rings[number].latency_ns)
                if key not in rows:
                    ns = [round(self.exchange_ns(kind, number, size)) for size in sizes.tolist()]
                    rows[key] = np.array(ns, np.int64)
                found[number, stream] = rows[key]
        limits = (FIRST_BUCKET_BYTES, BUCKET_BYTES) if bucket_bytes is None else (bucket_bytes, bucket_bytes)
        lanes = tuple(ring.wires[0].name for ring in self.rings)
        return Beside(exchanges, sizes, found, *limits, lanes, self.channels)

    def _is_known(self, device: int, known: Collection[str]) -> bool:
        """True if times are given for a device, by its name or that of its type."""
        one = self.cluster.devices[device]
        return not {one.name, one.row.name}.isdisjoint(known)

    def timed(self, times: OpDurations, graph: Graph, known: Collection[str] = ()) -> OpDurations:
        """``times`` of the ops of ``graph`` with those of its collectives; on ``known`` devices, by their name or
        that of their type, times are kept."""
        exchanges = {each.op: (each.kind, each.nbytes) for each in exchanges_of(graph)}
        columns, unknown, stand_ins = [], [], []
        for device, column in enumerate(times.ns):
            ns, own = list(column), {} if self._is_known(device, known) else exchanges
            found = {(kind, size): round(self.exchange_ns(kind, device, size)) for kind, size in set(own.values())}
            for op, each in own.items():
                ns[op] = found[each]
            columns.append(tuple(ns))
            priced = times.stand_ins[device] & own.keys()
            unknown.append(times.unknown[device] - len(priced))
            stand_ins.append(times.stand_ins[device] - priced)
        return OpDurations(tuple(columns), tuple(unknown), tuple(stand_ins), times.source, times.hosts)


def replica_groups(cluster: Cluster, count: int) -> ReplicaGroups:
    """Divide the devices of ``cluster``, in their order, into ``count`` groups of as many.

    Raises PlanError if they are no whole number, if a group differs from the first in a device or in a link inside it,
    and if the devices that correspond to each other in two groups have no link of their own.
    """
    size, names = len(cluster) // count, [device.name for device in cluster.devices]
    if count < 1 or len(cluster) % count:
        raise PlanError(f"{len(cluster)} devices are not {count} equal groups: {len(cluster)} / {count} is not whole")
    for number, device in enumerate(cluster.devices):
        first = cluster.devices[number % size]
        if not cluster.alike(number, number % size):
            raise PlanError(
                f"group {number // size} differs from group 0: {device.name} is {_kind(cluster, number)}, {first.name} "
                f"is {_kind(cluster, number % size)}"
            )
    inner = [_inner(cluster, range(group * size, (group + 1) * size)) for group in range(count)]
    for group, links in enumerate(inner):
        for a, b in sorted(links.keys() | inner[0].keys()):
            own, first_of = links.get((a, b), ()), inner[0].get((a, b), ())
            if own != first_of:
                start = group * size
                raise PlanError(
                    f"group {group} differs from group 0: from {names[start + a]} to {names[start + b]} leads "
                    f"{_links(own)}, from {names[a]} to {names[b]} {_links(first_of)}"
                )
        if _queues(cluster, range(group * size, (group + 1) * size)) != _queues(cluster, range(size)):
            raise PlanError(f"group {group} differs from group 0: other links inside it share a channel")
    group_0 = first_group(cluster, size)
    rings = tuple(_ring(cluster, range(device, len(cluster), size)) for device in range(size))
    channels = shared_channels(cluster, group_0, [ring.queues for ring in rings])
    return ReplicaGroups(count, cluster, group_0, rings, channels)


def averaged(graph: Graph, count: int) -> Graph:
    """``graph`` of one of ``count`` replicas with the exchange of its gradients. Raises as ``exchanged``."""
    return average_after(graph, Replicas(DATA, count))[0]


def exchanged(step: Sharded, count: int) -> Sharded:
    """``step`` of one of ``count`` replicas with the exchange of its gradients: an all-reduce of each, after the
    backward pass. Raises DegreesError for an optimizer that does not wait for them."""
    graph, first, number = average_after(step.graph, Replicas(DATA, count))

    def moved(op: int) -> int:
        return op + number if op >= first else op

    return step._replace(graph=graph, follows={moved(op): moved(other) for op, other in step.follows.items()})


def _kind(cluster: Cluster, number: int) -> str:
    device = cluster.devices[number]
    memory = "unlimited memory" if device.capacity_bytes is None else f"{device.capacity_bytes:,} bytes"
    return f"{device.row.name} with {memory}"


_Link = tuple[float, int, bool]
"""Bytes per second, latency, and whether both directions have queues of their own."""


def _inner(cluster: Cluster, group: range) -> dict[tuple[int, int], tuple[_Link, ...]]:
    """The links inside a group, by the places of their devices in it."""
    found: dict[tuple[int, int], tuple[_Link, ...]] = {}
    for each, wire in zip(cluster.links, cluster.wires, strict=True):
        if each.source in group and each.target in group:
            way = (each.source - group.start, each.target - group.start)
            made = (float(wire.bytes_per_s), wire.link.latency_ns, cluster.channels[each.channel].duplex)
            found[way] = tuple(sorted((*found.get(way, ()), made)))
    return found


def _links(links: Sequence[_Link]) -> str:
    return (
        " and ".join(
            f"{rate / 1e9:g} GB/s, {latency / 1000:g} us{'' if duplex else ', one queue'}"
            for rate, latency, duplex in links
        )
        or "no link"
    )


def _queues(cluster: Cluster, group: range) -> list[int]:
    """The queue of each wire inside a group, numbered by their first wires: which of its links share one."""
    own = queues_inside(cluster, group)
    numbers = {queue: number for number, queue in enumerate(dict.fromkeys(own))}
    return [numbers[queue] for queue in own]


def _ring(cluster: Cluster, replicas: range) -> Ring:
    """The ring through ``replicas`` of one device, all of whose links are in use at once: those in one queue share its
    rate. Raises PlanError if two devices that follow each other have no link."""
    wires, used = [], list[int]()
    for source, target in zip(replicas, (*replicas[1:], replicas[0]), strict=True):
        own = [number for number, wire in enumerate(cluster.wires) if (wire.source, wire.target) == (source, target)]
        if source == target:
            continue
        if not own:
            names = [cluster.devices[number].name for number in (source, target)]
            raise PlanError(
                f"{names[0]} and {names[1]} correspond to each other in two groups, and exchange gradients: they need "
                "a link of their own"
            )
        best = max(own, key=lambda number: (cluster.wires[number].bytes_per_s, -number))
        wires.append(cluster.wires[best])
        used.append(cluster.queues[best])
    sharing = Counter(used)
    rates = [wire.bytes_per_s / sharing[queue] for wire, queue in zip(wires, used, strict=True)]
    latency = max((wire.link.latency_ns for wire in wires), default=0)
    return Ring(tuple(wires), tuple(used), float(min(rates, default=Fraction(0))) / 1e9, latency)
