"""Collectives over several nodes: one ring through all ranks, or stages within the nodes and between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tensortide.timing.collectives.bound import bound
from tensortide.timing.collectives.cluster import Cluster, Group
from tensortide.timing.collectives.constants import Constants, constants_of
from tensortide.timing.collectives.kinds import COLLECTIVES, Collective

NIC_SHARE = 0.72
"""Share of a NIC's rate that large messages reach: 35.9 of 50 GB/s between two nodes of H100s (Vidur)."""


class Way(NamedTuple):
    """Nanoseconds of one way to run a collective, and its name."""

    ns: float
    algorithm: str


def across(kind: Collective, nbytes: int, group: Group, cluster: Cluster) -> Way:
    """The fastest way to run ``kind`` among the ranks of several nodes."""
    return min(way(kind, nbytes, group, cluster) for serves, way in WAYS if serves(kind, group))


def within(kind: Collective, cluster: Cluster) -> Constants:
    """The constants of ``kind`` within a node; where there are none, those of a ring at the full rate of the link."""
    return constants_of(kind, cluster.device) or Constants(0.0, kind.passes * cluster.link.latency_ns, 1.0, 0.0)


def link_rate(cluster: Cluster) -> float:
    """Bytes per nanosecond of the link between devices, in one direction."""
    return float(cluster.link.bytes_per_s) / 1e9


def _flat(kind: Collective, nbytes: int, group: Group, cluster: Cluster) -> Way:
    """Rings through all ranks, one for each NIC of the group: bounded by the slower of the link and the NICs."""
    constants, hops = within(kind, cluster), group.nodes - 1
    inside = constants.base_ns + constants.rank_ns * (group.ranks - group.nodes)
    moving = constants.transfer_ns(kind, group.ranks, nbytes, link_rate(cluster), NIC_SHARE * group.network)
    return Way(inside + kind.passes * hops * _hop_ns(cluster) + moving, "flat ring")


def _two_level(_: Collective, nbytes: int, group: Group, cluster: Cluster) -> Way:
    """Reduce-scatter within the nodes, all-reduce of each part between them on its own NICs, all-gather within."""
    rate, total = link_rate(cluster), 0.0
    for name in ("reduce_scatter", "all_gather"):
        total += within(COLLECTIVES[name], cluster).ns(COLLECTIVES[name], group.local, nbytes, rate)
    part, network = nbytes / group.local, NIC_SHARE * group.network / group.local
    between = bound(COLLECTIVES["all_reduce"], group.nodes, part, network, _hop_ns(cluster))
    return Way(total + between.ns, f"two-level, {between.algorithm} between nodes")


def _all_to_all(kind: Collective, nbytes: int, group: Group, cluster: Cluster) -> Way:
    """Each part goes straight to its rank; those for other nodes leave by the NICs. No faster than in one node."""
    constants = within(kind, cluster)
    one_node = constants.ns(kind, group.ranks, nbytes, link_rate(cluster))
    leaving = nbytes * (group.ranks - group.local) / group.ranks * group.local
    latency = constants.base_ns + constants.rank_ns * (group.ranks - group.nodes) + _hop_ns(cluster)
    return Way(max(one_node, latency + leaving / (NIC_SHARE * group.network)), "direct")


WAYS: tuple[tuple[Callable[[Collective, Group], bool], Callable[[Collective, int, Group, Cluster], Way]], ...] = (
    (lambda kind, group: kind.name != "all_to_all", _flat),
    (lambda kind, group: kind.name == "all_reduce" and group.local > 1 and group.even, _two_level),
    (lambda kind, group: kind.name == "all_to_all", _all_to_all),
)
"""Ways through several nodes, each with the kinds and groups that it serves."""


def _hop_ns(cluster: Cluster) -> float:
    assert cluster.nic is not None, "a group of several nodes has a network"
    return cluster.nic.latency_ns
