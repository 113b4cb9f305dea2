"""The Cluster: devices of any kinds, the links between them, and the channels that carry what moves."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

import msgspec

from tensortide.errors import TensortideError
from tensortide.timing.catalogue import CONTEXT_BYTES, Device
from tensortide.timing.links import Link

TYPICAL_BYTES = 1 << 20
"""Bytes of the transfer whose time chooses a route."""
_Leaving: TypeAlias = tuple[int, int, int]
"""A wire as a route takes it: its time, its number and its target."""


class Tier(NamedTuple):
    """Memory behind a device: the ``link`` there, by its name that of the tier (``host``, ``ssd``), with its capacity.
    ``over``: the tier whose link transfers cross, too, as those of a drive cross the host's. ``channel``: the number of
    the one that its link shares with links of the cluster, on which out of the device is up."""

    link: Link
    over: str = ""
    channel: int | None = None


class ClusterDevice(msgspec.Struct, frozen=True):
    """One device: its name, its row of the catalogue, the bytes a process can use of it (None: unlimited), and the
    ``tiers`` behind it. A switch runs nothing, and transfers pass through it."""

    name: str
    row: Device
    capacity_bytes: int | None = None
    tiers: tuple[Tier, ...] = ()
    is_switch: bool = False

    @property
    def links(self) -> dict[str, Link]:
        """The links to the tiers, by name; one that goes over another's is no faster than that."""
        found: dict[str, Link] = {}
        for link, over, _ in self.tiers:
            out, back = link.bytes_per_s, link.in_bytes_per_s or link.bytes_per_s
            if over:
                out = min(out, found[over].bytes_per_s)
                back = min(back, found[over].in_bytes_per_s or found[over].bytes_per_s)
            found[link.name] = replace(link, bytes_per_s=out, in_bytes_per_s=back)
        return found

    def queue(self, tier: str) -> int | str:
        """The queue of transfers to a ``tier``: that of the tier it is over, by name, or the number of its channel."""
        tiers = {each.link.name: each for each in self.tiers}
        while tiers[tier].over:
            tier = tiers[tier].over
        channel = tiers[tier].channel
        return tier if channel is None else channel

    @property
    def as_row(self) -> Device:
        """The row with the memory and the rate to the host that the cluster gives the device."""
        row, changed = self.row, dict[str, float]()
        if self.capacity_bytes is not None and self.capacity_bytes != row.usable_bytes:
            changed["memory_gbytes"] = self.capacity_bytes / 1e9
            if row.kind == "gpu":
                changed["driver_gibytes"] = (self.capacity_bytes + CONTEXT_BYTES) / 2**30
        if "host" in self.links:
            changed["pcie_gbytes_per_s"] = float(self.links["host"].bytes_per_s) / 1e9
        return msgspec.structs.replace(row, **changed) if changed else row


class Channel(msgspec.Struct, frozen=True):
    """A carrier of transfers, first come, first served, of all links that name it. Its link's rate out is that from
    lower to higher numbers of devices. With ``duplex`` each direction has a queue of its own, else both share one."""

    link: Link
    duplex: bool = True


class ClusterLink(msgspec.Struct, frozen=True, gc=False):
    """A way from the device number ``source`` to ``target``, over the channel of that number."""

    source: int
    target: int
    channel: int


class Wire(msgspec.Struct, frozen=True):
    """A link with its names and figures. ``inwards``: its rate is that of its channel's link back."""

    name: str
    source: int
    target: int
    link: Link
    inwards: bool

    @property
    def bytes_per_s(self) -> Fraction:
        """The rate from ``source`` to ``target``."""
        back = self.link.in_bytes_per_s if self.inwards else None
        return self.link.bytes_per_s if back is None else back

    def transfer_ns(self, nbytes: int) -> int:
        """Nanoseconds that ``nbytes`` take from ``source`` to ``target``; rounded up."""
        return self.link.transfer_ns(nbytes, inwards=self.inwards)


