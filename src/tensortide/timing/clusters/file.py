"""The file of a Cluster: devices as ``--machine`` names them, and the links between them.

    {"name": "a workstation",
     "devices": [{"name": "cpu", "memory_bytes": 64e9, "device": {"name": "24 cores", "kind": "cpu", "fp32_tflops": 1.5,
                                                                  "memory_gbytes_per_s": 90}},
                 {"name": "gpu", "count": 4, "device": "h100"}],
     "links": [{"between": ["gpu*"], "link": {"bytes_per_s": 300e9, "latency_ns": 2000}},
               {"between": ["cpu", "gpu*"], "link": "pcie4"}]}

``docs/machines.md`` has every key.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import msgspec

from tensortide.errors import TensortideError
from tensortide.file_faults import reader
from tensortide.timing.catalogue import Device, named
from tensortide.timing.clusters.cluster import Channel, Cluster, ClusterDevice, ClusterLink, Tier
from tensortide.timing.clusters.device_graphs import read_device_graph
from tensortide.timing.json_file import read_json
from tensortide.timing.links import LONGEST_LATENCY_NS, SLOWEST, Link
from tensortide.timing.links import link as link_called
from tensortide.timing.own import KEYS, described

_WILD = frozenset("*?[")
"""Characters that make a name a pattern."""
_WHAT = "a cluster of devices and links (docs/machines.md)"
MOST_DEVICES = 4096
"""Devices that a cluster may have: the links between twice as many would not fit the memory of a workstation."""
SWITCH = Device(name="switch", memory_gbytes_per_s=1.0)
"""The row of a switch, which nothing reads."""
RowOf: TypeAlias = Callable[[str], Device]
"""The device that a person means by a name."""


class _Figures(msgspec.Struct, frozen=True):
    bytes_per_s: float
    latency_ns: float
    back_bytes_per_s: float | None = None
    name: str = ""


class _FileTier(msgspec.Struct, frozen=True):
    name: str
    link: str | _Figures | None = None
    channel: str | None = None
    capacity_bytes: float | None = None
    over: str = ""


class _FileDevice(msgspec.Struct, frozen=True):
    device: str | dict[str, object]
    name: str = ""
    count: int = 1
    memory_bytes: float | None = None
    tiers: tuple[_FileTier, ...] = ()


class _FileChannel(msgspec.Struct, frozen=True):
    name: str
    link: str | _Figures
    duplex: bool = True


class _FileLink(msgspec.Struct, frozen=True):
    between: tuple[str, ...]
    link: str | _Figures | None = None
    channel: str | None = None
    duplex: bool | None = None
    one_way: bool = False
    beside: bool = False


class _File(msgspec.Struct, frozen=True):
    devices: tuple[_FileDevice, ...]
    links: tuple[_FileLink, ...] = ()
    channels: tuple[_FileChannel, ...] = ()
    name: str = ""


@reader
def load_cluster(
    path: str | os.PathLike[str], check: Callable[[int], None] | None = None, row_of: RowOf = named
) -> Cluster:
    """Read a cluster file, or a device graph of Exprimo as a Cluster (``read_device_graph``).

    Args:
        path: the JSON file.
        check: called with the number of devices before their links, of which there may be millions, are made.
        row_of: the device of a name; default: what a person means by it in the catalogue.

    Raises:
        TensortideError: names the file, the entry and the fault.
    """
    path = Path(path)
    if is_device_graph(path):
        cluster = read_device_graph(path)
        if check is not None:
            check(len(cluster))
        return cluster
    if is_one_device(path):
        raise TensortideError(
            f"{path} has the figures of one device: name it as 'device' in a cluster file (docs/machines.md)"
        )
    file = read_json(path, _File, _WHAT, closed=True)
    if check is not None:
        check(sum(entry.count for entry in file.devices))
    with within(str(path)):
        return _cluster(file, file.name or path.stem, lambda name: row_of(_beside(path, name)))


def is_device_graph(path: Path) -> bool:
    """Tell a device graph from a cluster file. Raises TensortideError if the file is neither."""
    return "comm_channels" in read_json(path, dict[str, msgspec.Raw], _WHAT)


def is_one_device(path: Path) -> bool:
    """Tell the figures of a device from a cluster file."""
    given = read_json(path, dict[str, msgspec.Raw], _WHAT)
    return "devices" not in given and not given.keys().isdisjoint({*KEYS} - {"name"})


def _beside(path: Path, name: str) -> str:
    """The name of a device; a file is beside the cluster file at ``path``."""
    return str(path.parent / name) if name.lower().endswith(".json") else name


@contextmanager
def within(place: str) -> Iterator[None]:
    """Make an error one line that begins with ``place``."""
    try:
        yield
    except TensortideError as error:
        raise TensortideError(f"{place}: {' '.join(str(error).split())}") from None


def _cluster(file: _File, name: str, row_of: RowOf) -> Cluster:
    channels, numbers = list[Channel](), dict[str, int]()
    for number, given in enumerate(file.channels):
        with within(f"channels[{number}]"):
            channels.append(Channel(_link(given.link), given.duplex))
            if not given.name or numbers.setdefault(given.name, number) != number:
                raise TensortideError(f"the name is {given.name!r}: give each channel one of its own")
    devices, called = list[ClusterDevice](), dict[str, int]()
    found = functools.cache(row_of)  # the catalogue is searched once for each name
    for number, entry in enumerate(file.devices):
        with within(f"devices[{number}]"):
            tiers: list[Tier] = []
            for place, behind in enumerate(entry.tiers):
                with within(f"tiers[{place}]"):
                    tiers.append(_tier(behind, tiers, numbers, channels))
            for each in _entry(entry, devices, found, tuple(tiers)):
                devices.append(each)
                if (other := called.setdefault(each.name, number)) != number:
                    raise TensortideError(f"devices[{other}] has the name {each.name!r}, too: give each its own")
    links = _links(file, Names([*called]), numbers, channels)
    used = {each.channel for each in links} | {tier.channel for device in devices for tier in device.tiers}
    for channel, number in numbers.items():
        if number not in used:
            raise TensortideError(f"channels[{number}]: no link or tier takes {channel!r}: leave it out")
    with within("devices"):
        return Cluster(name, tuple(devices), tuple(links), tuple(channels))


def _links(file: _File, names: Names, numbers: dict[str, int], channels: list[Channel]) -> list[ClusterLink]:
    """The links; those that have a channel of their own add it to ``channels``."""
    links, taken = list[ClusterLink](), set[tuple[int, int]]()
    made = functools.cache(_both)
    for number, each in enumerate(file.links):
        before = len(links)
        with within(f"links[{number}]"):
            carrier = _carrier(each, numbers, made)
            pairs = list(names.pairs(each.between, "between"))
            if not pairs:
                raise TensortideError(f"between {', '.join(each.between) or 'nothing'} lie no two devices")
            for a, b in pairs:
                ways = [(a, b)] if each.one_way else [(a, b), (b, a)]
                if not each.beside:
                    ways = [way for way in ways if way not in taken]
                    taken.update(ways)
                if not ways:
                    continue
                links += (ClusterLink(*way, carrier if isinstance(carrier, int) else len(channels)) for way in ways)
                if not isinstance(carrier, int):
                    channels.append(carrier[a > b])
            if len(links) == before:
                raise TensortideError("entries before it join all its pairs: move it up, or make it 'beside'")
    return links


def _entry(
    entry: _FileDevice, before: Sequence[ClusterDevice], row_of: RowOf, tiers: tuple[Tier, ...]
) -> Iterator[ClusterDevice]:
    """The devices of one entry, behind those ``before``."""
    if not 0 < entry.count <= MOST_DEVICES - len(before):
        raise TensortideError(f"the count {entry.count}: a cluster has at least one device, and {MOST_DEVICES} at most")
    switch = entry.device == SWITCH.name
    if switch and (entry.memory_bytes is not None or entry.tiers):
        raise TensortideError("a switch keeps nothing: leave out memory_bytes and tiers")
    row = SWITCH if switch else row_of(entry.device) if isinstance(entry.device, str) else described(entry.device)
    memory = row.usable_bytes if entry.memory_bytes is None else _bytes("memory_bytes", entry.memory_bytes, least=1)
    base = entry.name or ("switch" if switch else row.kind)
    if entry.name and entry.count == 1:
        return iter([ClusterDevice(base, row, memory, tiers, switch)])
    first = 0 if entry.name else sum(each.name.startswith(base) for each in before)
    return (ClusterDevice(f"{base}{first + i}", row, memory, tiers, switch) for i in range(entry.count))


def _tier(given: _FileTier, before: Sequence[Tier], numbers: dict[str, int], channels: Sequence[Channel]) -> Tier:
    names = [each.link.name for each in before]
    if not given.name:
        raise TensortideError("a tier needs a name, as host or ssd")
    if given.name in names:
        raise TensortideError(f"two tiers have the name {given.name!r}: give each its own")
    if given.over and given.over not in names:
        raise TensortideError(f"over names {given.over!r}; the tiers before it are {', '.join(names) or 'none'}")
    capacity = None if given.capacity_bytes is None else _bytes("capacity_bytes", given.capacity_bytes)
    if given.link is not None and given.channel is None:
        link, channel = _link(given.link), None
    elif given.channel is not None and given.link is None and not given.over:
        channel = _numbered(given.channel, numbers)
        link = channels[channel].link
    else:
        raise TensortideError("it takes either 'link', or 'channel', which it shares with links, and then no 'over'")
    return Tier(replace(link, name=given.name, capacity_bytes=capacity), given.over, channel)


def _bytes(key: str, value: float, least: int = 0) -> int:
    if not least <= value < 2**63:
        raise TensortideError(f"{key} is {value:g}: it is {least} or more, and less than 2**63")
    return int(value)


def _carrier(
    each: _FileLink, numbers: dict[str, int], made: Callable[[str | _Figures, bool], tuple[Channel, Channel]]
) -> int | tuple[Channel, Channel]:
    """The number of the channel that the links of an entry share, or the one that each has of its own: to a higher
    number of a device, and to a lower one."""
    if each.one_way and isinstance(each.link, _Figures) and each.link.back_bytes_per_s is not None:
        raise TensortideError("no bytes go back over a link that is one_way: leave out back_bytes_per_s")
    if each.one_way and each.duplex is not None:
        raise TensortideError("a link that is one_way has one direction: leave out duplex")
    if each.link is not None and each.channel is None:
        return made(each.link, each.duplex is not False)
    if each.channel is None or each.link is not None:
        raise TensortideError("it takes either 'link', one for each pair, or 'channel', one that all pairs share")
    if each.duplex is not None:
        raise TensortideError(f"duplex goes with 'link'; that of {each.channel!r} stands in 'channels'")
    return _numbered(each.channel, numbers)


def _numbered(channel: str, numbers: dict[str, int]) -> int:
    if channel not in numbers:
        known = ", ".join(numbers) or "none: list it in 'channels'"
        raise TensortideError(f"channel is {channel!r}; the channels are {known}")
    return numbers[channel]


def _both(given: str | _Figures, duplex: bool) -> tuple[Channel, Channel]:
    found = _link(given)
    back, turned = found.in_bytes_per_s, found
    if back is not None:
        turned = replace(found, bytes_per_s=back, in_bytes_per_s=found.bytes_per_s)
    return Channel(found, duplex), Channel(turned, duplex)


def _link(given: str | _Figures) -> Link:
    """The link of a name as ``--host-link`` takes it, or of figures."""
    if isinstance(given, str):
        return link_called(given)
    for key, value, least, most in (
        ("bytes_per_s", given.bytes_per_s, SLOWEST, 1e18),
        ("latency_ns", given.latency_ns, 0, LONGEST_LATENCY_NS),
        ("back_bytes_per_s", given.back_bytes_per_s, SLOWEST, 1e18),
    ):
        if value is not None and not least <= value <= most:
            raise TensortideError(f"{key} is {value:g}: it is {least:g} to {most:g}")
    rate, back = Fraction(given.bytes_per_s), given.back_bytes_per_s
    about = f"{float(rate) / 1e9:g} GB/s + {given.latency_ns / 1000:g} us"
    inwards = None if back is None else Fraction(back)
    return Link(given.name or f"{float(rate) / 1e9:g} GB/s", rate, round(given.latency_ns), about, inwards)


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
