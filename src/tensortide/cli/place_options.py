"""Options of ``tensortide place`` and its verbs: the cluster, the simulation of the network on it, the search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, validators

from tensortide.cli.numbers import Real
from tensortide.cli.search import Searching, searching
from tensortide.cli.source import TARGET, option
from tensortide.cli.workers import ClusterAddress, Threads
from tensortide.errors import OutputError, PlacementError
from tensortide.units import format_percent, format_seconds
from tensortide.write import check_writable

if TYPE_CHECKING:
    from tensortide.placements.search import Problem, Search, SearchResult
    from tensortide.placements.search.session import Progress
    from tensortide.studies.placement.placed_net import PlacementRequest

BUDGET = 20_000
"""Placements tried for a network of layers, unless another budget is given."""
CLUSTER = "Cluster"
"""Group of the options that networks and captured steps share, in the help."""
PlacedTarget = Annotated[
    str,
    Parameter(help=f"A network: a JSON file of layers (docs/placement.md). Or a step to capture or read. {TARGET}."),
]
NetFile = Annotated[Path, Parameter(help="Network: a JSON file of layers (docs/placement.md).")]


@Parameter(name="*", group="Networks of layers")
@dataclass(frozen=True)
class MachineOptions:
    """Options of the cluster, and of the simulation of the network on it."""

    machine: Annotated[
        Path | None,
        option(
            "--machine",
            "Cluster: a JSON file of devices and links, or a device graph (docs/place_graphs.md has both). Needed.",
        ),
        Parameter(group=CLUSTER),
    ] = None
    batch: Annotated[int | None, option("--batch", "Examples in a batch (default: as the network says).")] = None
    batches: Annotated[int, Parameter(help="Batches that are timed together.", validator=validators.Number(gte=1))] = 1
    in_flight: Annotated[
        int | None,
        Parameter(
            group=CLUSTER,
            help="Most batches in flight at a time (default: 1; for a captured step as its schedule says).",
            validator=validators.Number(gte=1),
            show_default=False,
        ),
    ] = None
    inference: Annotated[bool, option("--inference", "Forward pass alone.")] = False
    compat: Annotated[bool, option("--compat", "Predict by the published model, including its faults.")] = False
    optimizer: Annotated[
        Literal["sgd", "momentum", "adam"] | None,
        option("--optimizer", "Optimizer whose state and update count (default: sgd)."),
    ] = None
    utilization: Annotated[
        float, Parameter(help="Share of its peak rate that a device attains.", validator=Real(above=0, most=1))
    ] = 1.0
    link_utilization: Annotated[
        float, Parameter(help="Share of its bandwidth that a link attains.", validator=Real(above=0, most=1))
    ] = 1.0
    memory_share: Annotated[
        float, Parameter(help="Share of each device's memory to use.", validator=Real(above=0, most=1))
    ] = 1.0
    devices: Annotated[
        str | None, option("--devices", "Devices to use, by name or number: gpu0,gpu1 (default: all).")
    ] = None
    groups: Annotated[
        str,
        Parameter(
            help="Layers that share a device: none, block, prefix:N, prefix:TEXT, file:PATH, or coarsen:N for N groups."
        ),
    ] = "none"

    def request(self, net: Path) -> PlacementRequest:
        """Read the network and the cluster."""
        from tensortide.placements import ACCURATE, COMPAT, Settings, read_device_graph, read_net
        from tensortide.studies.placement.placed_net import PlacementRequest

        if self.machine is None:
            raise PlacementError("a network is placed on a cluster: give its device graph with --machine FILE.json.")
        without = {"--compat": self.compat, "--inference": self.inference}
        for flag in (flag for flag, given in without.items() if given and self.optimizer is not None):
            raise PlacementError(f"--optimizer {self.optimizer} has no effect with {flag}: leave out one of them.")
        settings = Settings(
            batch_size=self.batch,
            batches=self.batches,
            pipeline_batches=1 if self.in_flight is None else self.in_flight,
            include_backward=not self.inference,
            comp_penalization=self.utilization,
            comm_penalization=self.link_utilization,
            device_memory_utilization=self.memory_share,
            mode=COMPAT if self.compat else ACCURATE,
            optimizer=self.optimizer or "sgd",
        )
        read, cluster = read_net(net), read_device_graph(self.machine)
        named = None if self.devices is None else self.devices.split(",")
        devices = None if named is None else tuple(cluster.device_number(each.strip()) for each in named)
        return PlacementRequest(read, cluster, settings, devices, self.groups)


@Parameter(name="*", group="Search")
@dataclass(frozen=True)
class SearchOptions:
    """Options of the search."""

    algorithm: Annotated[str, Parameter(help="How to search: place algorithms lists them.")] = "best"
    options: Annotated[
        tuple[str, ...], option("--option", "An option of the algorithm: population=50. Repeatable.")
    ] = ()
    budget: Annotated[
        int | None,
        Parameter(
            help="Placements to try (default: 20,000; for a captured step 2,000).",
            validator=validators.Number(gte=1),
            show_default=False,
        ),
    ] = None
    time_limit: Annotated[
        float | None,
        option("--time-limit", "Seconds after which the search stops, compilation not counted (default: none)."),
        Parameter(validator=Real(above=0)),
    ] = None
    seed: Annotated[int, Parameter(help="Seed of random choices.", validator=validators.Number(gte=0))] = 0
    threads: Threads = None
    resume: Annotated[
        Path | None,
        option("--resume", "File of simulated placements; if it exists, the search resumes from it."),
    ] = None
    starts: Annotated[
        int,
        Parameter(
            help="Searches with consecutive seeds, which share the budget; the best result is shown.",
            validator=validators.Number(gte=1),
        ),
    ] = 1
    cluster: ClusterAddress = None

    @property
    def kind(self) -> Search:
        """The algorithm with its options. Raises PlacementError for one that there is not."""
        from tensortide.placements.search import algorithm
        from tensortide.placements.search.options import parsed

        return algorithm(self.algorithm, parsed(self.options))

    @contextmanager
    def carried_out(self, quiet: bool) -> Iterator[Callable[[Problem, int], SearchResult]]:
        """Yield the search as a function of a problem and its default budget. Ctrl-C ends it and keeps the best."""
        from tensortide.executors import Where, cores
        from tensortide.placements.search import Budget
        from tensortide.placements.search.starts import search_starts

        kind = self.kind
        threads = self.threads or cores()
        if self.starts > 1 and self.resume is not None:
            raise PlacementError("a file to resume from is of one search: give either --starts or --resume.")
        if self.starts == 1 and self.cluster is not None:
            raise PlacementError("a cluster runs several searches: give --starts N with --cluster.")

        with searching(quiet) as shown:

            def search(problem: Problem, usual: int) -> SearchResult:
                budget = Budget(self.budget or usual, wall_s=self.time_limit)
                self._check_budget(budget.proposals, problem.devices)
                shown.preparing()
                if self.starts > 1:
                    where = Where(self.threads, "threads", self.cluster)
                    return search_starts(kind, problem, budget, self.seed, self.starts, where, shown.stopped)
                return kind.search(
                    problem,
                    budget,
                    self.seed,
                    threads=threads,
                    watch=_watch(shown),
                    stop=shown.stopped,
                    checkpoint=self.resume,
                )

            yield search

    def check_resume(self) -> None:
        """Raise OutputError if the file to resume from cannot be written."""
        if self.resume is not None:
            check_writable(self.resume)

    def wrote(self, found: SearchResult | None) -> list[Path]:
        """The file to resume from, if the search that ``found`` this has written one."""
        return [] if self.resume is None or found is None or found.unsaved else [self.resume]

    def check_saved(self, found: SearchResult | None) -> None:
        """Raise OutputError if the file to resume from could not be written."""
        if found is not None and found.unsaved:
            raise OutputError(f"{found.unsaved}\nThe search ended as shown; it resumes from what was written before.")

    def _check_budget(self, proposals: int, devices: int) -> None:
        """Raise PlacementError if the budget of a start cannot try every single device, so might find less than one."""
        if proposals // self.starts < devices:
            each = "" if self.starts == 1 else f" for each of {self.starts} starts"
            raise PlacementError(
                f"--budget {proposals} is too small: everything on one device is tried first, for each of {devices} "
                f"devices{each}, which takes {devices * self.starts}."
            )


def _watch(shown: Searching) -> Callable[[Progress], None]:
    def watch(at: Progress) -> None:
        gap = format_percent(at.score_ms - at.bound_ms, at.bound_ms) if at.bound_ms else "unknown"
        best = "none fits yet" if at.over_bytes else f"best {format_seconds(at.score_ms / 1e3)}, gap {gap}"
        shown.known(f"{at.proposals:,} placements, {best}")

    return watch
