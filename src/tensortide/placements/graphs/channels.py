"""Channels that equal groups of devices share: the part of each group, and what passes them beside its transfers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import msgspec

from tensortide.placements.graphs.machine import Connection, DeviceCluster, LinkLane


class SharedChannel(NamedTuple):
    """A channel that exchanges share with each other or with transfers: how often each passes it at a time. ``queues``:
    by queue of transfers in the first group; ``rings``: by device whose gradients are exchanged."""

    queues: Mapping[int, int]
    rings: Mapping[int, int]


def rate_of(lane: LinkLane) -> Fraction:
    """Bytes per second of a lane."""
    inwards = lane.link.in_bytes_per_s
    return inwards if lane.inwards and inwards is not None else lane.link.bytes_per_s


def queues_inside(cluster: DeviceCluster, group: range) -> list[int]:
    """The queues of the lanes inside a group, in an order in which those of equal groups correspond to each other."""
    found = [
        (lane.source, lane.target, rate_of(lane), lane.link.latency_ns, number)
        for number, lane in enumerate(cluster.lanes)
        if lane.source in group and lane.target in group
    ]
    return [cluster.queues[number] for *_, number in sorted(found)]


def first_group(cluster: DeviceCluster, size: int) -> DeviceCluster:
    """The first ``size`` devices of ``cluster``, a group like all others: on a channel that several groups share each
    has an equal part of the rate, since all send at the same time."""
    parts = {first: max(Counter(queues).values()) for first, queues in _corresponding(cluster, size).items()}

    def part(connection: Connection, there: int, back: int) -> Connection:
        link = connection.link
        inwards = link.bytes_per_s if link.in_bytes_per_s is None else link.in_bytes_per_s
        if there == back == 1:
            return connection
        slower = replace(link, bytes_per_s=link.bytes_per_s / there, in_bytes_per_s=inwards / back)
        return msgspec.structs.replace(connection, link=slower)

    numbers = _connections(cluster, size)
    own = (part(cluster.connections[i], *(parts[cluster.queues[2 * i + way]] for way in (0, 1))) for i in numbers)
    return msgspec.structs.replace(cluster, devices=cluster.devices[:size], connections=tuple(own))


def shared_channels(
    cluster: DeviceCluster, first: DeviceCluster, rings: Sequence[Sequence[int]]
) -> tuple[SharedChannel, ...]:
    """The channels of ``cluster`` that ``rings`` share; ``first`` is its first group, ``rings`` has for each device of
    it the queues that its exchange passes, each as often as it does."""
    lanes = [2 * number + way for number in _connections(cluster, len(first)) for way in (0, 1)]
    own = {cluster.queues[lane]: queue for lane, queue in zip(lanes, first.queues, strict=True)}
    queues: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for number, corresponding in _corresponding(cluster, len(first)).items():
        for queue in corresponding:
            queues[queue][own[number]] += 1
    passed: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for device, ring in enumerate(rings):
        for queue in ring:
            passed[queue][device] += 1
    every = (SharedChannel(dict(queues[queue]), dict(passed[queue])) for queue in sorted(passed))
    return tuple(each for each in every if len(each.queues) + len(each.rings) > 1)


def _connections(cluster: DeviceCluster, size: int) -> list[int]:
    """The numbers of the connections among the first ``size`` devices."""
    return [number for number, each in enumerate(cluster.connections) if max(each.a, each.b) < size]


def _corresponding(cluster: DeviceCluster, size: int) -> dict[int, tuple[int, ...]]:
    """For each queue inside the first group that of every group."""
    groups = (queues_inside(cluster, range(start, start + size)) for start in range(0, len(cluster), size))
    return {queues[0]: queues for queues in zip(*groups, strict=True)}
