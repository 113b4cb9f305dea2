"""Runs of configuration files: the search that one describes, and its continuation on real measurements."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace

from tensortide.errors import PlacementError
from tensortide.executors import cores
from tensortide.placements import ACCURATE, COMPAT, Settings, read_device_graph, read_net
from tensortide.placements.search import Budget, SearchResult
from tensortide.placements.search.genetic import Genetic
from tensortide.placements.search.map_elites import MapElites
from tensortide.studies.placement.config import Config
from tensortide.studies.placement.measured import Measure, MeasuredProblem, search_measured
from tensortide.studies.placement.optimizers import GeneticArguments, MapElitesArguments
from tensortide.studies.placement.placed_net import Execution, PlacedNet, PlacementRequest, place

BATCH_SIZE = 128
"""Batch size of every published search."""
UNLIMITED = 1 << 40


@dataclass(frozen=True)
class ConfiguredRun:
    """A run of a configuration. ``second``: its continuation with measured times, and ``measured`` the log of that."""

    config: Config
    placed: PlacedNet
    second: SearchResult | None = None
    measured: MeasuredProblem | None = None

    @property
    def times(self) -> dict[tuple[int, ...], float | None]:
        """The measured time of each placement, ms; None where memory did not suffice."""
        return {} if self.measured is None else dict(self.measured.log)

    @property
    def fastest(self) -> tuple[int, ...] | None:
        """The device of each layer in the placement that was fastest in measurements."""
        known = {layers: ms for layers, ms in self.times.items() if ms is not None}
        return min(known, key=known.__getitem__, default=None)


def request_of(config: Config, *, compat: bool = True) -> PlacementRequest:
    """The net, cluster and settings of ``config``, in the published mode unless ``compat`` is False."""
    arguments = config.arguments
    cluster = read_device_graph(config.device_graph)
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
    return PlacementRequest(read_net(config.net), cluster, settings, devices, arguments.colocation_heuristic or "none")


def run_config(
    config: Config,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    compat: bool = True,
    execution: Execution = Execution(),  # noqa: B008
    measure: Measure | None = None,
) -> ConfiguredRun:
    """Run ``config``; ``budget`` limits it further. ``measure`` times real batches where the configuration asks for it.

    Raises TensortideError if net, cluster or placement cannot be.
    """
    request = request_of(config, compat=compat)
    threads = config.arguments.n_threads if config.arguments.n_threads > 0 else cores()
    execution = replace(execution, threads=threads)
    placed = place(request, config.arguments.search(), budget or Budget(UNLIMITED), seed, execution)
    if measure is None:
        return ConfiguredRun(config, placed)
    second, measured = _measured(config, placed, measure, seed)
    return ConfiguredRun(config, placed, second, measured)


def _measured(config: Config, placed: PlacedNet, measure: Measure, seed: int) -> tuple[SearchResult, MeasuredProblem]:
    """Go on with measured times, from the last population or archive of the first search."""
    arguments, notes, search = config.arguments, placed.found.notes, placed.algorithm
    if isinstance(arguments, GeneticArguments) and isinstance(search, Genetic):
        size = min(arguments.benchmarking_population_size, search.population)
        best = (placed.found.placement, *notes.population)
        by = dataclasses.replace(
            search,
            population=size,
            generations=arguments.benchmarking_generations,
            elite=min(search.elite, size),
            trivial_start=False,
            first=tuple(dict.fromkeys(best))[:size],
        )
        return search_measured(placed.request, by, measure, UNLIMITED, seed)
    if isinstance(arguments, MapElitesArguments) and isinstance(search, MapElites):
        elites = sorted(notes.archive, key=lambda elite: elite.score_ms)
        limit = arguments.benchmarking_time_threshold
        kept = [one.placement for one in elites if limit is None or one.score_ms <= limit]
        first = tuple(kept[: arguments.benchmarking_n_keep]) or (placed.found.placement,)
        steps = arguments.benchmarking_steps
        again = dataclasses.replace(search, initial=0, steps=steps, trivial_start=False, first=first, log_period=0)
        return search_measured(placed.request, again, measure, UNLIMITED, seed)
    raise PlacementError(f"{config.path}: {config.optimizer} has no second phase with measured times.")
