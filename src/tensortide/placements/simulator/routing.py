"""The lanes that transfers queue on, and the route of each pair of devices over them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from tensortide.errors import TensortideError
from tensortide.timing.clusters import Cluster, Wire
from tensortide.timing.clusters.cluster import TYPICAL_BYTES

Egress = Literal["link", "device"]


class Hop(NamedTuple):
    """One part of a route: the lane, its rate in GB/s (infinite: bytes pass as fast as they arrive), its latency."""

    lane: int
    gbytes_per_s: float
    latency_ms: float = 0.0


class _ChannelWire(NamedTuple):
    """A link as transfers take it: the number of its channel, and its figures."""

    channel: int
    wire: Wire


@dataclass(frozen=True)
class Routing:
    """``lanes`` by name, each a queue of transfers, and the hops of every pair (source, target) that has a route."""

    lanes: tuple[str, ...]
    routes: Mapping[tuple[int, int], tuple[Hop, ...]]


def routing(cluster: Cluster, *, routed: bool, egress: Egress = "link") -> Routing:
    """Lay out the lanes of ``cluster``.

    With ``egress="device"`` all transfers out of a device share one lane, whatever their link. With ``routed`` duplex
    channels have two lanes, links have their latency, and pairs without a link are routed over other devices: each is
    received whole before it is sent on, but a switch passes bytes on as they arrive.

    Raises:
        TensortideError: ``egress`` is unknown.
    """
    if egress not in ("link", "device"):
        raise TensortideError(f"no egress is called {egress!r}: 'link' or 'device'.")
    links = _links(cluster)
    lanes, number = _lanes(cluster, links, routed, egress)

    def hop(source: int, target: int) -> Hop:
        wire = links[source, target].wire
        latency = wire.link.latency_ns / 1e6 if routed else 0.0
        return Hop(number[source, target], float(wire.bytes_per_s / 10**9), latency)

    routes: dict[tuple[int, int], tuple[Hop, ...]] = {way: (hop(*way),) for way in links}
    for source, ways in enumerate(cluster.routes if routed else ()):
        for target, way in enumerate(ways):
            if way and (source, target) not in links:
                path = [source, *(cluster.wires[wire].target for wire in way)]
                routes[source, target] = _through_switches(cluster, path, [hop(*pair) for pair in pairwise(path)])
    return Routing(lanes, routes)


def _links(cluster: Cluster) -> dict[tuple[int, int], _ChannelWire]:
    """The link of each pair that has one; the fastest, of several."""
    found: dict[tuple[int, int], _ChannelWire] = {}
    for each, wire in zip(cluster.links, cluster.wires, strict=True):
        before = found.get((each.source, each.target))
        if before is None or wire.transfer_ns(TYPICAL_BYTES) < before.wire.transfer_ns(TYPICAL_BYTES):
            found[each.source, each.target] = _ChannelWire(each.channel, wire)
    return found


def _lanes(
    cluster: Cluster, links: Mapping[tuple[int, int], _ChannelWire], routed: bool, egress: Egress
) -> tuple[tuple[str, ...], Mapping[tuple[int, int], int]]:
    """Names of lanes, and the lane of each (source, target)."""
    if egress == "device":
        return tuple(f"out of {name}" for name in cluster.names), {way: way[0] for way in links}
    names: list[str] = []
    first: list[int] = []
    duplex = [routed and channel.duplex for channel in cluster.channels]
    ways: list[list[tuple[int, int]]] = [[] for _ in cluster.channels]
    for way, link in links.items():
        ways[link.channel].append(way)
    for number, of in enumerate(ways):
        first.append(len(names))
        names += _lane_names(cluster, number, of, duplex[number])
    return tuple(names), {(i, j): first[c] + (duplex[c] and i > j) for (i, j), (c, _) in links.items()}


def _lane_names(cluster: Cluster, channel: int, ways: list[tuple[int, int]], duplex: bool) -> list[str]:
    """Names of the lanes of a channel that carries what goes ``ways``: those of its devices, if they have names and it
    joins two alone, else its number."""
    ends = {end for way in ways for end in way}
    if not cluster.numbered and len(ends) == 2:
        low, high = (cluster.names[end] for end in sorted(ends))
        up, down = f"{low} > {high}", f"{high} > {low}"
        if duplex:
            return [up, down]
        return [f"{low} - {high}" if len(ways) > 1 else up if ways[0][0] < ways[0][1] else down]
    kind, name = cluster.channels[channel].link.name, f"channel {channel}"
    name = name if kind == name else f"{name} ({kind})"
    return [f"{name} up", f"{name} down"] if duplex else [name]


def _through_switches(cluster: Cluster, path: list[int], hops: list[Hop]) -> tuple[Hop, ...]:
    """Hops after a switch take only the time by which their link is slower than the links before."""
    made, slowest = [hops[0]], 1 / hops[0].gbytes_per_s
    for device, hop in zip(path[1:], hops[1:], strict=False):
        if not cluster.devices[device].is_switch:
            slowest = 0.0
        left = 1 / hop.gbytes_per_s - slowest
        made.append(hop._replace(gbytes_per_s=1 / left if left > 0 else math.inf))
        slowest = max(slowest, 1 / hop.gbytes_per_s)
    return tuple(made)
