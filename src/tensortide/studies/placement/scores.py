"""Given placements, scored: files, folders of them, and conversion of other files of solutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tensortide.errors import PlacementError
from tensortide.placements import Simulation, read_assignment
from tensortide.studies.placement.placing import Asked


@dataclass(frozen=True)
class Scored:
    """A placement of a file. ``extra`` names are of no layer; ``missing`` layers keep the device of the net."""

    path: Path
    run: Simulation
    extra: int
    missing: int


def score_all(asked: Asked, paths: Sequence[Path]) -> tuple[Scored, ...]:
    """Score the placements in ``paths``, files or folders of JSON files.

    Raises PlacementError if there is none, TensortideError for a file that is no placement of the net.
    """
    files = [*_files(paths)]
    if not files:
        raise PlacementError(f"there is no placement in {', '.join(map(str, paths))}: JSON files from layer to device.")
    return tuple(_scored(asked, path) for path in files)


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(path.glob("*.json"))
        else:
            yield path


def _scored(asked: Asked, path: Path) -> Scored:
    read = read_assignment(path, asked.net)
    run = asked.run(read.devices)
    return Scored(path, run, len(read.extra), len(read.missing))
