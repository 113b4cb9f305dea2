"""A device graph in JSON: devices with their neighbours, and channels that carry what moves between them."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from tensortide.errors import TensortideError
from tensortide.file_faults import reader
from tensortide.placements.json_file import read_json

_MOST_GB = 1e9
"""Memory of a device, at most: bytes stay below 2**63."""


class Channel(msgspec.Struct, frozen=True, kw_only=True):
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


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device: clock in MHz (of a CPU times its cores), fp32 peak in 1e9 FLOP/s, memory in 1e9 bytes, bandwidth in
    GB/s. ``id``: its name, if it is a string. ``peaks``: peaks of other dtypes. A ``switch`` runs nothing, and
    transfers pass through it."""

    model: str
    clock: float = 0.0
    peak_gflops: float = 0.0
    memory: float = 0.0
    mem_bandwidth: float = 68.0
    type: Literal["cpu", "gpu", "switch"] = "gpu"
    id: int | str | None = None
    neighbours: tuple[Neighbour, ...] = ()
    peaks: dict[str, float] = {}

    def peak(self, dtype: str) -> float:
        """Peak in 1e9 FLOP/s of ``dtype``. Raises TensortideError if the device graph does not say it."""
        if dtype == "float32":
            return self.peak_gflops
        if dtype not in self.peaks:
            known = ", ".join(["float32", *self.peaks])
            raise TensortideError(f"device {self.model!r} has no peak of {dtype}: its 'peaks' know {known}.")
        return self.peaks[dtype]


class _File(msgspec.Struct):
    comm_channels: tuple[Channel, ...]
    devices: tuple[Device, ...]


class DeviceGraph(msgspec.Struct, frozen=True):
    """Devices and channels. Device 0 is the host's CPU by convention."""

    name: str
    channels: tuple[Channel, ...]
    devices: tuple[Device, ...]

    def link(self, source: int, target: int) -> int | None:
        """The channel of transfers from ``source`` to ``target``; None if no link leads there."""
        for neighbour in self.devices[source].neighbours:
            if neighbour.device == target:
                return neighbour.comm_channel
        return None

    @property
    def placeable(self) -> tuple[int, ...]:
        """Devices that run layers: all but switches."""
        return tuple(i for i, device in enumerate(self.devices) if device.type != "switch")

    @property
    def is_named(self) -> bool:
        """True if devices have names, as those of cluster files do."""
        return any(isinstance(device.id, str) for device in self.devices)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each device, or its number if it has none."""
        return tuple(d.id if isinstance(d.id, str) else str(number) for number, d in enumerate(self.devices))

    @property
    def keys(self) -> Sequence[int | str]:
        """The name of each device, or its number where they have none."""
        return self.names if self.is_named else range(len(self.devices))

    def device_number(self, text: str) -> int:
        """The number of the device with the name ``text``, or with this number. Raises TensortideError for neither."""
        if text in self.names:
            return self.names.index(text)
        if text.isdecimal() and int(text) < len(self.devices):
            return int(text)
        raise TensortideError(f"{self.name}: there is no device {text!r}; its devices are {', '.join(self.names)}.")

    def faults(self) -> tuple[str, ...]:
        """Describe what makes the device graph wrong; nothing for a sound one."""
        return (*self._senseless(), *self._doubtful())

    def one_way(self) -> tuple[tuple[int, int], ...]:
        """Links without one back: asymmetric ones, which may be meant."""
        pairs = {(i, n.device) for i, device in enumerate(self.devices) for n in device.neighbours}
        return tuple(sorted((i, j) for i, j in pairs if (j, i) not in pairs and i != j))

    def missing(self) -> tuple[tuple[int, int], ...]:
        """Pairs of devices that run layers, of which the first has no link to the second."""
        return tuple((i, j) for i in self.placeable for j in self.placeable if i != j and self.link(i, j) is None)

    def _senseless(self) -> Iterator[str]:
        """Describe numbers that mean nothing."""
        for number, channel in enumerate(self.channels):
            if not (0 < channel.bandwidth < math.inf and 0 <= channel.latency_us < math.inf):
                yield f"channel {number}: a bandwidth is above zero, a latency not below, and both are finite"
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
                if not 0 <= neighbour.comm_channel < len(self.channels):
                    known = f"there are {len(self.channels)} channels, from 0"
                    yield f"device {number} names channel {neighbour.comm_channel}: {known}"

        for name, times in Counter(self.names).items():
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
def read_device_graph(path: str | os.PathLike[str], *, faulty: bool = False) -> DeviceGraph:
    """Read a device graph, or a cluster file of captured steps as one (``graphs.device_graphs.as_device_graph``).

    Args:
        path: a JSON file with ``comm_channels`` and ``devices``, or with ``devices`` and ``links``.
        faulty: accept links that cannot be meant, as the originals did: to the device itself, twice to another, or none
            at all. ``DeviceGraph.faults`` names them, and the first of two counts.

    Raises:
        TensortideError: the file cannot be read, is no device graph, or has faults: a neighbour or channel that does
            not exist, a device that is its own neighbour or nobody's, a rate that is not above zero.
    """
    if _is_cluster_file(path):
        return _from_cluster_file(path)
    file = read_json(path, _File, "a device graph", closed=True)
    if not any(device.type != "switch" for device in file.devices):
        raise TensortideError(f"{path}: the device graph has no device that runs layers.")
    cluster = DeviceGraph(Path(path).stem, file.comm_channels, file.devices)
    if found := (*cluster._senseless(), *(() if faulty else cluster._doubtful())):
        one_way = [f"{i} to {j}" for i, j in cluster.one_way()]
        hint = f" Links without one back: {', '.join(one_way)}." if one_way else ""
        raise TensortideError(f"{path}: {'; '.join(found)}.{hint} Correct the device graph.")
    return cluster


def _is_cluster_file(path: str | os.PathLike[str]) -> bool:
    """Tell a cluster file: it has no channels, and links or entries that name a ``device``."""
    content = read_json(path, dict[str, Any], "a device graph")
    devices = content.get("devices")
    entries = devices if isinstance(devices, list) else []
    named = any(isinstance(entry, dict) and "device" in entry for entry in entries)
    return "comm_channels" not in content and ("links" in content or named)


def _from_cluster_file(path: str | os.PathLike[str]) -> DeviceGraph:
    from tensortide.placements.graphs.cluster_file import load_cluster  # which reads device graphs
    from tensortide.placements.graphs.device_graphs import as_device_graph

    cluster = load_cluster(path)
    try:
        return as_device_graph(cluster)
    except TensortideError as error:
        raise TensortideError(f"{path} is a cluster file of captured steps: {error}") from None
