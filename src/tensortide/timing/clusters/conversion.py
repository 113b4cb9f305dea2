"""Nodes of devices that are all alike as a Cluster, which says each link, and a Cluster of such nodes as Nodes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction

import msgspec

from tensortide.errors import TensortideError
from tensortide.timing.clusters.cluster import Channel, Cluster, ClusterDevice, ClusterLink, Wire
from tensortide.timing.collectives import Nodes
from tensortide.timing.links import Link
from tensortide.timing.wiring import WIRINGS


def nodes_to_cluster(nodes: Nodes) -> Cluster:
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
            port = way[0] * nodes.nics // nodes.devices_per_node if link is nodes.nic else way[0]
            key = ((a, b) if own else port, link)
            channels.setdefault(key, Channel(link, duplex=own))
            links.append(ClusterLink(*way, numbers.setdefault(key, len(numbers))))
    return Cluster(nodes.name, devices, tuple(links), tuple(channels.values()))


def _between(nodes: Nodes, a: int, b: int) -> tuple[Link, bool]:
    """The link of the ranks ``a`` and ``b``, and whether it is theirs alone."""
    per, part = nodes.devices_per_node, WIRINGS[nodes.wiring].part
    if a // per != b // per:
        assert nodes.nic is not None, "nodes are joined"
        return nodes.nic, False
    if part is None:
        return nodes.link, False
    return nodes.joining((a % per, b % per)), part(a % per, b % per, nodes.wired) > 0


def cluster_to_nodes(cluster: Cluster) -> Nodes:
    """The Nodes whose ``nodes_to_cluster`` joins devices as ``cluster`` does: one node of any of the ``WIRINGS``, with
    its PCIe, else several with NICs. A slower link is PCIe if its name begins so, or if the catalogue joins the device
    by a bridge or cube and the name does not begin with NIC. What no link of a cluster says is left out: the NICs of
    one node, and PCIe beside links that join each two.

    Raises TensortideError for a single device, and a cluster that such nodes are not.
    """
    given, first, size = _joints(cluster), cluster.devices[cluster.placeable[0]], len(cluster)
    complete = size > 1 and [each[:2] for each in given] == [*itertools.permutations(range(size), 2)]
    if complete and all(cluster.alike(0, device) for device in range(size)):
        ways = sorted((one for one in cluster.wires if one.source == 0), key=lambda one: one.target)
        for per in (per for per in range(size, 0, -1) if size % per == 0):
            for found in _of_nodes(cluster, ways, per):
                # Links of the first device alone rule out most, before all are laid out.
                links = (_between(found, 0, one.target)[0] for one in ways)
                alike = [(link.bytes_per_s, link.latency_ns) for link in links] == [_figures(one) for one in ways]
                if alike and _joints(nodes_to_cluster(found)) == given:
                    return msgspec.structs.replace(found, cluster_name=cluster.name)
    devices = [cluster.devices[i] for i in cluster.placeable]
    other = next((each for each in devices if each.row != first.row), None)
    gpu = next((each for each in devices if each.row.kind == "gpu"), first)
    how = (
        "by a switch or PCIe, each two of a node by a link of their own, or some by bridges and others by PCIe, and "
        "nodes by NICs (docs/machines.md)"
        if other is None
        else f"{first.name} is {first.row.name}, {other.name} is {other.row.name}"
    )
    raise TensortideError(
        f"its devices are not alike, or not joined alike: {how}. place takes any cluster; others take devices that "
        f"are, or one of them, as FILE:{gpu.name}"
    )


def _of_nodes(cluster: Cluster, ways: Sequence[Wire], per: int) -> Iterator[Nodes]:
    """Nodes of ``per`` devices, by each wiring that the ``ways`` out of the first device could be of."""
    row, near = cluster.devices[0].as_row, ways[: per - 1]
    nic, nics = None, 1
    if per < len(cluster):
        if _named(ways[per - 1], "pcie") or len({_figures(one) for one in ways[per - 1 :]}) > 1:
            return
        queues = zip(cluster.wires, cluster.queues, strict=True)
        nic, nics = _as_link("NIC", ways[per - 1]), len({q for one, q in queues if one.source < per <= one.target})
    shape = (row, per, len(cluster) // per)
    if nic is not None and not near:
        yield Nodes(*shape, nic, nic, nics)
    if not near or any(_named(one, "nic") for one in near):
        return
    own = row.wiring if row.intra_link_gbytes_per_s is not None else "switched"
    name = row.intra_link or "link"
    if _named(near[0], "pcie"):
        # Constants of collectives are those of a fabric: of the device, unless the link says that it is another.
        own, name = "pcie", name if name.lower().startswith("pcie") else "PCIe"
    # Wirings of the whole rate for any group make the same cluster: one of them will do.
    flat = own if WIRINGS[own].part is None else "switched"
    joined = next((number for number, one in enumerate(near, 1) if _figures(one) != _figures(near[0])), per)
    for wiring in dict.fromkeys((own, flat, "mesh" if joined == per else "bridge")):
        wired, part, pcie = (row.wired_devices or 0) if wiring == row.wiring else joined, WIRINGS[wiring].part, None
        if part is None:
            yield Nodes(*shape, _as_link(name, near[0]), nic, nics, wiring=wiring, wired=wired)
            continue
        apart = next((pair for pair in itertools.combinations(range(per), 2) if not part(*pair, wired)), None)
        if apart is not None:
            over = next(one for one in cluster.wires if (one.source, one.target) == apart)
            if not WIRINGS[wiring].over_pcie or not (wiring == own or _named(over, "pcie")):
                continue
            pcie = _as_link("PCIe", over)
        link = _as_link(name, near[0], 1 / Fraction(part(0, 1, wired)).limit_denominator(1 << 12))
        yield Nodes(*shape, link, nic, nics, wiring=wiring, wired=wired, pcie=pcie)


def _named(wire: Wire, name: str) -> bool:
    return wire.link.name.lower().startswith(name)


def _figures(wire: Wire) -> tuple[Fraction, int]:
    return wire.bytes_per_s, wire.link.latency_ns


def _as_link(name: str, wire: Wire, times: Fraction = Fraction(1)) -> Link:
    rate = wire.bytes_per_s * times
    return Link(name, rate, wire.link.latency_ns, f"{float(rate) / 1e9:g} GB/s")


def _joints(cluster: Cluster) -> list[tuple[int, int, Fraction, int, int]]:
    """Source, target, rate, latency and queue of each wire, queues numbered in the order of the others."""
    queues: dict[int, int] = {}
    found = sorted(zip(cluster.wires, cluster.queues, strict=True), key=lambda each: (each[0].source, each[0].target))
    return [
        (one.source, one.target, one.bytes_per_s, one.link.latency_ns, queues.setdefault(queue, len(queues)))
        for one, queue in found
    ]
