"""The lanes that transfers queue on, and the route of each pair of devices over them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from tensortide.errors import TensortideError
from tensortide.placements.device_graphs.device_graph import DeviceGraph

Egress = Literal["link", "device"]
_TYPICAL_BYTES = 1 << 20
"""Size of the transfer that a route is the fastest for."""


class Hop(NamedTuple):
    """One part of a route: the lane, its rate in GB/s (infinite: bytes pass as fast as they arrive), its latency."""

    lane: int
    gbytes_per_s: float
    latency_ms: float = 0.0


@dataclass(frozen=True)
class Wiring:
    """``lanes`` by name, each a queue of transfers, and the hops of every pair (source, target) that has a route."""

    lanes: tuple[str, ...]
    routes: Mapping[tuple[int, int], tuple[Hop, ...]]


def wiring(cluster: DeviceGraph, *, routed: bool, egress: Egress = "link") -> Wiring:
    """Lay out the lanes of ``cluster``.

    With ``egress="device"`` all transfers out of a device share one lane, whatever their link. With ``routed`` duplex
    channels have two lanes, links have their latency, and pairs without a link are routed over other devices: each is
    received whole before it is sent on, but a switch passes bytes on as they arrive.

    Raises:
        TensortideError: ``egress`` is unknown.
    """
    if egress not in ("link", "device"):
        raise TensortideError(f"no egress is called {egress!r}: 'link' or 'device'.")
    lanes, number = _lanes(cluster, routed, egress)

    def hop(source: int, target: int, channel: int) -> Hop:
        found = cluster.channels[channel]
        latency = found.latency_us / 1000 if routed else 0.0
        return Hop(number[source, target, channel], found.bandwidth / 8, latency)

    routes: dict[tuple[int, int], tuple[Hop, ...]] = {}
    for source in range(len(cluster.devices)):
        paths = _paths(cluster, source) if routed else {}
        for target in range(len(cluster.devices)):
            if source == target:
                continue
            channel = cluster.link(source, target)
            if channel is not None:
                routes[source, target] = (hop(source, target, channel),)
            elif target in paths:
                path = paths[target]
                hops = [hop(i, j, cluster.link(i, j) or 0) for i, j in pairwise(path)]
                routes[source, target] = _through_switches(cluster, path, hops)
    return Wiring(lanes, routes)


def _lanes(
    cluster: DeviceGraph, routed: bool, egress: Egress
) -> tuple[tuple[str, ...], Mapping[tuple[int, int, int], int]]:
    """Names of lanes, and the lane of each (source, target, channel)."""
    links = [
        (i, n.device, n.comm_channel) for i, d in enumerate(cluster.devices) for n in d.neighbours if n.device != i
    ]
    if egress == "device":
        return tuple(f"out of {name}" for name in cluster.names), {link: link[0] for link in links}
    names: list[str] = []
    first: list[int] = []
    duplex = [routed and channel.duplex for channel in cluster.channels]
    ways: list[list[tuple[int, int]]] = [[] for _ in cluster.channels]
    for i, j, channel in links:
        ways[channel].append((i, j))
    for number, of in enumerate(ways):
        first.append(len(names))
        names += _lane_names(cluster, number, of, duplex[number])
    return tuple(names), {(i, j, c): first[c] + (duplex[c] and i > j) for i, j, c in links}


def _lane_names(cluster: DeviceGraph, channel: int, ways: list[tuple[int, int]], duplex: bool) -> list[str]:
    """Names of the lanes of a channel that carries what goes ``ways``: those of its devices, if they have names and it
    joins two alone, else its number."""
    ends = {end for way in ways for end in way}
    if cluster.is_named and len(ends) == 2:
        low, high = (cluster.names[end] for end in sorted(ends))
        up, down = f"{low} > {high}", f"{high} > {low}"
        if duplex:
            return [up, down]
        return [f"{low} - {high}" if len(ways) > 1 else up if ways[0][0] < ways[0][1] else down]
    kind = cluster.channels[channel].type
    name = f"channel {channel}" + (f" ({kind})" if kind else "")
    return [f"{name} up", f"{name} down"] if duplex else [name]


def _paths(cluster: DeviceGraph, source: int) -> dict[int, list[int]]:
    """The fastest path from ``source`` to each device that has one, for a transfer of typical size."""
    found: dict[int, list[int]] = {}
    heap: list[tuple[float, list[int]]] = [(0.0, [source])]
    while heap:
        time, path = heapq.heappop(heap)
        if path[-1] in found:
            continue
        found[path[-1]] = path
        for neighbour in cluster.devices[path[-1]].neighbours:
            channel = cluster.channels[neighbour.comm_channel]
            took = channel.latency_us / 1000 + _TYPICAL_BYTES / (channel.bandwidth / 8 * 1e6)
            heapq.heappush(heap, (time + took, [*path, neighbour.device]))
    return found


def _through_switches(cluster: DeviceGraph, path: list[int], hops: list[Hop]) -> tuple[Hop, ...]:
    """Hops after a switch take only the time by which their link is slower than the links before."""
    made, slowest = [hops[0]], 1 / hops[0].gbytes_per_s
    for device, hop in zip(path[1:], hops[1:], strict=False):
        if cluster.devices[device].type != "switch":
            slowest = 0.0
        left = 1 / hop.gbytes_per_s - slowest
        made.append(hop._replace(gbytes_per_s=1 / left if left > 0 else math.inf))
        slowest = max(slowest, 1 / hop.gbytes_per_s)
    return tuple(made)
