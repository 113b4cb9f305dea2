"""Given placements, scored: files, folders of them, and conversion of other files of solutions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tensortide.errors import PlacementError, TensortideError
from tensortide.placements import Assignment, Net, Simulation, read_assignment
from tensortide.placements.json_file import read_json
from tensortide.placements.nets.assignments import assigned
from tensortide.studies.placement.placed_net import PlacementRequest
from tensortide.write import write_files


@dataclass(frozen=True)
class Scored:
    """A placement of a file. ``extra`` names are of no layer; ``missing`` layers keep the device of the net."""

    path: Path
    run: Simulation
    extra: int
    missing: int


def score_all(request: PlacementRequest, paths: Sequence[Path]) -> tuple[Scored, ...]:
    """Score the placements in ``paths``, files or folders of JSON files.

    Raises PlacementError if there is none, TensortideError for a file that is no placement of the net.
    """
    files = [*_files(paths)]
    if not files:
        raise PlacementError(f"there is no placement in {', '.join(map(str, paths))}: JSON files from layer to device.")
    return tuple(_scored(request, path) for path in files)


def write_all(scores: Sequence[Scored], folder: Path) -> list[Path]:
    """Write each placement into ``folder`` as a map from layer to device, under the name of its file."""
    maps = {}
    for one in scores:
        devices = dict(zip(one.run.net.order, one.run.placement, strict=True))
        maps[folder / one.path.name] = json.dumps(devices, indent=1) + "\n"
    return [*write_files(maps)]


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(path.glob("*.json"))
        else:
            yield path


def _scored(request: PlacementRequest, path: Path) -> Scored:
    read = read_placement(path, request.net)
    run = request.run(read.devices)
    return Scored(path, run, len(read.extra), len(read.missing))


def read_placement(path: Path, net: Net) -> Assignment:
    """Read a placement of ``net``: a map from layer to device, or a net whose layers have a ``device``, as searches of
    Exprimo write their solutions.

    Raises TensortideError for any other file.
    """
    found = read_json(path, dict[str, msgspec.Raw], "a placement")
    if "layers" not in found or "layers" in net.index:
        return read_assignment(path, net)
    layers = msgspec.json.decode(found["layers"], type=dict[str, dict[str, Any]])
    devices = dict(_devices(layers))
    if not devices:
        raise PlacementError(f"{path}: no layer of this net has a device.")
    try:
        return assigned(devices, net)
    except TensortideError as error:
        raise PlacementError(f"{path}: {error}") from None


def _devices(layers: dict[str, dict[str, Any]], prefix: str = "") -> Iterator[tuple[str, int]]:
    for name, layer in layers.items():
        if layer.get("type") == "Block":
            yield from _devices(layer.get("layers", {}), f"{prefix}{name}/")
        elif "device" in layer:
            yield f"{prefix}{name}", layer["device"]
