"""A Cluster: nodes that are the same Machine each, the link between devices of a node, and the NICs between nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import msgspec

from tensortide.errors import TensortideError
from tensortide.timing.catalogue import Device, device
from tensortide.timing.collectives.kinds import whole
from tensortide.timing.collectives.sweep import Sweep
from tensortide.timing.machine import Link, Machine, MachineDevice

LINK_LATENCY_NS = 1_000
"""A hop between devices of a node, of the bound alone: the order of what each further rank adds to a collective."""
NIC_LATENCY_NS = 14_000
"""A hop between nodes: what 2 KiB take more between two nodes than within one (Vidur: H100 12 us, A100 16 us)."""


class Cluster(msgspec.Struct, frozen=True):
    """``nodes`` nodes, each the Machine ``node``, whose devices are all of one type.

    Args:
        link: joins the devices of a node; rate per device and direction, latency of a hop.
        nic: joins nodes; rate of one NIC per direction (None: the nodes are not joined).
        nics: NICs of a node, shared evenly by its devices.
        sweeps: measured collectives of this cluster within a node, by kind.
    """

    name: str
    node: Machine
    nodes: int
    link: Link
    nic: Link | None = None
    nics: int = 1
    sweeps: Mapping[str, Sweep] = {}

    @property
    def device(self) -> Device:
        """The type of device of the cluster."""
        return next(iter(self.node.devices.values())).row

    @property
    def devices_per_node(self) -> int:
        """Devices of each node; a rank r is the device r modulo this of node r divided by this."""
        return len(self.node.devices)

    @property
    def size(self) -> int:
        """Devices of all nodes."""
        return self.devices_per_node * self.nodes


def cluster(
    row: Device | str,
    *,
    devices_per_node: int = 8,
    nodes: int = 1,
    link_gbytes_per_s: float | None = None,
    nic_gbytes_per_s: float | None = None,
    nics: int | None = None,
    sweeps: Mapping[str, Sweep] | None = None,
) -> Cluster:
    """A Cluster of a device of the catalogue (or its row). Rates are in 1e9 bytes per second and direction.

    Those that are not given come from the catalogue: the link between devices, and one NIC of the typical rate for each
    device.

    Raises:
        TensortideError: unknown device, counts that are not positive, or a rate that nobody knows.

    Examples:
        >>> cluster("H100-SXM-80GB", nodes=4).size
        32
    """
    row = device(row) if isinstance(row, str) else row
    nics = devices_per_node if nics is None else nics
    for what, count in (("devices per node", devices_per_node), ("nodes", nodes), ("NICs of a node", nics)):
        whole(count, f"a cluster of {{}} {what}", 1)
    between = link_gbytes_per_s if link_gbytes_per_s is not None else row.intra_link_gbytes_per_s
    network = nic_gbytes_per_s if nic_gbytes_per_s is not None else row.internode_gbytes_per_s
    link = _link(between, LINK_LATENCY_NS, row, row.intra_link or "link", "link_gbytes_per_s")
    nic = None if nodes == 1 and network is None else _link(network, NIC_LATENCY_NS, row, "NIC", "nic_gbytes_per_s")
    node = Machine(row.name, {f"cuda:{i}": MachineDevice(row, row.usable_bytes) for i in range(devices_per_node)})
    name = f"{nodes} x {devices_per_node} {row.name}"
    return Cluster(name, node, nodes, link, nic, nics, sweeps or {})


def _link(gbytes_per_s: float | None, latency_ns: int, row: Device, name: str, argument: str) -> Link:
    if gbytes_per_s is None:
        raise TensortideError(f"the rate of the {name} of {row.name} is unknown: give {argument}")
    if not 0 < gbytes_per_s < 1e9:
        raise TensortideError(f"{argument} is {gbytes_per_s}: it must be a positive rate in 1e9 bytes per second")
    return Link(name, Fraction(gbytes_per_s) * 10**9, latency_ns, f"{gbytes_per_s:g} GB/s")


# -- groups -----------------------------------------------------------------------------------------


class Group(NamedTuple):
    """Ranks that take part in a collective: how many, over how many nodes, and on each node at most (``local``).

    ``even``: as many on each of the nodes. ``network``: bytes per ns that they get out of the node that gets least.
    """

    ranks: int
    nodes: int
    local: int
    even: bool
    network: float


def group(ranks: int | Sequence[int], cluster: Cluster, beside: Iterable[Sequence[int]] = ()) -> Group:
    """Place ``ranks`` (a count: the first ones) on ``cluster``. Groups that communicate ``beside`` share its NICs.

    Raises TensortideError for no ranks, for one that the cluster does not have or that is named twice, and for a group
    of several nodes where the cluster has no NICs.
    """
    others, per = [_checked(other, cluster) for other in beside], cluster.devices_per_node
    members = _checked(range(ranks) if isinstance(ranks, int) else ranks, cluster)
    if isinstance(ranks, int) and not others:  # whole nodes but for the last one, which has the least of the network
        whole, rest = divmod(ranks, per)
        nodes = whole + (rest > 0)
        network = _network(members[(nodes - 1) * per :], cluster, []) if nodes > 1 else 0.0
        return Group(ranks, nodes, min(ranks, per), not rest or nodes == 1, network)
    counts = Counter(rank // per for rank in members)
    local = max(counts.values())
    network = _network(members, cluster, others) if len(counts) > 1 else 0.0
    return Group(len(members), len(counts), local, min(counts.values()) == local, network)


def _checked(ranks: Sequence[int], cluster: Cluster) -> Sequence[int]:
    if len(ranks) < 1:
        raise TensortideError("a collective of no ranks: it needs at least 1")
    if not isinstance(ranks, range):
        ranks = [whole(rank, "a group has rank {}", 0) for rank in ranks]
        if len(set(ranks)) < len(ranks):
            raise TensortideError("a group names a rank twice")
    if max(ranks) >= cluster.size:
        raise TensortideError(f"a group has rank {max(ranks)}, but {cluster.name} has ranks 0 to {cluster.size - 1}")
    return ranks


def _network(members: Sequence[int], cluster: Cluster, others: Sequence[Sequence[int]]) -> float:
    """Bytes per ns of the node whose NICs give the group least; groups that use a NIC share it evenly."""
    if cluster.nic is None:
        raise TensortideError(f"the nodes of {cluster.name} are not joined: give the rate of a NIC")
    own = _nics(members, cluster)
    crowds = [_nics(other, cluster) for other in others if len({r // cluster.devices_per_node for r in other}) > 1]
    rate = float(cluster.nic.bytes_per_s) / 1e9
    by_node: dict[int, float] = {}
    for node, nic in own:
        users = 1 + sum((node, nic) in crowd for crowd in crowds)
        by_node[node] = by_node.get(node, 0.0) + rate / users
    return min(by_node.values())


def _nics(members: Sequence[int], cluster: Cluster) -> set[tuple[int, int]]:
    per, nics = cluster.devices_per_node, cluster.nics
    found: set[tuple[int, int]] = set()
    for rank in members:
        node, place = divmod(rank, per)
        first = place * nics // per
        found.update((node, nic) for nic in range(first, max(first + 1, (place + 1) * nics // per)))
    return found
