"""Nodes of devices that are all alike: the links between devices of a node, and the NICs between nodes."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import msgspec

from tensortide.errors import TensortideError
from tensortide.timing.catalogue import Device, meant, named
from tensortide.timing.collectives.sweep import Sweep
from tensortide.timing.links import SLOWEST, Link
from tensortide.timing.wiring import WIRINGS
from tensortide.units import LONGEST, whole

LINK_LATENCY_NS = 1_000
"""A hop between devices of a node, of the bound alone: the order of what each further rank adds to a collective."""
NIC_LATENCY_NS = 14_000
"""A hop between nodes: what 2 KiB take more between two nodes than within one (Vidur: H100 12 us, A100 16 us)."""
ALONE = Link("none", Fraction(SLOWEST), 0, "nothing")
"""The link of a single device, over which nothing moves."""
PER_NODE = 8
"""Devices of a node where a number of devices says nothing of nodes."""
_COUNTS = re.compile(r"(?:([0-9]{1,9})x)?([0-9]{1,9})x(.+)", re.IGNORECASE)
_NO_COUNT = re.compile(r"[-+]?[\d.,_]+x", re.IGNORECASE)


class Nodes(msgspec.Struct, frozen=True):
    """``count`` nodes of ``devices_per_node`` each, all of type ``device``; closed forms predict collectives on them.
    A rank r is the device r modulo ``devices_per_node`` of node r divided by it.

    Args:
        link: joins devices of a node; whole rate of a device per direction, latency of a hop.
        nic: joins nodes; rate of one NIC per direction (None: the nodes are not joined).
        nics: NICs of a node, shared evenly by its devices.
        sweeps: measured collectives within a node, by kind.
        wiring: the devices that ``link`` joins, by name (``WIRINGS``).
        wired: how many devices of a node are joined, where the wiring says it.
        pcie: joins devices of a node that ``link`` does not join (None: nothing does).
        cluster_name: of the cluster that has them, if it is no row of the catalogue that says how they are joined.
    """

    device: Device
    devices_per_node: int = 1
    count: int = 1
    link: Link = ALONE
    nic: Link | None = None
    nics: int = 1
    sweeps: Mapping[str, Sweep] = {}
    wiring: str = "switched"
    wired: int = 0
    pcie: Link | None = None
    cluster_name: str = ""

    def __str__(self) -> str:
        counts = f"{self.count} x " * (self.count > 1) + f"{self.devices_per_node} x " * (self.size > 1)
        return f"{counts}{self.device.name}" + f" ({self.cluster_name})" * bool(self.cluster_name)

    @property
    def name(self) -> str:
        """The name of the cluster, else the numbers and the device."""
        return self.cluster_name or f"{self.count} x {self.devices_per_node} {self.device.name}"

    @property
    def size(self) -> int:
        """Devices of all nodes."""
        return self.devices_per_node * self.count

    @property
    def about(self) -> str:
        """The links of a node in words."""
        wired = WIRINGS[self.wiring].about.format(self.wired)
        pcie = "" if self.pcie is None else f", {self.pcie.about} over PCIe"
        over_pcie = self.pcie is not None or self.wiring == "pcie"
        host = " (no peer access: through the memory of the host)" * (over_pcie and self.device.peer_access is False)
        return f"{self.name}: {wired}; a device sends at most {self.link.about}{pcie}{host}"

    def joining(self, members: Sequence[int]) -> Link:
        """The link among ``members`` of a node, by their places in it: of ``link`` the part that the member has which
        has least, else PCIe. Raises TensortideError if they are not joined."""
        if WIRINGS[self.wiring].part is None or len(members) < 2:
            return self.link
        found = _part(self.link, self.wiring, self.wired, self.pcie, tuple(members))
        if found is None:
            name = self.device.name
            what = f"the link among {len(members)} {name} of a node, which is known to join {self.wired},"
            raise TensortideError(
                f"{unknown_rate(what, DEVICE_LINK)}, or ask for nodes of {self.wired}, as 2x{self.wired}x{name}"
            )
        return found


@functools.lru_cache(maxsize=1 << 12)
def _part(link: Link, wiring: str, wired: int, pcie: Link | None, members: tuple[int, ...]) -> Link | None:
    share = Fraction(WIRINGS[wiring].share(members, wired)).limit_denominator(1 << 12)
    rate = link.bytes_per_s * share
    return replace(link, bytes_per_s=rate, about=f"{float(rate) / 1e9:g} GB/s") if share else pcie


def nodes_of(
    row: Device | str,
    *,
    devices_per_node: int = PER_NODE,
    nodes: int = 1,
    link_gbytes_per_s: float | None = None,
    nic_gbytes_per_s: float | None = None,
    nics: int | None = None,
    sweeps: Mapping[str, Sweep] | None = None,
) -> Nodes:
    """Nodes of a device of the catalogue (or its row). Rates are in 1e9 bytes per second and direction.

    Those that are not given come from the catalogue: the links between devices, as they are wired, and one NIC of the
    typical rate for each device. A link whose rate is given joins any two devices of a node; a node of one needs none.

    Raises:
        TensortideError: unknown device, counts that are not positive, or a rate that nobody knows.

    Examples:
        >>> nodes_of("H100-SXM-80GB", nodes=4).size
        32
    """
    row = named(row) if isinstance(row, str) else row
    nics = devices_per_node if nics is None else nics
    for what, count in (("devices per node", devices_per_node), ("nodes", nodes), ("NICs of a node", nics)):
        whole(count, f"a cluster of {{}} {what}", 1)
    between = link_gbytes_per_s if link_gbytes_per_s is not None else row.intra_link_gbytes_per_s
    network = nic_gbytes_per_s if nic_gbytes_per_s is not None else row.internode_gbytes_per_s
    if between is None and devices_per_node > 1:
        raise unknown_rate(f"the link between devices of {row.name}", DEVICE_LINK)
    if nodes > 1 and network is None:
        raise unknown_rate(f"the NICs of {row.name}", NIC)
    nic = None if network is None else _link(network, NIC_LATENCY_NS, "NIC")
    link = nic or ALONE if between is None else _link(between, LINK_LATENCY_NS, row.intra_link or "link")
    found = Nodes(row, devices_per_node, nodes, link, nic, nics, sweeps or {})
    if link_gbytes_per_s is None:
        wired = row.wired_devices or 0
        found = msgspec.structs.replace(found, wiring=row.wiring, wired=wired, pcie=_pcie(row))
        found.joining(range(devices_per_node))
    return found


def nodes_called(text: str) -> Nodes:
    """Read ``h200``, ``4xh100-sxm``, ``16xa100-sxm-80gb`` (two nodes of eight) or ``2x4xa100-sxm-80gb`` (nodes first).

    Raises TensortideError for an unknown device or link, for none of them, and for more than a node that fill no whole
    nodes.
    """
    (per, count), name = counts_and_name(text)
    return nodes_of(meant(name)[0], devices_per_node=per, nodes=count)


def counts_and_name(text: str) -> tuple[tuple[int, int], str]:
    """Devices of a node, nodes, and the name of the device. Raises TensortideError as ``nodes_called`` does."""
    found = _COUNTS.fullmatch(text.strip())
    if found is None:
        if _NO_COUNT.match(text.strip()):
            shown = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
            raise TensortideError(
                f"{shown}: the number of devices is a positive whole number of at most 9 digits, as in 4xh100-sxm"
            )
        return (1, 1), text
    count, nodes, name = int(found[2]), int(found[1] or 1), found[3]
    if not count or not nodes:
        raise TensortideError(f"{text}: a machine has at least one device")
    if found[1] is None and count > PER_NODE:
        nodes, rest = divmod(count, PER_NODE)
        if rest:
            raise TensortideError(f"{text}: {count} devices fill no nodes of {PER_NODE}: write NODESxDEVICESx{name}")
        count = PER_NODE
    return (count, nodes), name


class LinkRates(NamedTuple):
    """Rates in place of those of the catalogue, in bytes per second and direction: of a device to the others of its
    node, and of the NIC of a device. None: that of the catalogue."""

    device_link: float | None = None
    nic: float | None = None

    def nodes_of(self, row: Device, devices_per_node: int, nodes: int = 1) -> Nodes:
        """``nodes`` of ``devices_per_node``, joined at these rates."""
        link, nic = (None if rate is None else rate / 1e9 for rate in self)
        return nodes_of(
            row, devices_per_node=devices_per_node, nodes=nodes, link_gbytes_per_s=link, nic_gbytes_per_s=nic
        )

    def spread(self, row: Device, devices: int) -> Nodes:
        """At least so many ``devices``, in nodes as large as the catalogue knows how to wire, 8 at most."""
        per = min(devices, PER_NODE if self.device_link is not None else largest_node(row))
        return self.nodes_of(row, per, -(-devices // per))


OF_CATALOGUE = LinkRates()
"""No rate but those of the catalogue."""


def largest_node(row: Device) -> int:
    """Devices of the largest node that the catalogue knows how to wire, 8 at most."""
    wiring = WIRINGS[row.wiring]
    return PER_NODE if wiring.part is None or wiring.over_pcie else min(PER_NODE, row.wired_devices or PER_NODE)


DEVICE_LINK, NIC = "--device-link", "--nic"
"""Options that give rates between devices in place of those of the catalogue."""


def unknown_rate(what: str, option: str) -> TensortideError:
    """The error that nobody knows the rate of ``what``, which the ``option`` gives."""
    return TensortideError(f"the rate of {what} is unknown: give it with {option}, as in {option} 50GB/s")


def _pcie(row: Device) -> Link | None:
    """The link over PCIe between devices that the link of ``row`` does not join."""
    if row.pcie_gbytes_per_s is None or not WIRINGS[row.wiring].over_pcie:
        return None
    return _link(row.pcie_gbytes_per_s, LINK_LATENCY_NS, "PCIe")


def _link(gbytes_per_s: float, latency_ns: int, name: str) -> Link:
    if not 0 < gbytes_per_s < 1e9:
        raise TensortideError(f"the {name} is of {gbytes_per_s}: a rate is positive, in 1e9 bytes per second")
    return Link(name, Fraction(gbytes_per_s) * 10**9, latency_ns, f"{gbytes_per_s:g} GB/s")


# -- groups -----------------------------------------------------------------------------------------


class Group(NamedTuple):
    """Ranks that take part in a collective: how many, over how many nodes, and on each node at most (``local``).

    ``even``: as many on each of the nodes. ``network``: bytes per ns that they get out of the node that gets least, and
    ``of_rank`` those of the rank that gets least. ``link`` joins those of a node, of the slowest.
    """

    ranks: int
    nodes: int
    local: int
    even: bool
    network: float
    of_rank: float
    link: Link


def group(ranks: int | Sequence[int], nodes: Nodes, beside: Iterable[Sequence[int]] = ()) -> Group:
    """Place ``ranks`` (a count: the first ones) on ``nodes``. Groups that communicate ``beside`` share its NICs.

    Raises TensortideError for no ranks, for one that no device has or that is named twice, and for a group
    of several nodes without NICs.
    """
    others, per = [_checked(other, nodes) for other in beside], nodes.devices_per_node
    members = _checked(range(ranks) if isinstance(ranks, int) else ranks, nodes)
    if isinstance(ranks, int) and not others:  # whole nodes but for the last one: all but one full node are alike
        whole, rest = divmod(ranks, per)
        count = whole + (rest > 0)
        network = _network(members[max(0, count - 2) * per :], nodes, []) if count > 1 else (0.0, 0.0)
        link = nodes.joining(range(min(ranks, per)))
        return Group(ranks, count, min(ranks, per), not rest or count == 1, *network, link)
    counts = Counter(rank // per for rank in members)
    local = max(counts.values())
    network = _network(members, nodes, others) if len(counts) > 1 else (0.0, 0.0)
    link = _slowest(members, nodes)
    return Group(len(members), len(counts), local, min(counts.values()) == local, *network, link)


def _slowest(members: Sequence[int], nodes: Nodes) -> Link:
    """The link among the ``members`` of a node, of the node where it is slowest."""
    if WIRINGS[nodes.wiring].part is None:
        return nodes.link
    places: dict[int, list[int]] = {}
    for rank in members:
        node, place = divmod(rank, nodes.devices_per_node)
        places.setdefault(node, []).append(place)
    links = [nodes.joining(each) for each in places.values() if len(each) > 1]
    return min(links, key=lambda link: link.bytes_per_s, default=nodes.link)


def _checked(ranks: Sequence[int], nodes: Nodes) -> Sequence[int]:
    if len(ranks) < 1:
        raise TensortideError("a collective of no ranks: it needs at least 1")
    if not isinstance(ranks, range):
        ranks = [whole(rank, "a group has rank {}", 0) for rank in ranks]
        if len(set(ranks)) < len(ranks):
            raise TensortideError("a group names a rank twice")
    if max(ranks) >= nodes.size:
        raise TensortideError(f"a group has rank {max(ranks)}, but {nodes.name} has ranks 0 to {nodes.size - 1}")
    return ranks


def _network(members: Sequence[int], nodes: Nodes, others: Sequence[Sequence[int]]) -> tuple[float, float]:
    """Bytes per ns of the node whose NICs give the group least, and of the rank that gets least; groups that use a NIC
    share it evenly, and so do the ranks of a node its NICs."""
    if nodes.nic is None:
        raise unknown_rate(f"the NICs of {nodes.device.name}", NIC)
    own = _nics(members, nodes)
    crowds = [_nics(other, nodes) for other in others if len({r // nodes.devices_per_node for r in other}) > 1]
    rate = float(nodes.nic.bytes_per_s) / 1e9
    by_node: dict[int, float] = {}
    for node, nic in own:
        users = 1 + sum((node, nic) in crowd for crowd in crowds)
        by_node[node] = by_node.get(node, 0.0) + rate / users
    counts = Counter(rank // nodes.devices_per_node for rank in members)
    return min(by_node.values()), min(rate / counts[node] for node, rate in by_node.items())


def _nics(members: Sequence[int], nodes: Nodes) -> set[tuple[int, int]]:
    per, nics = nodes.devices_per_node, nodes.nics
    found: set[tuple[int, int]] = set()
    for rank in members:
        node, place = divmod(rank, per)
        first = place * nics // per
        found.update((node, nic) for nic in range(first, max(first + 1, (place + 1) * nics // per)))
    return found
