"""Machines of the catalogue as a Cluster that steps and networks are placed on, with the links by which their nodes are
wired."""

from __future__ import annotations

import itertools

from tensortide.timing import collectives
from tensortide.timing.clusters import Channel, Cluster, ClusterDevice, ClusterLink
from tensortide.timing.machine import Link
from tensortide.timing.wiring import WIRINGS


def of_machines(nodes: collectives.Cluster) -> Cluster:
    """The devices of ``nodes`` with a link between each two: that of their node, PCIe where it does not join them, and
    their NICs between nodes. What a device sends over its link to a switch, over PCIe or over its NIC waits in one
    queue; a link that joins two devices alone is their own."""
    row, size = nodes.device, nodes.size
    devices = tuple(ClusterDevice(f"{row.kind}{rank}", row, row.usable_bytes) for rank in range(size))
    links, channels = list[ClusterLink](), dict[tuple[object, Link], Channel]()
    numbers: dict[tuple[object, Link], int] = {}
    for a, b in itertools.combinations(range(size), 2):
        link, own = _between(nodes, a, b)
        for way in ((a, b), (b, a)):
            key = ((a, b) if own else way[0], link)
            channels.setdefault(key, Channel(link, duplex=own))
            links.append(ClusterLink(*way, numbers.setdefault(key, len(numbers))))
    return Cluster(nodes.name, devices, tuple(links), tuple(channels.values()))


def _between(nodes: collectives.Cluster, a: int, b: int) -> tuple[Link, bool]:
    """The link of the ranks ``a`` and ``b``, and whether it is theirs alone."""
    per, part = nodes.devices_per_node, WIRINGS[nodes.wiring].part
    if a // per != b // per:
        assert nodes.nic is not None, "nodes are joined"
        return nodes.nic, False
    if part is None:
        return nodes.link, False
    return nodes.joining((a % per, b % per)), part(a % per, b % per, nodes.wired) > 0
