"""Runs of configuration files: the search that one describes, and its continuation on real measurements."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tensortide.errors import PlacementError
from tensortide.executors import cores
from tensortide.placements import ACCURATE, COMPAT, Net, Settings, load_cluster, read_net
from tensortide.placements.genes import OnDevices
from tensortide.placements.search import Budget, SearchResult
from tensortide.placements.search import Search as Algorithm
from tensortide.placements.search.genetic import Genetic
from tensortide.placements.search.map_elites import MapElites
from tensortide.placements.search.session import Progress
from tensortide.progress import UNWATCHED, Search
from tensortide.request import Arg, Opt, OutFolder, Request, exclusive
from tensortide.studies.placement.config import Config, read_config
from tensortide.studies.placement.measured import Measure, MeasuredProblem
from tensortide.studies.placement.optimizers import GeneticArguments, MapElitesArguments
from tensortide.studies.placement.placed_net import NetSubject, PlacedNet
from tensortide.studies.placement.processors import Processors
from tensortide.studies.placement.validation import By
from tensortide.write import check_writable

BATCH_SIZE = 128
"""Batch size of every published search."""
UNLIMITED = 1 << 40


@dataclass(frozen=True, kw_only=True)
class ConfiguredRequest(Request):
    """Ask what a configuration file of Exprimo finds."""

    GROUP = "The search"

    config: Annotated[Path, Arg("Configuration: net_path, device_graph_path, optimizer, optimizer_args.")]
    out: Annotated[
        Path | None,
        OutFolder("Folder to write to (default: log_dir of the configuration)."),
    ] = None
    budget: Annotated[int | None, Opt("Most placements to try, such as 5000.", least=1)] = None
    seed: Annotated[int, Opt("Seed of random choices.", least=0)] = 0
    accurate: Annotated[bool, Opt("Corrected times and memory instead of those of the published model.")] = False
    by: By = None
    measure: Annotated[
        bool,
        Opt(
            "Go on with real batches, which PyTorch trains on this machine as benchmarking_function says.", common=True
        ),
    ] = False

    RULES = (exclusive("measure", "by", why="times come from one function"),)

    def read(self) -> tuple[Config, Path]:
        """The configuration, and the folder to write to. Raises PlacementError without one, and OutputError for one
        that cannot be written to."""
        config = read_config(self.config)
        folder = self.out or config.folder
        if folder is None:
            raise PlacementError(f"{self.config} names no log_dir: say with --out where to write.")
        check_writable(folder / "manifest.json", folders=True)
        return config, folder


@dataclass(frozen=True)
class ConfiguredRun:
    """A run of a configuration. ``second``: its continuation with measured times, and ``measured`` the log of that;
    ``processors``: the log of those, if it asks for one; ``timed``: the batches whose mean a measured time is."""

    config: Config
    placed: PlacedNet
    second: SearchResult | None = None
    measured: MeasuredProblem | None = None
    processors: Processors | None = None
    timed: str = ""

    @property
    def times(self) -> dict[tuple[OnDevices, ...], float | None]:
        """The measured time of each placement, ms; None where memory did not suffice."""
        return {} if self.measured is None else dict(self.measured.log)

    @property
    def fastest(self) -> tuple[OnDevices, ...] | None:
        """The device or devices of each layer in the placement that was fastest in measurements."""
        known = {layers: ms for layers, ms in self.times.items() if ms is not None}
        return min(known, key=known.__getitem__, default=None)


def subject_of(config: Config, *, compat: bool = True) -> NetSubject:
    """The net, cluster and settings of ``config``, in the published mode unless ``compat`` is False."""
    arguments = config.arguments
    cluster = load_cluster(config.device_graph)
    settings = Settings(
        batch_size=BATCH_SIZE,
        batches=arguments.batches,
        pipeline_batches=arguments.pipeline_batches,
        comp_penalization=arguments.simulator_comp_penalty,
        comm_penalization=arguments.simulator_comm_penalty,
        device_memory_utilization=arguments.device_memory_utilization,
        memory_penalization_factor=1.0,
        mode=COMPAT if compat else ACCURATE,
    )
    devices = None if arguments.allow_cpu else tuple(each for each in cluster.placeable if each)
    return NetSubject(read_net(config.net), cluster, settings, devices, arguments.colocation_heuristic or "none")


def run_config(
    config: Config,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    compat: bool = True,
    search: Search = UNWATCHED,
    checkpoint: Path | None = None,
    measure: Measure | None = None,
) -> ConfiguredRun:
    """Run ``config``; ``budget`` limits it further. ``measure`` times real batches where the configuration asks for it.

    Raises TensortideError if net, cluster or placement cannot be.
    """
    subject = subject_of(config, compat=compat)
    by, threads = config.arguments.search(), config.arguments.n_threads
    asked = isinstance(config.arguments, GeneticArguments) and config.arguments.monitor_processors
    processors = Processors() if asked else None

    def watch(at: Progress) -> None:
        search.known(f"{at.proposals:,} placements, best {at.score_ms:.4g} ms")
        if processors is not None:
            processors.sample(at.proposals)

    found = by.search(
        subject.problem,
        budget=budget or Budget(UNLIMITED),
        seed=seed,
        threads=threads if threads > 0 else cores(),
        watch=watch,
        stop=search.stopped,
        checkpoint=checkpoint,
        singles=False,  # the configuration says whether they are in the first generation
    )
    placed = subject.placed(by, found)
    if processors is not None:
        processors.sample(placed.search.proposals, last=True)
    if measure is None:
        return ConfiguredRun(config, placed, processors=processors)
    again, measured = _again(config, placed), MeasuredProblem(subject, measure)
    return ConfiguredRun(config, placed, again.search(measured, UNLIMITED, seed, singles=False), measured, processors)


def _again(config: Config, placed: PlacedNet) -> Algorithm:
    """The search with measured times, which begins with the last population or archive of the first one."""
    arguments, notes, search = config.arguments, placed.search.notes, placed.algorithm
    if isinstance(arguments, GeneticArguments) and isinstance(search, Genetic):
        size = min(arguments.benchmarking_population_size, search.population)
        best = (placed.search.placement, *notes.population)
        return dataclasses.replace(
            search,
            population=size,
            generations=arguments.benchmarking_generations,
            elite=min(search.elite, size),
            trivial_start=False,
            first=tuple(dict.fromkeys(best))[:size],
        )
    if isinstance(arguments, MapElitesArguments) and isinstance(search, MapElites):
        elites = sorted(notes.archive, key=lambda elite: elite.score_ms)
        limit = arguments.benchmarking_time_threshold
        kept = [one.placement for one in elites if limit is None or one.score_ms <= limit]
        first = tuple(kept[: arguments.benchmarking_n_keep]) or (placed.search.placement,)
        steps = arguments.benchmarking_steps
        return dataclasses.replace(search, initial=0, steps=steps, trivial_start=False, first=first, log_period=0)
    raise PlacementError(f"{config.path}: {config.optimizer} has no second phase with measured times.")


def answer(asked: ConfiguredRequest, search: Search = UNWATCHED) -> tuple[ConfiguredRun, Path]:
    """Run the configuration, until the search is stopped; and the folder of its artefacts, of which the file to resume
    from is written. Raises as ``run_config`` and ``ConfiguredRequest.read``."""
    config, folder = asked.read()
    measure, timed = asked.by, ""
    if asked.measure:
        subject = subject_of(config)
        measure = measure_of(config, subject.net, subject.devices or subject.cluster.placeable, BATCH_SIZE)
        timed = "" if config.benchmark is None else config.benchmark.timed
    done = run_config(
        config,
        budget=Budget(asked.budget or UNLIMITED),
        seed=asked.seed,
        compat=not asked.accurate,
        search=search,
        checkpoint=folder / "search.state",
        measure=measure,
    )
    return dataclasses.replace(done, timed=timed), folder


# -- the measuring function -------------------------------------------------------------------------
# The measuring function that a configuration describes: real batches of its network, trained by PyTorch.


GB = 1e9


def measure_of(config: Config, net: Net, devices: Sequence[int], batch: int) -> Measure:
    """The measuring function of ``config`` for ``net`` on ``devices``. Raises PlacementError without one, for a network
    with layers that cannot be trained, and for devices that this machine lacks."""
    from tensortide.profile.net_benchmark import batch_ms, check_trains, torch_device

    asked = config.benchmark
    if asked is None:
        raise PlacementError(
            f"{config.path} has no benchmarking_function, which --measure follows: add it, or give --by."
        )
    check_trains(net)
    names = {number: str(name) for number, name in (asked.device_map or {}).items()}
    for device in devices:
        torch_device(device, names)
    limit = None if asked.gpu_memory_limit is None else asked.gpu_memory_limit * GB

    def measured(placement: dict[str, OnDevices]) -> float | None:
        return batch_ms(
            net,
            placement,
            batch=batch,
            batches=asked.batches,
            dropped=asked.drop_batches,
            rate=asked.lr,
            names=names,
            limit_bytes=limit,
        )

    return measured
