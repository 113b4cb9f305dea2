"""Device graphs, Exprimo's files of clusters, read as a Cluster: devices with their neighbours, and channels."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Literal

import msgspec

from tensortide.dtypes import DTYPES, tagged
from tensortide.errors import TensortideError
from tensortide.file_faults import reader
from tensortide.timing.catalogue import Device
from tensortide.timing.clusters.cluster import Channel, Cluster, ClusterDevice, ClusterLink
from tensortide.timing.json_file import read_json
from tensortide.timing.links import LONGEST_LATENCY_NS, SLOWEST, Link

_MOST_GB = 1e9
"""Memory of a device, at most: bytes stay below 2**63."""
_BANDWIDTH = 68.0
"""GB/s of a device whose file does not say it."""
RATES = {tag: DTYPES[name].rate for tag, name in tagged("nets").items()}
"""Rates of the catalogue by the name of their dtype in ``peaks``; that of float32 is ``peak_gflops``."""


class GraphChannel(msgspec.Struct, frozen=True, kw_only=True):
    """A bus of ``bandwidth`` Gbit/s that every pair of devices which names it shares, first come, first served.

    In ``accurate`` mode it has a latency, and with ``duplex`` a queue for each direction (from lower to higher device
    numbers, and back).
    """

    bandwidth: float
    type: str = ""
    latency_us: float = 0.0
    duplex: bool = False


class Neighbour(msgspec.Struct, frozen=True):
    """A device that can be sent to, and the channel that transfers to it take."""

    device: int
    comm_channel: int


class GraphDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device: clock in MHz (of a CPU times its cores), fp32 peak in 1e9 FLOP/s, memory in 1e9 bytes, bandwidth in
    GB/s. ``id``: its name, if it is a string. ``peaks``: peaks of other dtypes. A ``switch`` runs nothing, and
    transfers pass through it."""

    model: str
    clock: float = 0.0
    peak_gflops: float = 0.0
    memory: float = 0.0
    mem_bandwidth: float = _BANDWIDTH
    type: Literal["cpu", "gpu", "switch"] = "gpu"
    id: int | str | None = None
    neighbours: tuple[Neighbour, ...] = ()
    peaks: dict[str, float] = {}


class DeviceGraph(msgspec.Struct, frozen=True):
    """The content of a file."""

    comm_channels: tuple[GraphChannel, ...]
    devices: tuple[GraphDevice, ...]

    def faults(self, *, faulty: bool) -> tuple[str, ...]:
        """Describe what makes the device graph wrong; links that cannot be meant do not if it may be ``faulty``."""
        return (*self._senseless(), *(() if faulty else self._doubtful()))

    def one_way(self) -> tuple[tuple[int, int], ...]:
        """Links without one back: asymmetric ones, which may be meant."""
        pairs = {(i, n.device) for i, device in enumerate(self.devices) for n in device.neighbours}
        return tuple(sorted((i, j) for i, j in pairs if (j, i) not in pairs and i != j))

    def _senseless(self) -> Iterator[str]:
        """Describe numbers that mean nothing."""
        for number, channel in enumerate(self.comm_channels):
            slowest, longest = SLOWEST * 8 / 1e9, LONGEST_LATENCY_NS / 1000
            if not (slowest <= channel.bandwidth <= 1e10 and 0 <= channel.latency_us <= longest):
                yield f"channel {number}: a bandwidth is {slowest:g} to 1e+10 Gbit/s, a latency 0 to {longest:g} us"
        for number, device in enumerate(self.devices):
            rates = (device.clock, device.peak_gflops, device.mem_bandwidth, *device.peaks.values())
            if device.type != "switch" and not all(0 < rate < math.inf for rate in rates):
                yield f"device {number}: clock, peak_gflops and mem_bandwidth are above zero and finite"
            if not 0 <= device.memory <= _MOST_GB:
                yield f"device {number}: memory is {device.memory}: 0 GB to {_MOST_GB:g} GB"
            for neighbour in device.neighbours:
                if not 0 <= neighbour.device < len(self.devices):
                    known = f"devices are 0 to {len(self.devices) - 1}"
                    yield f"device {number} lists neighbour {neighbour.device}: {known}"
                if not 0 <= neighbour.comm_channel < len(self.comm_channels):
                    known = f"there are {len(self.comm_channels)} channels, from 0"
                    yield f"device {number} names channel {neighbour.comm_channel}: {known}"

        names = [one.id if isinstance(one.id, str) else str(number) for number, one in enumerate(self.devices)]
        for name, times in Counter(names).items():
            if times > 1:
                yield f"{times} devices have the name {name!r}"

    def _doubtful(self) -> Iterator[str]:
        """Describe links that cannot be meant."""
        for number, device in enumerate(self.devices):
            for other, count in Counter(neighbour.device for neighbour in device.neighbours).items():
                if other == number:
                    yield f"device {number} lists itself as its neighbour"
                elif count > 1:
                    yield f"device {number} lists neighbour {other} {count} times"
            linked = bool(device.neighbours) or any(n.device == number for d in self.devices for n in d.neighbours)
            if len(self.devices) > 1 and not linked:
                yield f"device {number} is connected to no other"


