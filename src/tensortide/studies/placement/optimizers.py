"""Arguments of Exprimo's optimizers, and the searches that they mean.

A field has the name of the search's option, and by ``name=`` that of its key in a file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from tensortide.placements.search.algorithm import Search
from tensortide.placements.search.annealing import DualAnnealing, SimulatedAnnealing
from tensortide.placements.search.genetic import Genetic
from tensortide.placements.search.hill import HillClimbing, RandomHillClimbing
from tensortide.placements.search.map_elites import MapElites
from tensortide.placements.search.particle_swarm import ParticleSwarm
from tensortide.placements.search.simple import Exhaustive

Contradictions: TypeAlias = Iterator[tuple[tuple[str, ...], str]]
"""Keys that contradict each other, or a single one whose value cannot be, and why."""


class Arguments(msgspec.Struct, kw_only=True, frozen=True):
    """Arguments of all optimizers.

    ``colocation_heuristic`` is a rule of groups (``placements.search.groups``). ``n_threads`` -1: one per core.
    """

    batches: int = 1
    pipeline_batches: int = 1
    simulator_comp_penalty: float = 1.0
    simulator_comm_penalty: float = 1.0
    device_memory_utilization: float = 1.0
    n_threads: int = -1
    verbose: bool | int = False
    score_save_period: int | None = None
    colocation_heuristic: str | None = None
    allow_cpu: bool = True
    benchmarking_function: dict[str, Any] | None = None

    SOLUTION: ClassVar[str]
    """Name of the file with the best placement."""
    KIND: ClassVar[type[Search]]

    def search(self, **others: Any) -> Search:
        """The search that they mean: a ``KIND`` with those that have the names of its options, and ``others``."""
        options = {each.name for each in dataclasses.fields(self.KIND)}.intersection(self.__struct_fields__)
        return self.KIND(**{name: getattr(self, name) for name in options} | others)

    @property
    def period(self) -> int:
        """Placements from one row of the history to the next."""
        return self.score_save_period or int(self.verbose) or 1

    def contradictions(self) -> Contradictions:
        """Yield keys that contradict each other, or one whose value cannot be."""
        given = {each.encode_name: getattr(self, each.name) for each in msgspec.structs.fields(self)}
        for key, value in given.items():
            if key.endswith("_rate") and not isinstance(value, bool) and not 0 <= value <= 1:
                yield (key,), "a rate is 0 to 1"
        for key in ("steps", "generations", "swarm_size"):
            if given.get(key, 1) < (key == "swarm_size"):
                yield (key,), f"it is {int(key == 'swarm_size')} or more"
        if self.pipeline_batches > self.batches:
            yield ("pipeline_batches", "batches"), "no more batches are in flight than there are"


class RandomHillArguments(Arguments, kw_only=True, frozen=True):
    """Arguments of random hill climbing."""

    SOLUTION = "hc_solution.json"
    KIND = RandomHillClimbing
    steps: int = 5000


class HillArguments(Arguments, kw_only=True, frozen=True):
    """Arguments of first-improvement climbing."""

    SOLUTION = "hc_solution.json"
    KIND = HillClimbing


class LinearArguments(Arguments, kw_only=True, frozen=True):
    """Arguments of the search of all placements."""

    SOLUTION = "ls_solution.json"
    KIND = Exhaustive


class AnnealingArguments(Arguments, kw_only=True, frozen=True):
    """Arguments of simulated annealing; ``temp_schedule`` is a constant, or a name, a start and a factor."""

    SOLUTION = "sa_solution.json"
    KIND = SimulatedAnnealing
    steps: int = 500
    temp_schedule: float | tuple[Literal["exponential_multiplicative_decay"], float, float] = (
        "exponential_multiplicative_decay",
        40.0,
        0.95,
    )

    def search(self, **others: Any) -> Search:
        schedule = self.temp_schedule
        start, factor = (schedule[1], schedule[2]) if isinstance(schedule, tuple) else (schedule, 1.0)
        return super().search(temperature_ms=start, decay=factor, **others)


class DualAnnealingArguments(Arguments, kw_only=True, frozen=True):
    """Arguments of generalised annealing."""

    SOLUTION = "sa_solution.json"
    KIND = DualAnnealing
    steps: int = 500


class SwarmArguments(Arguments, kw_only=True, frozen=True):
    """Arguments of the particle swarm."""

    SOLUTION = "pso_solution.json"
    KIND = ParticleSwarm
    swarm: int = msgspec.field(default=100, name="swarm_size")
    inertia: float = msgspec.field(default=0.01, name="w")
    own: float = msgspec.field(default=0.01, name="l1")
    common: float = msgspec.field(default=0.01, name="l2")
    steps: int = 100


class GeneticArguments(Arguments, kw_only=True, frozen=True):
    """Arguments of the genetic search."""

    SOLUTION = "ga_solution.json"
    KIND = Genetic
    population: int = msgspec.field(default=100, name="population_size")
    generations: int = 100
    mutation_rate: float = 0.05
    crossover_rate: float = 0.8
    crossover_type: str = "one-point"
    sharing_rate: float = msgspec.field(default=0.2, name="mutation_sharding_rate")
    parents: Literal["rank", "tournament"] = msgspec.field(default="rank", name="parent_selection_mechanism")
    ranking: Literal["linear", "exponential"] = msgspec.field(default="linear", name="parent_selection_function")
    tournament_size: int = 10
    pressure: float = msgspec.field(default=2.0, name="s")
    evolve_rates: bool = msgspec.field(default=False, name="evolve_mutation_rate")
    least_rate: float = msgspec.field(default=0.05, name="min_mutation_rate")
    most_rate: float = msgspec.field(default=0.9, name="max_mutation_rate")
    elite: int = msgspec.field(default=1, name="elite_size")
    zone_rate: float = msgspec.field(default=0.0, name="zone_mutation_rate")
    copy_mutation_rate: float = 0.0
    trivial_start: bool = msgspec.field(default=True, name="include_trivial_solutions_in_initialization")
    plot_fitness_history: bool = False
    print_diversity: bool = False
    checkpoint_period: int = -1
    checkpoint_dir: str | None = None
    monitor_processors: bool = False
    benchmarking_population_size: int = 100
    benchmarking_generations: int = 50

    def search(self, **others: Any) -> Search:
        return super().search(crossover=_cuts(self.crossover_type) or "uniform", **others)

    def contradictions(self) -> Contradictions:
        yield from super().contradictions()
        if self.least_rate > self.most_rate:
            yield ("min_mutation_rate", "max_mutation_rate"), "the least rate is above the greatest"
        if self.elite > self.population:
            yield ("elite_size", "population_size"), "the elite is larger than the population"
        if self.population < 2:
            yield ("population_size",), "a population has two individuals or more"
        if self.parents == "tournament" and self.tournament_size > self.population:
            yield ("tournament_size", "population_size"), "a tournament has more entrants than there are"
        if _cuts(self.crossover_type) is None:
            yield ("crossover_type",), f"{self.crossover_type!r} is not uniform, one-point or K-point"


SLOWEST, FASTEST = 0.002, 100
"""Frames a second of a GIF, which keeps the time of a frame as hundredths of a second, in 16 bits."""


class MapElitesArguments(Arguments, kw_only=True, frozen=True):
    """Arguments of MAP-Elites."""

    SOLUTION = "me_solution.json"
    KIND = MapElites
    sizes: tuple[int, ...] = msgspec.field(default=(-1, -1, 10), name="dimension_sizes")
    initial: int = msgspec.field(default=50, name="initial_size")
    steps: int = 1000
    mutation_rate: float = 0.05
    copy_rate: float = msgspec.field(default=0.0, name="copy_mutation_rate")
    replace_rate: float = msgspec.field(default=0.0, name="replace_mutation_rate")
    zone_rate: float = msgspec.field(default=0.0, name="zone_mutation_rate")
    crossover_rate: float = 0.4
    selection: Literal["random", "tournament"] = "random"
    tournament_size: int = 10
    trivial_start: bool = msgspec.field(default=True, name="include_trivial_solutions")
    benchmarking_steps: int = 0
    benchmarking_n_keep: int | None = None
    benchmarking_time_threshold: float | None = None
    benchmark_before_selection: bool = False
    show_score_plot: bool = False
    plot_axes: tuple[int, ...] = (0, 2)
    plot_animation: bool = False
    animation_fps: float = 1
    archive_log_period: int | None = None

    def search(self, **others: Any) -> Search:
        return super().search(log_period=self.archive_log_period or 0, **others)

    def contradictions(self) -> Contradictions:
        yield from super().contradictions()
        if len(self.sizes) != 3:
            yield ("dimension_sizes",), "the archive has three dimensions"
        if any(size < 1 and size != -1 for size in self.sizes):
            yield ("dimension_sizes",), "a dimension has 1 cell or more, or is -1"
        if len(self.plot_axes) not in (2, 3) or not set(self.plot_axes) <= {0, 1, 2}:
            yield ("plot_axes",), "two or three of the axes 0, 1 and 2 are drawn"
        if self.plot_animation and not self.archive_log_period:
            yield ("plot_animation", "archive_log_period"), "an animation needs logs of the archive"
        if (self.archive_log_period or 0) < 0:
            yield ("archive_log_period",), "it is 0 or more"
        if not SLOWEST <= self.animation_fps <= FASTEST:
            yield ("animation_fps",), f"a GIF has {SLOWEST} to {FASTEST} frames a second"


def _cuts(text: str) -> int | None:
    """The number of cut points that ``crossover_type`` names, 0 for uniform; None for any other text."""
    words = {"uniform": 0, "one-point": 1, "two-point": 2}
    number = text.removesuffix("-point")
    return words.get(text, int(number) if number.isdecimal() and number != text and int(number) else None)


OPTIMIZERS: dict[str, type[Arguments]] = {
    "random_hill_climber": RandomHillArguments,
    "hill_climber": HillArguments,
    "linear_search": LinearArguments,
    "simulated_annealing": AnnealingArguments,
    "sa": AnnealingArguments,
    "scipy_simulated_annealing": DualAnnealingArguments,
    "scipy_sa": DualAnnealingArguments,
    "pso": SwarmArguments,
    "particle_swarm": SwarmArguments,
    "genetic_algorithm": GeneticArguments,
    "ga": GeneticArguments,
    "map_elites": MapElitesArguments,
    "map-elites": MapElitesArguments,
}
"""Arguments by the name of the optimizer in a configuration."""


def arguments_of(optimizer: str) -> type[Arguments] | str:
    """The arguments of ``optimizer``, or what to say where there is no such."""
    if optimizer in OPTIMIZERS:
        return OPTIMIZERS[optimizer]
    near = get_close_matches(optimizer, OPTIMIZERS, n=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"there are: {', '.join(OPTIMIZERS)}"
    return f"there is no optimizer {optimizer!r}; {hint}"
