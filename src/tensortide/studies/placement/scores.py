"""Given placements, scored: files, folders of them, and conversion of other files of solutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from tensortide.errors import PlacementError, TensortideError
from tensortide.executors import SERIAL, Where, run_all
from tensortide.executors.request import WorkerRequest
from tensortide.file_faults import reader
from tensortide.placements import Assignment, Cluster, Net, Simulation, read_assignment
from tensortide.placements.nets.assignments import Gene, NamedGene, assigned, assignment_text, numbered
from tensortide.progress import Say, silent
from tensortide.request import Arg, Opt, OutFolder, Request
from tensortide.shown import Show
from tensortide.studies.placement.placed_net import NetSubject
from tensortide.studies.placement.request import NET, PLACEMENTS, ClusterRequest, NetRequest
from tensortide.timing.json_file import read_json
from tensortide.write import write_files

_TASK = 50
"""Placements per task: about 0.2 s of work."""


@dataclass(frozen=True, kw_only=True)
class ScoreRequest(Request):
    """Ask what given placements of a network take."""

    net: Annotated[Path, Arg(NET)]
    placements: Annotated[tuple[Path, ...], Arg(PLACEMENTS)]
    order: Annotated[Literal["name", "time"], Opt("Sort the rows by name or by time.", common=True, group="Output")] = (
        "time"
    )
    out: Annotated[
        Path | None,
        OutFolder("Folder to write each placement to, as a JSON file from layer to device."),
    ] = None
    cluster: ClusterRequest = field(default_factory=ClusterRequest)
    settings: NetRequest = field(default_factory=NetRequest)
    workers: WorkerRequest = field(default_factory=WorkerRequest)


@dataclass(frozen=True)
class Scored:
    """A placement of a file, ``given`` for the layers of the net, and its run."""

    path: Annotated[Path, Show("Placement", "path", fold=True)]
    run: Simulation
    given: Assignment

    @property
    def extra(self) -> Annotated[int, Show("Unknown names", zero="-", at_width=110)]:
        """The number of its names that are of no layer."""
        return len(self.given.extra)

    @property
    def missing(self) -> Annotated[int, Show("Missing layers", zero="-", at_width=110)]:
        """The number of layers that it lacks, which keep the device of the net."""
        return len(self.given.missing)


def score_all(
    subject: NetSubject,
    paths: Sequence[Path],
    where: Where = SERIAL,
    say: Say = silent,
) -> tuple[Scored, ...]:
    """Score the placements in ``paths`` (JSON files, or folders of them) on the workers of ``where``.

    Files are read in this process; ``say`` receives progress messages. Raises PlacementError if there is none,
    TensortideError for a file that is no placement of the net, RunError as ``executors.run_all``.
    """
    files = [*_files(paths)]
    if not files:
        raise PlacementError(f"there is no placement in {', '.join(map(str, paths))}: JSON files from layer to device.")
    read = [read_placement(path, subject.net, subject.cluster) for path in files]
    tasks = [[one.devices for one in read[first : first + _TASK]] for first in range(0, len(read), _TASK)]
    runs: dict[int, list[Simulation]] = {}
    for number, some in run_all(partial(_runs, subject), tasks, where):
        runs[number] = some
        say(f"{min(len(runs) * _TASK, len(read)):,} of {len(read):,} placements")
    ordered = (run for number in sorted(runs) for run in runs[number])
    return tuple(Scored(*one) for one in zip(files, ordered, read, strict=True))


def _runs(subject: NetSubject, placements: Sequence[Sequence[Gene]]) -> list[Simulation]:
    return [subject.run(devices) for devices in placements]


def write_all(subject: NetSubject, scores: Sequence[Scored], folder: Path) -> list[Path]:
    """Write each placement of ``subject`` into ``folder`` as a map from layer to device, under the name of its file."""
    maps = {folder / one.path.name: assignment_text(subject.net, one.given, subject.cluster) for one in scores}
    return [*write_files(maps)]


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(path.glob("*.json"))
        else:
            yield path


@reader
def read_placement(path: Path, net: Net, cluster: Cluster) -> Assignment:
    """Read a placement of ``net``: a map from layer to device, or a net whose layers have a ``device``, as searches of
    Exprimo write their solutions.

    Devices are numbers, or names of ``cluster``. Raises TensortideError for any other file.
    """
    found = read_json(path, dict[str, msgspec.Raw], "a placement")
    if "layers" not in found or "layers" in net.index:
        return read_assignment(path, net, cluster)
    layers = msgspec.json.decode(found["layers"], type=dict[str, dict[str, Any]])
    devices = dict(_devices(layers))
    if not devices:
        raise PlacementError(f"{path}: no layer of this net has a device.")
    try:
        return assigned(numbered(devices, cluster), net)
    except TensortideError as error:
        raise PlacementError(f"{path}: {error}") from None


def _devices(layers: dict[str, dict[str, Any]], prefix: str = "") -> Iterator[tuple[str, NamedGene]]:
    for name, layer in layers.items():
        if layer.get("type") == "Block":
            yield from _devices(layer.get("layers", {}), f"{prefix}{name}/")
        elif "device" in layer:
            yield f"{prefix}{name}", layer["device"]


def answer(asked: ScoreRequest, say: Say = silent) -> tuple[NetSubject, tuple[Scored, ...]]:
    """The network on its cluster, and the scores. Raises as ``score_all``, and RequestError without a cluster."""
    subject = asked.settings.subject(asked.net, asked.cluster)
    return subject, score_all(subject, asked.placements, asked.workers.where, say)
