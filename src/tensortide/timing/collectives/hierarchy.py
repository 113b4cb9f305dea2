"""Collectives over several nodes: one ring through all ranks, or stages within the nodes and between them."""

from __future__ import annotations

from collections.abc import Callable

from tensortide.graph.collectives import COLLECTIVES, Collective
from tensortide.timing.collectives.bound import Bound, bound
from tensortide.timing.collectives.constants import Constants, constants_of
from tensortide.timing.collectives.nodes import Group, Nodes
from tensortide.timing.links import Link

NIC_SHARE = 0.72
"""Share of a NIC's rate that large messages reach: 35.9 of 50 GB/s between two nodes of H100s (Vidur)."""


def across(kind: Collective, nbytes: int, group: Group, nodes: Nodes) -> Bound:
    """The fastest way to run ``kind`` among the ranks of several nodes."""
    return min(way(kind, nbytes, group, nodes) for serves, way in WAYS if serves(kind, group))


def within(kind: Collective, nodes: Nodes, link: Link) -> Constants:
    """The constants of ``kind`` over ``link`` in a node; where there are none, those of a ring at its full rate."""
    return constants_of(kind, nodes.device, link.name) or Constants(0.0, kind.steps(2) * link.latency_ns, 1.0, 0.0)


def rate_of(link: Link) -> float:
    """Bytes per nanosecond of ``link``, in one direction."""
    return float(link.bytes_per_s) / 1e9


def _flat(kind: Collective, nbytes: int, group: Group, nodes: Nodes) -> Bound:
    """Rings through all ranks, one for each NIC of the group: bounded by the slower of the link and the NICs."""
    constants = within(kind, nodes, group.link)
    inside = constants.base_ns + constants.rank_ns * (group.ranks - group.nodes)
    moving = constants.transfer_ns(kind, group.ranks, nbytes, rate_of(group.link), NIC_SHARE * group.network)
    return Bound(inside + kind.steps(group.nodes) * _hop_ns(nodes) + moving, "flat ring")


def _two_level(_: Collective, nbytes: int, group: Group, nodes: Nodes) -> Bound:
    """Reduce-scatter within the nodes, all-reduce of each part between them on its own NICs, all-gather within."""
    rate, total = rate_of(group.link), 0.0
    for name in ("reduce_scatter", "all_gather"):
        total += within(COLLECTIVES[name], nodes, group.link).ns(COLLECTIVES[name], group.local, nbytes, rate)
    part, network = nbytes / group.local, NIC_SHARE * group.network / group.local
    between = bound(COLLECTIVES["all_reduce"], group.nodes, part, network, _hop_ns(nodes))
    return Bound(total + between.ns, f"two-level, {between.algorithm} between nodes")


def _direct(kind: Collective, nbytes: int, group: Group, nodes: Nodes) -> Bound:
    """Each part, or message, goes straight to its rank; those for other nodes cross the NICs of one end. No faster than
    in one node."""
    constants = within(kind, nodes, group.link)
    one_node = constants.ns(kind, group.ranks, nbytes, rate_of(group.link))
    leaving, network = float(nbytes), group.of_rank
    if kind.divided:
        leaving, network = nbytes * (group.ranks - group.local) / group.ranks * group.local, group.network
    latency = constants.base_ns + constants.rank_ns * (group.ranks - group.nodes) + _hop_ns(nodes)
    return Bound(max(one_node, latency + leaving / (NIC_SHARE * network)), "direct")


WAYS: tuple[tuple[Callable[[Collective, Group], bool], Callable[[Collective, int, Group, Nodes], Bound]], ...] = (
    (lambda kind, group: kind.joins_two or kind.algorithms[0].name != "direct", _flat),
    (lambda kind, group: kind.name == "all_reduce" and group.local > 1 and group.even, _two_level),
    (lambda kind, group: not kind.joins_two and kind.algorithms[0].name == "direct", _direct),
)
"""Ways through several nodes, each with the kinds and groups that it serves."""


def _hop_ns(nodes: Nodes) -> float:
    assert nodes.nic is not None, "a group of several nodes has a network"
    return nodes.nic.latency_ns
