"""Channels that equal groups of devices share: the part of each group, and what passes them beside its transfers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from tensortide.timing.clusters import Channel, Cluster


class SharedChannel(NamedTuple):
    """A channel that exchanges share with each other or with transfers: how often each passes it at a time. ``queues``:
    by queue of transfers in the first group; ``rings``: by device whose gradients are exchanged."""

    queues: Mapping[int, int]
    rings: Mapping[int, int]


def queues_inside(cluster: Cluster, group: range) -> list[int]:
    """The queues of the wires inside a group, in an order in which those of equal groups correspond to each other."""
    found = [
        (wire.source, wire.target, wire.bytes_per_s, wire.link.latency_ns, number)
        for number, wire in enumerate(cluster.wires)
        if wire.source in group and wire.target in group
    ]
    return [cluster.queues[number] for *_, number in sorted(found)]


def first_group(cluster: Cluster, size: int) -> Cluster:
    """The first ``size`` devices of ``cluster``, a group like all others: on a channel that several groups share each
    has an equal part of the rate, since all send at the same time."""
    parts = {first: max(Counter(queues).values()) for first, queues in _corresponding(cluster, size).items()}
    own = _links(cluster, size)
    shares = {(cluster.links[i].channel, cluster.wires[i].inwards): parts[cluster.queues[i]] for i in own}

    def part(number: int, channel: Channel) -> Channel:
        link, (there, back) = channel.link, (shares.get((number, inwards), 1) for inwards in (False, True))
        if there == back == 1:
            return channel
        inwards = link.bytes_per_s if link.in_bytes_per_s is None else link.in_bytes_per_s
        slower = replace(link, bytes_per_s=link.bytes_per_s / there, in_bytes_per_s=inwards / back)
        return msgspec.structs.replace(channel, link=slower)

    return msgspec.structs.replace(
        cluster,
        devices=cluster.devices[:size],
        links=tuple(cluster.links[i] for i in own),
        channels=tuple(part(number, channel) for number, channel in enumerate(cluster.channels)),
    )


def shared_channels(cluster: Cluster, first: Cluster, rings: Sequence[Sequence[int]]) -> tuple[SharedChannel, ...]:
    """The channels of ``cluster`` that ``rings`` share; ``first`` is its first group, ``rings`` has for each device of
    it the queues that its exchange passes, each as often as it does."""
    wires = _links(cluster, len(first))
    own = {cluster.queues[wire]: queue for wire, queue in zip(wires, first.queues, strict=True)}
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


def _links(cluster: Cluster, size: int) -> list[int]:
    """The numbers of the links among the first ``size`` devices."""
    return [number for number, each in enumerate(cluster.links) if max(each.source, each.target) < size]


def _corresponding(cluster: Cluster, size: int) -> dict[int, tuple[int, ...]]:
    """For each queue inside the first group that of every group."""
    groups = (queues_inside(cluster, range(start, start + size)) for start in range(0, len(cluster), size))
    return {queues[0]: queues for queues in zip(*groups, strict=True)}