class Cluster(msgspec.Struct, frozen=True, dict=True):
    """Devices, the links between them and the channels of these. Devices that are not joined directly reach each other
    over others, which store and forward; see ``routes``. ``numbered``: devices go by number, as those of device graphs
    do, not by name.

    Raises TensortideError for no devices that run something, two of one name, and a link from a device to itself.
    """

    name: str
    devices: tuple[ClusterDevice, ...]
    links: tuple[ClusterLink, ...] = ()
    channels: tuple[Channel, ...] = ()
    numbered: bool = False

    def __post_init__(self) -> None:
        names = [device.name for device in self.devices]
        if all(device.is_switch for device in self.devices):
            raise TensortideError(f"the cluster {self.name!r} has no devices{' but switches' if names else ''}")
        twice = sorted(name for name, times in Counter(names).items() if times > 1)
        if twice:
            raise TensortideError(f"the cluster {self.name!r} has two devices {twice[0]!r}")
        for link in self.links:
            if link.source == link.target:
                raise TensortideError(f"a link joins {names[link.source]!r} to itself")

    def __len__(self) -> int:
        return len(self.devices)

    @property
    def keys(self) -> Sequence[int | str]:
        """The name of each device, or its number where they go by number."""
        return range(len(self.devices)) if self.numbered else self.names

    @property
    def names(self) -> tuple[str, ...]:
        """The same as text."""
        return tuple(str(i) if self.numbered else device.name for i, device in enumerate(self.devices))

    @property
    def placeable(self) -> tuple[int, ...]:
        """Devices that run something: all but switches."""
        return tuple(i for i, device in enumerate(self.devices) if not device.is_switch)

    def device_number(self, text: str) -> int:
        """The number of the device with the name ``text``, or with this number. Raises TensortideError for neither."""
        if text in self.names:
            return self.names.index(text)
        if text.isdecimal() and int(text) < len(self.devices):
            return int(text)
        raise TensortideError(f"{self.name}: there is no device {text!r}; its devices are {', '.join(self.names)}.")

    def check_for_steps(self) -> None:
        """Raise TensortideError for what a step cannot run on: a switch, and devices without a route between them."""
        names = [device.name for device in self.devices]
        if switch := next((device.name for device in self.devices if device.is_switch), None):
            raise TensortideError(f"{switch!r} is a switch, which steps do not have: link its devices to each other")
        there = [(link.source, link.target) for link in self.links]
        for ways in (there, [(target, source) for source, target in there]):
            reached = _reached(len(names), ways)
            if alone := [target for target in range(len(names)) if target not in reached]:
                raise TensortideError(
                    f"no links lead from {names[0]!r} to {names[alone[0]]!r} and back: add those that do to 'links'"
                )

    @functools.cached_property
    def wires(self) -> tuple[Wire, ...]:
        """The links with what they say, in their order."""
        names = [device.name for device in self.devices]
        return tuple(
            Wire(f"{names[a]} > {names[b]}", a, b, self.channels[channel].link, a > b)
            for a, b, channel in ((one.source, one.target, one.channel) for one in self.links)
        )

    @functools.cached_property
    def queues(self) -> tuple[int, ...]:
        """For each wire the queue that it waits in, that of its channel or of one direction of it; numbered by their
        first wires."""
        keys = [(one.channel, self.channels[one.channel].duplex and one.source > one.target) for one in self.links]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        return tuple(numbers[key] for key in keys)

    @functools.cached_property
    def routes(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """From each device to each other the wires that a transfer takes one after the other: the fastest for 1 MiB, of
        equal ones that of fewer wires."""
        leaving: list[list[_Leaving]] = [[] for _ in self.devices]
        into = [-1] * len(self.devices)
        for number, wire in enumerate(self.wires):
            ns = wire.transfer_ns(TYPICAL_BYTES)
            leaving[wire.source].append((ns, number, wire.target))
            into[wire.target] = ns if into[wire.target] < 0 else min(into[wire.target], ns)
        return tuple(_ways(source, leaving, into) for source in range(len(self.devices)))

    def first_of(self, kind: str) -> int | None:
        """The number of the first device of ``kind``, such as ``cpu``."""
        return next((i for i, device in enumerate(self.devices) if device.row.kind == kind), None)

    def alike(self, a: int, b: int) -> bool:
        """Return whether two devices have the same row and memory."""
        one, other = self.devices[a], self.devices[b]
        return one.row == other.row and one.capacity_bytes == other.capacity_bytes


def _reached(count: int, ways: Sequence[tuple[int, int]]) -> set[int]:
    """The devices, of ``count``, that ``ways`` lead to from the first: each is looked at once from either end."""
    nexts: list[list[int]] = [[] for _ in range(count)]
    for source, target in ways:
        nexts[source].append(target)
    found, waiting = {0}, [0]
    while waiting:
        new = {device for device in nexts[waiting.pop()] if device not in found}
        found |= new
        waiting += new
    return found


def _ways(source: int, leaving: Sequence[Sequence[_Leaving]], into: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The fastest way from ``source`` to each device; ``into``: the least time of a wire that arrives at each.

    A wire between both that takes no longer than the quickest wire out of ``source`` and the quickest one into the
    target needs no search: any other way has both, and more wires.
    """
    count = len(leaving)
    direct: dict[int, tuple[int, int]] = {}
    for ns, number, target in leaving[source]:
        direct[target] = min((ns, number), direct.get(target, (ns, number)))
    out = min((ns for ns, _ in direct.values()), default=0)
    found: dict[int, tuple[int, ...]] = {
        target: (number,) for target, (ns, number) in direct.items() if ns <= out + into[target]
    }
    found[source] = ()
    left = set(range(count)) - found.keys()
    heap: list[tuple[int, int, tuple[int, ...], int]] = [(0, 0, (), source)]
    seen: set[int] = set()
    while left and heap:
        ns, hops, way, at = heappop(heap)
        if at in seen:
            continue
        seen.add(at)
        found[at] = way
        left.discard(at)
        for taken, number, target in leaving[at]:
            if target not in seen:
                heappush(heap, (ns + taken, hops + 1, (*way, number), target))
    return tuple(found.get(target, ()) for target in range(count))


def joined(
    rows: Sequence[Device], link: Link, *, capacity_bytes: int | None = None, name: str = "", duplex: bool = True
) -> Cluster:
    """A cluster of ``rows``, each two joined by a ``link`` of their own; its devices are ``gpu0``, ``cpu1``, ...

    ``capacity_bytes``: of every device (None: that of its row).
    """
    devices = tuple(
        ClusterDevice(f"{row.kind}{i}", row, row.usable_bytes if capacity_bytes is None else capacity_bytes)
        for i, row in enumerate(rows)
    )
    pairs = [(a, b) for a in range(len(rows)) for b in range(a + 1, len(rows))]
    return Cluster(name or f"{len(rows)} devices", devices, both_ways(pairs), (Channel(link, duplex),) * len(pairs))


def both_ways(pairs: Sequence[tuple[int, int]]) -> tuple[ClusterLink, ...]:
    """Links there and back between the devices of each pair, which has the channel of its number."""
    return tuple(ClusterLink(*way, i) for i, (a, b) in enumerate(pairs) for way in ((a, b), (b, a)))
