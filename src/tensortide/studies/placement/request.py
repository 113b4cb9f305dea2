"""Options that several questions about placements share: the cluster, a network of layers on it, and a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tensortide.errors import RequestError
from tensortide.executors import Where, cores
from tensortide.executors.request import WorkerRequest
from tensortide.placements import ACCURATE, COMPAT, Settings, read_net
from tensortide.placements.graphs import GraphProblem
from tensortide.placements.graphs.placed_step import EVALUATIONS
from tensortide.placements.problem import Problem
from tensortide.placements.search import Budget, SearchResult, algorithm
from tensortide.placements.search import Search as Algorithm
from tensortide.placements.search.options import parsed
from tensortide.placements.search.session import Progress
from tensortide.placements.search.starts import search_starts
from tensortide.placements.simulator.settings import LEAST_SHARE
from tensortide.progress import Search
from tensortide.request import Opt, Request, exclusive, needs
from tensortide.studies.placement.placed_net import NetSubject
from tensortide.studies.placement.placed_workload import refuse_workload
from tensortide.targets.machines import cluster_in, is_file, machines_of, row_named, say_unused_tiers, say_wiring
from tensortide.targets.requests import LinkRatesRequest
from tensortide.timing.clusters import Cluster, load_cluster
from tensortide.timing.clusters.conversion import nodes_to_cluster
from tensortide.timing.clusters.file import is_one_device, within
from tensortide.timing.collectives.nodes import counts_and_name
from tensortide.units import format_percent, format_seconds

BUDGET = 20_000
"""Placements tried for a network of layers, unless another budget is given."""
NET = "Network: a JSON file of layers (docs/placement.md)."
PLACEMENTS = "Placements: JSON files from layer to device, or folders of them."


@dataclass(frozen=True, kw_only=True)
class ClusterRequest(Request):
    """The cluster, of a network or a captured step."""

    machine: Annotated[
        Path | None,
        Opt(
            "Cluster to place on: a JSON file of devices and links, or a device graph (docs/machines.md has both); or "
            "devices of the catalogue or of figures of your own, as 4xh100-sxm. Needed.",
            common=True,
        ),
    ] = None
    in_flight: Annotated[
        int | None,
        Opt("Most batches in flight at a time (default: 1; for a captured step as its schedule says).", least=1),
    ] = None

    links: LinkRatesRequest = field(default_factory=LinkRatesRequest)

    GROUP: ClassVar[str] = "The cluster"

    def read(self, what: str, check: Callable[[int], None] | None = None) -> Cluster:
        """The cluster for ``what``. Raises RequestError without one, or for rates of links beside a file, which has
        them; ``check`` may refuse the number of devices."""
        if self.machine is None:
            raise RequestError(
                f"{what} is placed on a cluster: give its devices and links with --machine FILE.json "
                "(docs/machines.md), or devices of the catalogue, as --machine 4xh100-sxm."
            )
        text = str(self.machine)
        exists = self.machine.exists()
        if is_one_device(self.machine) if exists else not is_file(text) or counts_and_name(text)[0] != (1, 1):
            nodes = machines_of(text, rates=self.links.rates)
            if check is not None:
                check(nodes.size)
            self.links.require_several(nodes.size, nodes.count)
            say_wiring(nodes)
            return nodes_to_cluster(nodes)
        if not exists and cluster_in(text) is not None:
            whole = text.rpartition(":")[0]
            raise RequestError(f"{text} is one device; a step is placed on all of a file: write --machine {whole}")
        if given := self.links.given():
            raise RequestError(f"{given[0].name} goes with devices of the catalogue: {self.machine} has its links")
        cluster = load_cluster(self.machine, check, row_named)
        say_unused_tiers(text, cluster)
        return cluster

    def of_steps(self, check: Callable[[int], None] | None = None) -> Cluster:
        """The cluster for a captured step. Raises as ``read``, and TensortideError for one that steps cannot have."""
        cluster = self.read("a step", check)
        with within(str(self.machine)):
            cluster.check_for_steps()
        return cluster


@dataclass(frozen=True, kw_only=True)
class NetRequest(Request):
    """A network of layers as it runs on a cluster."""

    batch: Annotated[
        int | None, Opt("Examples in a batch, such as 64 (default: as the network says).", least=1, common=True)
    ] = None
    batches: Annotated[int, Opt("Batches that are timed together.", least=1)] = 1
    inference: Annotated[bool, Opt("Forward pass alone.")] = False
    compat: Annotated[bool, Opt("Predict by the published model, including its faults.")] = False
    optimizer: Annotated[
        Literal["sgd", "momentum", "adam"] | None, Opt("Optimizer whose state and update count (default: sgd).")
    ] = None
    utilization: Annotated[float, Opt("Share of its peak rate that a device attains.", least=LEAST_SHARE, most=1)] = 1.0
    link_utilization: Annotated[
        float, Opt("Share of its bandwidth that a link attains.", least=LEAST_SHARE, most=1)
    ] = 1.0
    memory_share: Annotated[float, Opt("Share of each device's memory to use.", above=0, most=1)] = 1.0
    devices: Annotated[
        str | None, Opt("Devices to use, by name or number: gpu0,gpu1 (default: all).", value="NAMES")
    ] = None
    groups: Annotated[
        str,
        Opt(
            "Layers that share a device: none, block, prefix:N, prefix:TEXT, file:PATH, or coarsen:N for N groups.",
            value="HOW",
        ),
    ] = "none"

    GROUP: ClassVar[str] = "Networks of layers"
    RULES = (
        exclusive("optimizer", "compat", why="the published model has no optimizer"),
        exclusive("optimizer", "inference", why="a forward pass has no optimizer"),
    )

    def settings(self, in_flight: int | None) -> Settings:
        """The same in the words of the published simulator."""
        return Settings(
            batch_size=self.batch,
            batches=self.batches,
            pipeline_batches=in_flight or 1,
            include_backward=not self.inference,
            comp_penalization=self.utilization,
            comm_penalization=self.link_utilization,
            device_memory_utilization=self.memory_share,
            mode=COMPAT if self.compat else ACCURATE,
            optimizer=self.optimizer or "sgd",
        )

    def subject(self, net: Path, cluster: ClusterRequest) -> NetSubject:
        """Read the network and the cluster. Raises RequestError without a cluster."""
        refuse_workload(net)
        graph, read = cluster.read("a network"), read_net(net)
        names = None if self.devices is None else self.devices.split(",")
        devices = None if names is None else tuple(graph.device_number(each.strip()) for each in names)
        return NetSubject(read, graph, self.settings(cluster.in_flight), devices, self.groups)


@dataclass(frozen=True, kw_only=True)
class SearchRequest(Request):
    """A search of placements."""

    algorithm: Annotated[
        str, Opt("Search algorithm; tensortide place algorithms lists them.", common=True, value="NAME")
    ] = "best"
    option: Annotated[tuple[str, ...], Opt("An option of the algorithm: population=50.", value="KEY=VALUE")] = ()
    budget: Annotated[
        int | None, Opt("Placements to try (default: 20,000; for a captured step 2,000).", least=1, common=True)
    ] = None
    time_limit: Annotated[
        float | None,
        Opt(
            "Seconds after which the search stops, compilation not counted (default: none).",
            above=0,
            common=True,
            value="SECONDS",
        ),
    ] = None
    seed: Annotated[int, Opt("Seed of random choices.", least=0)] = 0
    resume: Annotated[
        Path | None, Opt("File of simulated placements; if it exists, the search resumes from it.", writes=True)
    ] = None
    starts: Annotated[
        int, Opt("Searches with consecutive seeds, which share the budget; the best result is shown.", least=1)
    ] = 1
    workers: WorkerRequest = field(default_factory=WorkerRequest)

    GROUP: ClassVar[str] = "The search"
    RULES = (
        exclusive("starts", "resume", why="a file to resume from is of one search"),
        needs("cluster", "starts", why="a cluster runs several searches"),
    )

    def __post_init__(self) -> None:
        """Raise PlacementError for an algorithm, or an option of it, that there is not, too."""
        super().__post_init__()
        algorithm(self.algorithm, parsed(self.option))

    @property
    def kind(self) -> Algorithm:
        """The algorithm with its options."""
        return algorithm(self.algorithm, parsed(self.option))

    def found(self, problem: Problem, search: Search) -> SearchResult:
        """Search ``problem`` until the search is stopped."""
        kind, threads = self.kind, self.workers.threads
        budget = Budget(self.budget or usual_budget(problem), wall_s=self.time_limit)
        self._check_budget(budget.proposals, problem.devices)
        search.preparing()
        search.stopped()  # from here on it can be ended, whichever thread asks
        if self.starts > 1:
            where = Where(threads, "threads", self.workers.cluster)
            return search_starts(kind, problem, budget, self.seed, self.starts, where, search.stopped)
        return kind.search(
            problem,
            budget,
            self.seed,
            threads=threads or cores(),
            watch=lambda at: search.known(_best(at)),
            stop=search.stopped,
            checkpoint=self.resume,
        )

    def _check_budget(self, proposals: int, devices: int) -> None:
        """Raise RequestError if the budget of a start cannot try every single device, so might find less than one."""
        if proposals // self.starts < devices:
            each = "" if self.starts == 1 else f" for each of {self.starts} starts"
            raise RequestError(
                f"--budget {proposals} is too small: everything on one device is tried first, for each of {devices} "
                f"devices{each}, which takes {devices * self.starts}."
            )

    def wrote(self, found: SearchResult | None) -> list[Path]:
        """The file to resume from, if the search that ``found`` this has written one."""
        return [] if self.resume is None or found is None or found.unsaved else [self.resume]


def usual_budget(problem: Problem) -> int:
    """The placements of ``problem`` that are tried, unless another budget is given."""
    return EVALUATIONS if isinstance(problem, GraphProblem) else BUDGET


def _best(at: Progress) -> str:
    gap = format_percent(at.score_ms - at.bound_ms, at.bound_ms) if at.bound_ms else "unknown"
    best = "none fits yet" if at.over_bytes else f"best {format_seconds(at.score_ms / 1e3)}, gap {gap}"
    return f"{at.proposals:,} placements, {best}"
