"""Cluster files for captured steps: devices of the catalogue by name, and the links between them.

    {"name": "a workstation",
     "devices": [{"name": "cpu", "device": {"name": "24 cores", "kind": "cpu", "fp32_tflops": 1.5,
                                            "memory_gbytes_per_s": 90}, "memory": "64GB"},
                 {"name": "gpu", "count": 4, "device": "A100-SXM-80GB"}],
     "links": [{"between": ["gpu*"], "link": "300GB/s,2us"}, {"between": ["cpu", "gpu*"], "link": "pcie4"}]}

``between``: names or patterns. A single one links all pairs of devices that it matches; two link each device of the
first with each of the second; more link all pairs. A pair takes the first entry that covers it. ``back``: the speed in
the other direction, if it differs.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from tensortide.errors import TensortideError
from tensortide.file_faults import reader
from tensortide.placements.device_graphs import read_device_graph
from tensortide.placements.graphs.device_graphs import as_cluster
from tensortide.placements.graphs.machine import ClusterDevice, Connection, DeviceCluster
from tensortide.placements.json_file import read_json
from tensortide.timing.catalogue import Device, device
from tensortide.timing.machine import Link, link
from tensortide.units import parse_bytes

_WILD = frozenset("*?[")
"""Characters that make a name a pattern."""
_WHAT = "a cluster of devices and links (docs/place_graphs.md)"
MOST_DEVICES = 4096
"""Devices that a cluster may have: the links between twice as many would not fit the memory of a workstation."""


class _FileDevice(msgspec.Struct, frozen=True):
    device: str | Device
    name: str = ""
    count: int = 1
    memory: str | int | None = None


class _FileLink(msgspec.Struct, frozen=True):
    between: tuple[str, ...]
    link: str
    back: str | None = None
    duplex: bool = True


class _File(msgspec.Struct, frozen=True):
    devices: tuple[_FileDevice, ...]
    links: tuple[_FileLink, ...] = ()
    name: str = ""


@reader
def load_cluster(path: str | os.PathLike[str], check: Callable[[int], None] | None = None) -> DeviceCluster:
    """Read a cluster file, or a device graph as a cluster (``device_graphs.as_cluster``).

    ``check`` is called with the number of devices before their links, of which there may be millions, are made. Raises
    TensortideError, which names the file, the entry and the fault.
    """
    path = Path(path)
    if is_device_graph(path):
        graph = read_device_graph(path)
        if check is not None:
            check(len(graph.devices))
        with _named(f"{path} is a device graph"):
            return as_cluster(graph)
    file = read_json(path, _File, _WHAT, closed=True)
    if check is not None:
        check(sum(entry.count for entry in file.devices))
    with _named(str(path)):
        return _cluster(file, file.name or path.stem)


def is_device_graph(path: Path) -> bool:
    """Tell a device graph from a cluster file. Raises TensortideError if the file is neither."""
    content = read_json(path, dict[str, msgspec.Raw], _WHAT)
    return "comm_channels" in content


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Make an error one line that begins with ``place``."""
    try:
        yield
    except TensortideError as error:
        raise TensortideError(f"{place}: {' '.join(str(error).split())}") from None


def _cluster(file: _File, name: str) -> DeviceCluster:
    devices: list[ClusterDevice] = []
    row_of = functools.cache(device)  # the catalogue is searched once for each name
    for number, entry in enumerate(file.devices):
        with _named(f"devices[{number}]"):
            devices += _entry(entry, devices, row_of)
    names = Names([each.name for each in devices])
    connections: dict[tuple[int, int], Connection] = {}
    read: dict[tuple[str, str | None], Link] = {}
    for number, each in enumerate(file.links):
        with _named(f"links[{number}]"):
            made = read.get((each.link, each.back))
            if made is None:
                made = read[each.link, each.back] = _link(each)
            pairs = names.pairs(each.between, "between")
        for a, b in pairs:
            pair = (a, b) if a < b else (b, a)
            if pair not in connections:
                connections[pair] = Connection(a, b, made, each.duplex)
    return DeviceCluster(name, tuple(devices), tuple(connections.values()))


def _entry(
    entry: _FileDevice, before: Sequence[ClusterDevice], row_of: Callable[[str], Device]
) -> Iterator[ClusterDevice]:
    """The devices of one entry, behind those ``before``. ``row_of``: the device of a name in the catalogue."""
    if not 0 < entry.count <= MOST_DEVICES - len(before):
        raise TensortideError(f"the count {entry.count}: a cluster has at least one device, and {MOST_DEVICES} at most")
    row = row_of(entry.device) if isinstance(entry.device, str) else entry.device
    memory = row.usable_bytes if entry.memory is None else parse_bytes(entry.memory)
    if memory is not None and memory >= 2**63:
        raise TensortideError(f"the memory {entry.memory}: a device has less than 2**63 bytes")
    base = entry.name or row.kind
    if entry.name and entry.count == 1:
        return iter([ClusterDevice(base, row, memory)])
    first = 0 if entry.name else sum(each.name.startswith(base) for each in before)
    return (ClusterDevice(f"{base}{first + i}", row, memory) for i in range(entry.count))


def _link(given: _FileLink) -> Link:
    made = link(given.link)
    return made if given.back is None else replace(made, in_bytes_per_s=link(given.back).bytes_per_s)


class Names:
    """Names of devices, found by patterns; each pattern is looked up once."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._found: dict[str, list[int]] = {}
        for number, name in enumerate(names):
            if not _WILD.intersection(name):  # as a pattern it matches itself alone
                self._found.setdefault(name, []).append(number)

    def matching(self, pattern: str) -> list[int]:
        """The numbers of the names that ``pattern`` matches, ascending."""
        found = self._found.get(pattern)
        if found is None:
            found = [i for i, name in enumerate(self._names) if fnmatchcase(name, pattern)]
            self._found[pattern] = found
        return found

    def pairs(self, between: Sequence[str], what: str) -> Iterable[tuple[int, int]]:
        """The pairs of numbers that ``between`` joins. Raises TensortideError, with ``what`` it is, for a pattern that
        matches nothing."""
        matched = [self.matching(pattern) for pattern in between]
        for pattern, found in zip(between, matched, strict=True):
            if not found:
                raise TensortideError(f"{what} names {pattern!r}; the devices are {', '.join(self._names)}")
        if len(matched) == 2:
            return ((a, b) for a in matched[0] for b in matched[1] if a != b)
        return itertools.combinations(sorted({i for found in matched for i in found}), 2)