@reader
def read_device_graph(path: str | os.PathLike[str], *, faulty: bool = False) -> Cluster:
    """Read a device graph.

    Args:
        path: a JSON file with ``comm_channels`` and ``devices``.
        faulty: accept links that cannot be meant, as the originals did: to the device itself, twice to another, or none
            at all. The first of two counts.

    Raises:
        TensortideError: the file cannot be read, is no device graph, or has faults: a neighbour or channel that does
            not exist, a device that is its own neighbour or nobody's, a rate that is not above zero.
    """
    graph = read_json(path, DeviceGraph, "a device graph", closed=True)
    if found := graph.faults(faulty=faulty):
        one_way = [f"{i} to {j}" for i, j in graph.one_way()]
        hint = f" Links without one back: {', '.join(one_way)}." if one_way else ""
        raise TensortideError(f"{path}: {'; '.join(found)}.{hint} Correct the device graph.")
    try:
        return as_cluster(graph, Path(path).stem)
    except TensortideError as error:
        raise TensortideError(f"{path}: {' '.join(str(error).split())}.") from None


def as_cluster(graph: DeviceGraph, name: str) -> Cluster:
    """The Cluster of ``graph``: devices by their names, or ``cpu0``, ``gpu1``, ... by their numbers. Raises
    TensortideError for what a Cluster cannot have: a peak of an unknown dtype, and a figure that no device has."""
    ways = {(i, n.device): n.comm_channel for i, one in enumerate(graph.devices) for n in reversed(one.neighbours)}
    pairs = sorted({(min(way), max(way)) for way in ways if way[0] != way[1]})
    every = ((way, ways[way]) for a, b in pairs for way in ((a, b), (b, a)) if way in ways)
    links = tuple(ClusterLink(*way, channel) for way, channel in every)
    devices = tuple(_device(number, one) for number, one in enumerate(graph.devices))
    channels = tuple(_channel(number, one) for number, one in enumerate(graph.comm_channels))
    return Cluster(name, devices, links, channels, not any(isinstance(one.id, str) for one in graph.devices))


def _device(number: int, given: GraphDevice) -> ClusterDevice:
    switch = given.type == "switch"
    if unknown := sorted(given.peaks.keys() - RATES.keys()):
        raise TensortideError(f"device {number} has a peak of {unknown[0]!r}; known are {', '.join(RATES)}")
    peaks = {"float32": given.peak_gflops, **given.peaks}
    rates = {RATES[dtype]: float(Fraction(str(gflops)) / 1000) for dtype, gflops in peaks.items() if not switch}
    row = Device(
        name=given.model,
        kind="cpu" if given.type == "cpu" else "gpu",
        memory_gbytes=given.memory or None,
        memory_gbytes_per_s=_BANDWIDTH if switch else given.mem_bandwidth,
        boost_mhz=None if switch else given.clock or None,
    )
    name = given.id if isinstance(given.id, str) else f"{given.type}{number}"
    row = msgspec.structs.replace(row, **rates)
    return ClusterDevice(name, row, int(given.memory * 1e9), is_switch=switch)


def _channel(number: int, given: GraphChannel) -> Channel:
    rate = Fraction(given.bandwidth) * 10**9 / 8
    about = f"{float(rate) / 1e9:g} GB/s + {given.latency_us:g} us"
    link = Link(given.type or f"channel {number}", rate, round(given.latency_us * 1000), about)
    return Channel(link, given.duplex)
