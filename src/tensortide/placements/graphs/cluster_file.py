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

import os
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from tensortide.errors import TensortideError
from tensortide.placements.graphs.machine import ClusterDevice, Connection, DeviceCluster
from tensortide.timing.catalogue import Device, device
from tensortide.timing.machine import link
from tensortide.units import parse_bytes


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


def load_cluster(path: str | os.PathLike[str]) -> DeviceCluster:
    """Read a cluster file. Raises TensortideError, which names the file, the entry and the fault."""
    path = Path(path)
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        form = "the cluster is a JSON file of devices and links: docs/place_graphs.md has its form"
        raise TensortideError(f"{path}: {error.strerror}; {form}") from None
    except msgspec.MsgspecError as error:
        raise TensortideError(f"{path}: {error}; docs/place_graphs.md has the form of the file") from None
    try:
        return _cluster(file, file.name or path.stem)
    except TensortideError as error:
        raise TensortideError(f"{path}: {error}") from None


def _cluster(file: _File, name: str) -> DeviceCluster:
    devices: list[ClusterDevice] = []
    for entry in file.devices:
        if entry.count < 1:
            raise TensortideError(f"an entry of devices has the count {entry.count}")
        row = _row(entry.device)
        memory = row.usable_bytes if entry.memory is None else parse_bytes(str(entry.memory))
        base = entry.name or row.kind
        single = entry.count == 1 and bool(entry.name)
        first = sum(each.name.startswith(base) for each in devices) if not entry.name else 0
        devices += [ClusterDevice(base if single else f"{base}{first + i}", row, memory) for i in range(entry.count)]
    names = [each.name for each in devices]
    connections: dict[tuple[int, int], Connection] = {}
    for number, each in enumerate(file.links):
        made = link(each.link)
        if each.back is not None:
            made = replace(made, in_bytes_per_s=link(each.back).bytes_per_s)
        for a, b in pairs_of(names, each.between, f"link {number}"):
            connections.setdefault((min(a, b), max(a, b)), Connection(a, b, made, each.duplex))
    return DeviceCluster(name, tuple(devices), tuple(connections.values()))


def _row(given: str | dict[str, Any]) -> Device:
    if isinstance(given, str):
        return device(given)
    try:
        return msgspec.convert(given, Device)
    except msgspec.ValidationError as error:
        raise TensortideError(f"a device of your own: {error}") from None


def pairs_of(names: Sequence[str], between: Sequence[str], what: str) -> list[tuple[int, int]]:
    """The pairs of numbers of ``names`` that ``between`` joins; ``what`` names it in the error for a pattern that
    matches nothing."""
    matched = []
    for pattern in between:
        found = [i for i, name in enumerate(names) if fnmatchcase(name, pattern)]
        if not found:
            raise TensortideError(f"{what} names {pattern!r}; the devices are {', '.join(names)}")
        matched.append(found)
    if len(matched) == 2:
        return [(a, b) for a in matched[0] for b in matched[1] if a != b]
    every = sorted({i for found in matched for i in found})
    return [(a, b) for a in every for b in every if a < b]
