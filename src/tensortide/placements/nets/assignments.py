"""Assignment maps, ``{layer: device}`` in JSON, applied to a net."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tensortide.errors import TensortideError
from tensortide.placements.nets.net import Devices, Net
from tensortide.timing.clusters import Cluster
from tensortide.timing.json_file import read_json
from tensortide.write import write_file

Gene: TypeAlias = "int | Sequence[int]"
"""The device of a layer, or the devices that share it."""
NamedGene: TypeAlias = "int | str | Sequence[int | str]"
"""A gene with names of devices in place of numbers."""
_ANY_COUNT = 1 << 62
"""Count of devices that no placement exceeds, where the cluster is not given."""


@dataclass(frozen=True)
class Assignment:
    """Devices of every layer of a net, in topological order, from a map that need not be of this net.

    ``extra`` names of the map are no layers of the net; ``missing`` layers are not in the map, and keep the devices of
    the net spec.
    """

    devices: tuple[Devices, ...]
    extra: tuple[str, ...]
    missing: tuple[str, ...]


def read_assignment(path: str | os.PathLike[str], net: Net, cluster: Cluster | None = None) -> Assignment:
    """Read an assignment map for ``net``, of numbers of devices, or of their names in ``cluster``.

    Raises:
        TensortideError: the file cannot be read or is no map of layers to devices, or no layer of the net is in it.
    """
    read = read_json(path, dict[str, int | str | tuple[int | str, ...]], "a map of layers to devices")
    try:
        return assigned(numbered(read, cluster), net)
    except TensortideError as error:
        raise TensortideError(f"{path}: {error}") from None


def numbered(mapping: Mapping[str, NamedGene], cluster: Cluster | None) -> dict[str, Devices]:
    """The map with numbers of devices in place of their names. Raises TensortideError for what is no device."""
    found: dict[str, Devices] = {}
    for layer, gene in mapping.items():
        several = (gene,) if isinstance(gene, int | str) else gene
        if cluster is None and (names := [one for one in several if isinstance(one, str)]):
            raise TensortideError(
                f"{layer!r} is on {names[0]!r}: read it with the cluster that has this device: "
                "read_assignment(path, net, cluster)."
            )
        devices = tuple(cluster.device_number(one) if cluster and isinstance(one, str) else int(one) for one in several)
        if not devices or min(devices) < 0:
            raise TensortideError(f"{layer!r} is on {gene}: a device is 0 or more, and a layer has one or several.")
        found[layer] = devices
    return found


def assigned(mapping: Mapping[str, Gene], net: Net) -> Assignment:
    """Apply ``mapping`` to ``net``. Raises TensortideError if it has none of its layers."""
    missing = tuple(name for name in net.order if name not in mapping)
    extra = tuple(name for name in mapping if name not in net.index)
    if len(missing) == len(net.order):
        near = difflib.get_close_matches(next(iter(mapping), ""), net.order, n=3)
        hint = f" Near names: {', '.join(near)}." if near else ""
        raise TensortideError(f"the map is of another net: none of its names is a layer of {net.name}.{hint}")
    devices = tuple(
        _devices(mapping[name]) if name in mapping else default
        for name, default in zip(net.order, net.defaults, strict=True)
    )
    return Assignment(devices, extra, missing)


def checked(placement: Mapping[str, Gene] | Sequence[Gene] | Assignment, net: Net, devices: int) -> tuple[Devices, ...]:
    """Devices of every layer of ``net``, of a vector in topological order, a map, or an ``Assignment``.

    Raises:
        TensortideError: the placement is of another net, or names a device that does not exist.
    """
    if isinstance(placement, Assignment):
        found = placement.devices
    elif isinstance(placement, Mapping):
        found = assigned(placement, net).devices
    else:
        found = tuple(map(_devices, placement))
    if len(found) != len(net.order):
        raise TensortideError(
            f"the placement is of another net: it has {len(found)} entries, and {net.name} has {len(net.order)} layers."
        )
    for name, genes in zip(net.order, found, strict=True):
        for gene in genes or (-1,):
            if not 0 <= gene < devices:
                raise TensortideError(f"layer {name!r} is placed on device {gene}: devices are 0 to {devices - 1}.")
    return found


def write_assignment(
    path: str | os.PathLike[str],
    net: Net,
    placement: Mapping[str, Gene] | Sequence[Gene] | Assignment,
    cluster: Cluster | None = None,
) -> Path:
    """Write a placement of ``net`` as an assignment map, by the names of devices if those of ``cluster`` have names.

    Raises TensortideError for a placement of another net, or on a device that ``cluster`` lacks.
    """
    return write_file(path, assignment_text(net, placement, cluster))


def assignment_text(
    net: Net, placement: Mapping[str, Gene] | Sequence[Gene] | Assignment, cluster: Cluster | None
) -> str:
    """The text that ``write_assignment`` writes."""
    found = checked(placement, net, len(cluster.devices) if cluster else _ANY_COUNT)
    names = cluster.names if cluster and not cluster.numbered else None
    shown = [[names[one] if names else one for one in devices] for devices in found]
    devices = {layer: of[0] if len(of) == 1 else of for layer, of in zip(net.order, shown, strict=True)}
    return json.dumps(devices, indent=1) + "\n"


def _devices(gene: Gene) -> Devices:
    return tuple(int(one) for one in gene) if isinstance(gene, Sequence) else (int(gene),)


# -- named placements -------------------------------------------------------------------------------
# Placements by formula, named as in the published cases.


NAMED: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "alt": lambda layers, devices: tuple(i % devices for i in range(layers)),
    "contig": lambda layers, devices: tuple(i * devices // layers for i in range(layers)),
    "contig_gpu": lambda layers, devices: tuple(1 + i * (devices - 1) // layers for i in range(layers)),
}
"""Devices of ``layers`` layers on ``devices`` devices: in turn, in runs of equal length, in such runs without device 0.
``all0``, ``all1``, ...: one device for all."""


def named_placement(name: str, layers: int, devices: int) -> tuple[int, ...]:
    """The placement called ``name``: ``all`` with a device, or a row of ``NAMED``.

    Raises:
        TensortideError: an unknown name, or a device that does not exist.

    Examples:
        >>> named_placement("contig_gpu", 5, 3)
        (1, 1, 1, 2, 2)
        >>> named_placement("all2", 2, 3)
        (2, 2)
    """
    if one := re.fullmatch(r"all([0-9]+)", name):
        device = int(one[1])
        if device >= devices:
            raise TensortideError(f"placement {name!r}: devices are 0 to {devices - 1}.")
        return (device,) * layers
    if name not in NAMED:
        raise TensortideError(f"no placement is called {name!r}: it is all0, all1, ..., {', '.join(NAMED)}.")
    if name == "contig_gpu" and devices < 2:
        raise TensortideError("placement 'contig_gpu' leaves device 0 out: it needs two devices or more.")
    return NAMED[name](layers, devices)
