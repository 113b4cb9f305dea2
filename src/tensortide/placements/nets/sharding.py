"""Layers shared by several devices: each shard computes a part of the output channels of a convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tensortide.errors import TensortideError
from tensortide.placements.nets.net import Devices, Net
from tensortide.timing.paleo.layers import Entry

_AXIS = 3
"""Channels of a tensor in NHWC."""


class Expanded(NamedTuple):
    """A net whose shared layers are expanded into shards, and the device of each of its layers in ``net.order``."""

    net: Net
    placement: tuple[int, ...]


def expand(net: Net, devices: Sequence[Devices]) -> Expanded:
    """Replace every convolution on several devices by shards, in its place.

    Shard i computes ``Cout // k`` channels, and one more for the first ``Cout % k`` shards. Every child of such a layer
    reads the shards through a ``Concatenate`` of its own, on the child's device. Other layers on several devices run on
    the first of them.

    Args:
        net: the network.
        devices: of every layer, in ``net.order``.

    Raises:
        TensortideError: a convolution has fewer output channels than devices.
    """
    shared = {name: of for name, of in zip(net.order, devices, strict=True) if len(of) > 1}
    shared = {name: of for name, of in shared.items() if net.entries[name].type == "Convolution"}
    first = {name: of[0] for name, of in zip(net.order, devices, strict=True)}
    if not shared:
        return Expanded(net, tuple(first.values()))
    entries: dict[str, Entry] = {}
    place: dict[str, int] = {}
    for name, entry in net.entries.items():
        joined = {parent: f"{name}_conc_{parent}" for parent in entry.parents if parent in shared}
        for parent, concatenation in joined.items():
            shards = shards_of(parent, len(shared[parent]))
            _put(net, entries, concatenation, Entry(type="Concatenate", parents=shards, dim=_AXIS))
            place[concatenation] = first[name]
        parents = tuple(joined.get(parent, parent) for parent in entry.parents)
        if name not in shared:
            _put(net, entries, name, msgspec.structs.replace(entry, parents=parents))
            place[name] = first[name]
            continue
        count = len(shared[name])
        for i, (shard, device) in enumerate(zip(shards_of(name, count), shared[name], strict=True)):
            channels = _channels(name, entry, count, i)
            part = msgspec.structs.replace(entry, parents=parents, filter=(*entry.filter[:3], channels), splits=1)
            _put(net, entries, shard, part)
            place[shard] = device
    made = Net(net.name, entries)
    return Expanded(made, tuple(place[name] for name in made.order))


def shards_of(name: str, count: int) -> tuple[str, ...]:
    """The names of ``count`` shards of the layer ``name``."""
    return tuple(f"{name}_shard{number}" for number in range(count))


def most_devices(net: Net) -> tuple[int, ...]:
    """The number of devices that can share each layer of ``net.order``: for a convolution, its output channels."""
    every = (net.entries[name] for name in net.order)
    return tuple(max(1, _outputs(entry)) if entry.type == "Convolution" else 1 for entry in every)


def _outputs(entry: Entry) -> int:
    return entry.filter[3] // max(1, entry.splits)


def _channels(name: str, entry: Entry, count: int, number: int) -> int:
    channels = _outputs(entry)
    if channels < count:
        raise TensortideError(f"layer {name!r} has {channels} output channels: too few for {count} devices.")
    return channels // count + (number < channels % count)


def _put(net: Net, entries: dict[str, Entry], name: str, entry: Entry) -> None:
    if name in entries or (name in net.entries and entry.type != net.entries[name].type):
        raise TensortideError(f"{net.name}: two layers would be called {name!r} after sharding: rename one.")
    entries[name] = entry
