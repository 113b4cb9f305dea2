"""``tensortide place``: on which device of a cluster each layer runs.

``place NET --machine GRAPH.json``: a search. ``place score``: the time of a given placement."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter, validators

from tensortide.cli.interrupt import counted
from tensortide.cli.show import Files, show
from tensortide.cli.source import OutputOptions, option, progress
from tensortide.units import format_percent, format_seconds
from tensortide.write import check_writable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensortide.placements.search.session import Progress
    from tensortide.studies.placement.placing import Asked

place = App(
    name="place",
    help="Place the layers of a network on the devices of a cluster: search, compare, validate.",
    help_format="plaintext",
)

NetFile = Annotated[Path, Parameter(help="Network: a JSON file of layers (docs/place.md).")]


@Parameter(name="*")
@dataclass(frozen=True)
class MachineOptions:
    """Options of the cluster, and of how the network runs on it."""

    machine: Annotated[Path, Parameter(help="Cluster: a JSON file of devices and channels (docs/place.md).")]
    batch: Annotated[int | None, option("--batch", "Examples in a batch (default: as the network says).")] = None
    batches: Annotated[int, Parameter(help="Batches that are timed together.", validator=validators.Number(gte=1))] = 1
    in_flight: Annotated[
        int, Parameter(help="Batches in flight at a time, at most.", validator=validators.Number(gte=1))
    ] = 1
    inference: Annotated[bool, option("--inference", "Forward pass alone.")] = False
    compat: Annotated[bool, option("--compat", "Times and memory by the published model, its faults included.")] = False
    utilization: Annotated[
        float, Parameter(help="Share of their peak that ops attain.", validator=validators.Number(gt=0, lte=1))
    ] = 1.0
    link_utilization: Annotated[
        float, Parameter(help="Share of their bandwidth that links attain.", validator=validators.Number(gt=0, lte=1))
    ] = 1.0
    memory_share: Annotated[
        float, Parameter(help="Share of each device's memory to use.", validator=validators.Number(gt=0, lte=1))
    ] = 1.0
    devices: Annotated[
        str | None, option("--devices", "Devices that may be used, by number: 1,2,3 (default: all).")
    ] = None
    groups: Annotated[
        str,
        Parameter(
            help="Layers that share a device: none, block, prefix:N, prefix:TEXT, file:PATH, or coarsen:N for N groups."
        ),
    ] = "none"

    def asked(self, net: Path) -> Asked:
        """Read the network and the cluster."""
        from tensortide.errors import PlacementError
        from tensortide.placements import ACCURATE, COMPAT, Settings, read_cluster, read_net
        from tensortide.studies.placement.placing import Asked

        settings = Settings(
            batch_size=self.batch,
            batches=self.batches,
            pipeline_batches=self.in_flight,
            include_backward=not self.inference,
            comp_penalization=self.utilization,
            comm_penalization=self.link_utilization,
            device_memory_utilization=self.memory_share,
            mode=COMPAT if self.compat else ACCURATE,
        )
        devices = None
        if self.devices is not None:
            parts = [part.strip() for part in self.devices.split(",")]
            if not all(part.isdecimal() for part in parts):
                raise PlacementError(f"--devices takes numbers of devices, as in 1,2,3, not {self.devices!r}.")
            devices = tuple(map(int, parts))
        return Asked(read_net(net), read_cluster(self.machine), settings, devices, self.groups)


@Parameter(name="*")
@dataclass(frozen=True)
class SearchOptions:
    """Options of the search."""

    algorithm: Annotated[str, Parameter(help="How to search: place algorithms lists them.")] = "best"
    options: Annotated[
        tuple[str, ...], option("--option", "An option of the algorithm: population=50. Repeatable.")
    ] = ()
    budget: Annotated[int, Parameter(help="Placements that are tried.", validator=validators.Number(gte=1))] = 20_000
    time_limit: Annotated[
        float | None, option("--time-limit", "Seconds after which the search stops (default: none).")
    ] = None
    seed: Annotated[int, Parameter(help="Seed of random choices.", validator=validators.Number(gte=0))] = 0
    threads: Annotated[
        int | None, option("--threads", "Threads (default: one per core). The result does not depend on it.")
    ] = None
    resume: Annotated[
        Path | None, option("--resume", "File of what was simulated: kept, and read if it is there, to go on.")
    ] = None


@place.default
def search(
    net: NetFile,
    /,
    *,
    machine: MachineOptions,
    by: SearchOptions = SearchOptions(),
    written: Annotated[Path | None, option("--out", "Write the placement: a JSON file from layer to device.")] = None,
    files: Files = Files(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Search the placement in which a step takes the least time, within the memory of every device.

    Exits with 1 if no placement was found that fits. Ctrl-C ends the search and shows the best so far.
    """
    from tensortide.placements import write_assignment
    from tensortide.placements.search import Budget, algorithm
    from tensortide.placements.search.options import parsed
    from tensortide.reports.sections.placement import document
    from tensortide.studies.placement.placing import How
    from tensortide.studies.placement.placing import place as find

    files.check()
    paths = [check_writable(path) for path in (written, by.resume) if path is not None]
    asked = machine.asked(net)
    searching = algorithm(by.algorithm, parsed(by.options))
    with progress(out.quiet) as say, counted() as requests:
        how = How(by.threads or os.cpu_count() or 1, _watch(say), lambda: bool(requests), by.resume)
        placed = find(asked, searching, Budget(by.budget, wall_s=by.time_limit), by.seed, how)
    if written is not None:
        write_assignment(written, asked.net, placed.placement)
    made = document(placed)
    show(made, out, wrote=[*paths, *files.write(made, table="runs")])
    if not placed.run.fits:
        raise SystemExit(1)


def _watch(say: Callable[[str], None]) -> Callable[[Progress], None]:
    def watch(at: Progress) -> None:
        gap = format_percent(at.score_ms - at.bound_ms, at.bound_ms) if at.bound_ms else "unknown"
        best = "none fits yet" if at.over_bytes else f"best {format_seconds(at.score_ms / 1e3)}, gap {gap}"
        say(f"{at.proposals:,} placements, {best}; Ctrl-C to stop here")

    return watch


@place.command
def algorithms(*, out: OutputOptions = OutputOptions()) -> None:  # noqa: B008
    """List the algorithms and their options."""
    from tensortide.reports.sections.placement_algorithms import document

    show(document(), out)


@place.command
def score(
    net: NetFile,
    placements: Annotated[
        tuple[Path, ...], Parameter(help="Placements: JSON files from layer to device, or folders of them.")
    ],
    /,
    *,
    machine: MachineOptions,
    order: Annotated[Literal["name", "time"], Parameter(help="Order of the rows.")] = "time",
    files: Files = Files(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Score given placements: their time, and whether they fit the memory.

    Exits with 1 if none fits.
    """
    from tensortide.reports.sections.placement_scores import document
    from tensortide.studies.placement.scores import score_all

    files.check()
    asked = machine.asked(net)
    scores = score_all(asked, placements)
    made = document(asked, scores, by_time=order == "time")
    show(made, out, wrote=[*files.write(made, table="scores")])
    if not any(one.run.fits for one in scores):
        raise SystemExit(1)
