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

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from tensortide.errors import TensortideError
from tensortide.placements.graphs.machine import ClusterDevice, Connection, DeviceCluster
from tensortide.timing.catalogue import Device, device
from tensortide.timing.machine import Link, link
from tensortide.units import parse_bytes

_WILD = frozenset("*?[")
"""Characters that make a name a pattern."""


class _FileDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    device: str | dict[str, Any]
    name: str = ""
    count: int = 1
    memory: str | int | None = None


class _FileLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    between: tuple[str, ...]
    link: str
    back: str | None = None
    duplex: bool = True


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    devices: tuple[_FileDevice, ...]
    links: tuple[_FileLink, ...] = ()
    name: str = ""


def load_cluster(path: str | os.PathLike[str], check: Callable[[int], None] | None = None) -> DeviceCluster:
    """Read a cluster file. Raises TensortideError, which names the file, the entry and the fault.

    ``check`` is called with the number of devices before their links, of which there may be millions, are made.
    """
    path = Path(path)
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        form = "the cluster is a JSON file of devices and links: docs/place_graphs.md has its form"
        raise TensortideError(f"{path}: {error.strerror}; {form}") from None
    except msgspec.MsgspecError as error:
        raise TensortideError(f"{path}: {error}; docs/place_graphs.md has the form of the file") from None
    if check is not None:
        check(sum(entry.count for entry in file.devices))
    try:
        return _cluster(file, file.name or path.stem)
    except TensortideError as error:
        raise TensortideError(f"{path}: {error}") from None


def _cluster(file: _File, name: str) -> DeviceCluster:
    devices: list[ClusterDevice] = []
    rows: dict[str, Device] = {}  # the catalogue is searched once for each name
    for entry in file.devices:
        if entry.count < 1:
            raise TensortideError(f"an entry of devices has the count {entry.count}")
        text = entry.device if isinstance(entry.device, str) else ""
        row = rows.get(text) or _row(entry.device)
        if text:
            rows[text] = row
        memory = row.usable_bytes if entry.memory is None else parse_bytes(str(entry.memory))
        base = entry.name or row.kind
        single = entry.count == 1 and bool(entry.name)
        first = sum(each.name.startswith(base) for each in devices) if not entry.name else 0
        devices += [ClusterDevice(base if single else f"{base}{first + i}", row, memory) for i in range(entry.count)]
    names = Names([each.name for each in devices])
    connections: dict[tuple[int, int], Connection] = {}
    read: dict[tuple[str, str | None], Link] = {}
    for number, each in enumerate(file.links):
        made = read.get((each.link, each.back))
        if made is None:
            made = read[each.link, each.back] = _link(each)
        for a, b in names.pairs(each.between, f"link {number}"):
            pair = (a, b) if a < b else (b, a)
            if pair not in connections:
                connections[pair] = Connection(a, b, made, each.duplex)
    return DeviceCluster(name, tuple(devices), tuple(connections.values()))


def _row(given: str | dict[str, Any]) -> Device:
    if isinstance(given, str):
        return device(given)
    try:
        return msgspec.convert(given, Device)
    except msgspec.ValidationError as error:
        raise TensortideError(f"a device of your own: {error}") from None


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
