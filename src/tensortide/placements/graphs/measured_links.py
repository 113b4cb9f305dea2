"""The file of a cluster with the figures of a measured link: a new one, or one whose links are replaced."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tensortide.errors import PlacementError, TensortideError
from tensortide.timing.catalogue import Device
from tensortide.timing.clusters import Cluster, load_cluster
from tensortide.timing.clusters.file import Names, is_device_graph
from tensortide.timing.links import Link
from tensortide.timing.own import KEYS

Entry = dict[str, Any]
Pair = tuple[int, int]


def new_cluster(name: str, host: Device, other: Device, measured: Link) -> str:
    """The file of a cluster of two devices, ``measured`` between them: out of ``other``, into it from ``host``. Two
    CPUs are called cpu0 and cpu1, a CPU and a GPU cpu and gpu."""
    names = (host.kind, other.kind) if host.kind != other.kind else (f"{host.kind}0", f"{other.kind}1")
    devices = [{"name": one, "device": _figures(row)} for one, row in zip(names, (host, other), strict=True)]
    return _text({"name": name, "devices": devices, "links": [{"between": [*names], **_speeds(measured)}]})


@dataclass(frozen=True)
class ClusterLinks:
    """Links of a cluster file that are to have measured figures: the file's ``content``, the ``names`` of its devices,
    and the pairs ``wanted``, host first; ``duplex`` by pair in either order."""

    content: Entry
    names: tuple[str, ...]
    wanted: frozenset[Pair]
    duplex: Mapping[Pair, bool]

    def text(self, measured: Link) -> str:
        """The file with the figures of ``measured``. An entry that joins other devices, too, stays as it is, behind one
        of its own for each pair."""
        backwards = frozenset((b, a) for a, b in self.wanted)
        entries: list[Entry] = []
        names = Names(self.names)
        done, taken = set[Pair](), set[Pair]()
        for entry in self.content.get("links", ()):
            pairs = [*names.pairs(entry["between"], "a link")]
            either = {*pairs, *((b, a) for a, b in pairs)}
            reverse = backwards.issuperset(pairs)
            if entry.get("beside"):  # a link beside the one that is measured
                entries.append(entry)
            elif pairs and (reverse or self.wanted.issuperset(pairs)):
                done |= either - taken
                kept = {key: value for key, value in entry.items() if key not in ("channel", "one_way")}
                entries.append(kept | _speeds(measured, reverse=reverse))
            else:
                if either - taken - done - self.wanted - backwards:  # else others stand before all of it
                    entries.append(entry)
                taken |= either - done
        first = [_entry(self.names, pair, measured, self.duplex.get(pair, True)) for pair in sorted(self.wanted - done)]
        return _text({**self.content, "links": [*first, *entries]})


def links_meant(path: Path, between: Sequence[str], *, kind: str) -> ClusterLinks:
    """The links in the file at ``path`` of the devices ``between``: patterns of the hosts, and of the devices that move
    out to them. Without, those that are there of a CPU with a device of ``kind``.

    Raises TensortideError for a file that is no cluster, and PlacementError if no link is meant.
    """
    if is_device_graph(path):
        raise TensortideError(f"{path} is a device graph: measured links go into cluster files (docs/machines.md).")
    cluster = load_cluster(path)
    names = tuple(device.name for device in cluster.devices)
    wanted = _named(names, between) if between else _there(cluster, kind)
    if not wanted:
        raise PlacementError(f"{path} has no link between a cpu and a {kind}: name devices with --between HOST,DEVICE.")
    duplex = {(each.source, each.target): cluster.channels[each.channel].duplex for each in cluster.links}
    return ClusterLinks(json.loads(path.read_bytes()), names, frozenset(wanted), duplex)


def _named(names: Sequence[str], between: Sequence[str]) -> set[Pair]:
    if len(between) != 2:
        raise PlacementError(f"--between {','.join(between)}: give the host and the device, such as cpu,gpu*.")
    return {*Names(names).pairs(between, "--between")}


def _there(cluster: Cluster, kind: str) -> set[Pair]:
    """The links there are of a CPU with a device of ``kind``, host first."""
    kinds = [device.row.kind for device in cluster.devices]
    pairs = {(each.source, each.target) for each in cluster.links}
    return {(a, b) for a, b in pairs if (kinds[a], kinds[b]) == ("cpu", kind) and (kind != "cpu" or a < b)}


def _entry(names: Sequence[str], pair: Pair, measured: Link, duplex: bool) -> Entry:
    shared = {} if duplex else {"duplex": False}
    return {"between": [names[pair[0]], names[pair[1]]], **_speeds(measured), **shared}


def _speeds(measured: Link, *, reverse: bool = False) -> Entry:
    """``link`` of an entry whose first device is the host, or with ``reverse`` whose second is."""
    into = measured.bytes_per_s if measured.in_bytes_per_s is None else measured.in_bytes_per_s
    there, back = (measured.bytes_per_s, into) if reverse else (into, measured.bytes_per_s)
    return {"link": {"bytes_per_s": round(there), "latency_ns": measured.latency_ns, "back_bytes_per_s": round(back)}}


def _figures(row: Device) -> Entry:
    """The known figures of a device, as its object in the file."""
    values = {key: getattr(row, key, None) for key in KEYS}
    known = {name: value for name, value in values.items() if value not in (None, "", (), False)}
    built: Entry = msgspec.to_builtins(known)
    return built


def _text(content: Entry) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
