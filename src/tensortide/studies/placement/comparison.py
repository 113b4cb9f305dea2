"""Algorithms against each other: problems x algorithms x seeds at an equal budget, side by side, resumable."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from tensortide.differences import relative
from tensortide.errors import PlacementError, RequestError
from tensortide.executors import Where, run_all
from tensortide.executors.request import WorkerRequest
from tensortide.placements.genes import OnDevices, text_of
from tensortide.placements.graphs import ready
from tensortide.placements.partitions.workload import is_workload
from tensortide.placements.problem import Problem
from tensortide.placements.search import COMPARED, Search, algorithm
from tensortide.progress import Say, silent
from tensortide.request import Arg, Opt, OutFile, Request
from tensortide.shown import Show
from tensortide.studies.finished import FinishedFile
from tensortide.studies.placement.config import read_config
from tensortide.studies.placement.configured import subject_of
from tensortide.studies.placement.measured import NS
from tensortide.studies.placement.placed import is_net
from tensortide.studies.placement.placed_workload import workload_problem
from tensortide.studies.placement.request import ClusterRequest, NetRequest, usual_budget
from tensortide.studies.placement.steps import StepRequest, captured
from tensortide.timing.json_file import read_json
from tensortide.versioned import Format

FORMAT = Format(
    "finished searches", "tensortide placement searches", (1,), PlacementError, "give --save the name of a new file"
)


@dataclass(frozen=True)
class Contender:
    """A search of a comparison; ``label`` tells it from the others (``labelled``)."""

    label: str
    search: Search


@dataclass(frozen=True)
class Task:
    """One search of a comparison, of a problem with a name; ``singles``: it is given every single device before."""

    name: str
    problem: Problem
    contender: Contender
    budget: int
    seed: int
    singles: bool = True


class FinishedSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a task, as the file of finished ones has it.

    ``history``: proposals and score, ms, at each improvement.
    """

    problem: Annotated[str, Show("Problem", "name")]
    algorithm: Annotated[str, Show("Algorithm", "code")]
    seed: Annotated[int, Show("Seed")]
    score_ms: Annotated[float, Show("Score, ms")]
    fits: Annotated[bool, Show("Fits")]
    bound_ms: float
    evaluations: Annotated[int, Show("Simulated")]
    proposals: Annotated[int, Show("Proposed")]
    cpu_s: Annotated[float, Show("CPU time")]
    placement: tuple[OnDevices, ...]
    history: tuple[tuple[int, float], ...]

    @property
    def devices(self) -> Annotated[str, Show("Placement", "code")]:
        """The placement as text: a ``+`` between devices that share a layer."""
        return text_of(self.placement)


@dataclass(frozen=True)
class SeedRuns:
    """All seeds of one algorithm on one problem: their scores, how many fit, medians of their work.

    ``against_change`` is that of the median against the best score of any algorithm. ``gap_share``: by which the best
    score may exceed the optimum; None without a bound, or if the best does not fit.
    """

    problem: Annotated[str, Show("Problem", "name")]
    algorithm: Annotated[str, Show("Algorithm", "code", fold=True)]
    outcomes: tuple[FinishedSearch, ...]
    median_ns: Annotated[float, Show("Median")]
    least_ns: Annotated[float, Show("Best")]
    most_ns: Annotated[float, Show("Worst")]
    against_change: Annotated[float | None, Show("Over the best")]
    gap_share: Annotated[float | None, Show("Gap to bound", at_width=90)]
    fits: Annotated[int, Show("Fit", at_width=90)]
    evaluations: Annotated[int, Show("Simulated", at_width=120)]
    cpu_s: Annotated[float, Show("CPU time", at_width=120)]

    def progress(self) -> dict[int, list[float]]:
        """The best score of each seed, ms, by the placements proposed so far: from 1 % of them on, as
        single devices are tried before, the slowest placements of all."""
        last = max(one.proposals for one in self.outcomes)
        first = max(1, last // 100)
        later = {moment for one in self.outcomes for moment, _ in one.history if moment > first}
        return {
            moment: [min((ms for at, ms in one.history if at <= moment), default=math.inf) for one in self.outcomes]
            for moment in sorted({first, *later, last})
        }


def contenders(names: Sequence[str], grid: Sequence[str] = ()) -> tuple[Contender, ...]:
    """The algorithms ``names``, each with every combination of the values in ``grid``: ``population=20,50``.

    Raises PlacementError for an algorithm, option or value that there is not.
    """
    axes = []
    for text in grid:
        name, equals, values = text.partition("=")
        if not equals:
            raise PlacementError(f"options to compare are written name=value,value, not {text!r}.")
        axes.append([(name.strip(), value.strip()) for value in values.split(",")])
    found = [algorithm(name, dict(each)) for name in names for each in itertools.product(*axes)]
    return labelled(found, {name for axis in axes for name, _ in axis})


def labelled(searches: Sequence[Search], named: Collection[str] = ()) -> tuple[Contender, ...]:
    """Label each different search by its algorithm, the options ``named``, and those in which others of it differ."""
    found = []
    for search in dict.fromkeys(searches):
        others = [one for one in searches if one.name == search.name]
        label = search.name
        for option in dataclasses.fields(search):
            value = getattr(search, option.name)
            if option.name in named or any(getattr(one, option.name) != value for one in others):
                label += f" {option.name}={str(value).removesuffix('.0')}"
        found.append(Contender(label, search))
    return tuple(found)


def compare(
    tasks: Sequence[Task],
    where: Where = Where(),  # noqa: B008
    *,
    saved: Path | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[SeedRuns, ...]:
    """Carry out ``tasks``; those in the file ``saved`` are not repeated, and new ones are appended as they end.

    ``watch`` is told how many of how many have ended.
    """
    keys = [_key(task) for task in tasks]
    with finished_searches(saved) if saved else contextlib.nullcontext() as file:
        known = {} if file is None else {key: file.results[key] for key in keys if key in file.results}
        new = [number for number, key in enumerate(keys) if key not in known]
        for count, (index, outcome) in enumerate(run_all(functools.partial(_carried_out, tasks), new, where)):
            key = keys[new[index]]
            known[key] = outcome
            if file is not None:
                file.add(key, outcome)
            watch(len(keys) - len(new) + count + 1, len(keys))
    return tuple(_lines([known[key] for key in keys], tasks))


def finished_searches(path: Path) -> FinishedFile[FinishedSearch]:
    """The file of finished searches at ``path``, by a digest of everything that each depends on."""
    return FinishedFile(path, FORMAT, FinishedSearch, "search")


def _carried_out(tasks: Sequence[Task], number: int) -> FinishedSearch:
    """Search task ``number`` of ``tasks``, which travel to a worker once."""
    task = tasks[number]
    found = task.contender.search.search(task.problem, task.budget, task.seed, singles=task.singles)
    return FinishedSearch(
        problem=task.name,
        algorithm=task.contender.label,
        seed=task.seed,
        score_ms=found.score_ms,
        fits=found.over_bytes <= 0,
        bound_ms=found.bound_ms,
        evaluations=found.evaluations,
        proposals=found.proposals,
        cpu_s=found.cpu_s,
        placement=task.problem.on_devices(found.placement),
        history=tuple((one.proposals, one.score_ms) for one in found.history),
    )


def _key(task: Task) -> str:
    parts = (task.problem.digest, repr(task.contender.search), task.budget, task.seed, task.singles)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def _lines(outcomes: Sequence[FinishedSearch], tasks: Sequence[Task]) -> Iterator[SeedRuns]:
    groups: dict[tuple[str, str], list[FinishedSearch]] = {}
    for task, outcome in zip(tasks, outcomes, strict=True):
        groups.setdefault((task.name, task.contender.label), []).append(outcome)
    for (problem, label), found in groups.items():
        scores, best = [one.score_ms for one in found], min(found, key=lambda one: one.score_ms)
        median = statistics.median(scores)
        yield SeedRuns(
            problem,
            label,
            tuple(found),
            *(median * NS, best.score_ms * NS, max(scores) * NS),
            relative(min(one.score_ms for (of, _), each in groups.items() if of == problem for one in each), median),
            relative(found[0].bound_ms, best.score_ms) if best.fits else None,
            sum(one.fits for one in found),
            round(statistics.median(one.evaluations for one in found)),
            statistics.median(one.cpu_s for one in found),
        )


@dataclass(frozen=True, kw_only=True)
class PlaceCompareRequest(Request):
    """Ask which algorithm finds better placements."""

    GROUP = "The search"

    problems: Annotated[
        tuple[str, ...],
        Arg(
            "Networks or captured steps, on --machine; or configuration files and workloads of dnn-partitioning, which "
            "name their own."
        ),
    ]
    algorithms: Annotated[
        str | None,
        Opt(
            "Algorithms, separated by commas: best,random (default: those of configurations, else all but cp and "
            "exhaustive).",
            common=True,
            value="NAMES",
        ),
    ] = None
    grid: Annotated[
        tuple[str, ...],
        Opt("An option of the algorithms with values to compare: population=20,50.", value="KEY=VALUES"),
    ] = ()
    seeds: Annotated[int, Opt("Seeds that each algorithm is run with, from 0 on.", least=1, common=True)] = 5
    budget: Annotated[
        int | None,
        Opt("Placements that each algorithm tries (default: 20,000; of a captured step 2,000).", least=1, common=True),
    ] = None
    save: Annotated[
        Path | None,
        OutFile("File of finished searches: those in it are not repeated, new ones are added."),
    ] = None
    workers: WorkerRequest = field(default_factory=WorkerRequest)
    cluster: ClusterRequest = field(default_factory=ClusterRequest)
    net: NetRequest = field(default_factory=NetRequest)
    step: StepRequest = field(default_factory=StepRequest)

    def tasks(self, say: Say = silent) -> Iterator[Task]:
        """The searches of every problem, algorithm and seed. Raises RequestError for options of another kind of
        problem, and for ``--shard auto``, which searches itself."""
        names = self.algorithms.split(",") if self.algorithms else COMPARED
        groups: dict[tuple[str, str], tuple[str, Problem, list[Search]]] = {}
        for target in self.problems:
            name, problem, own = self._problem(target, say)
            searches = groups.setdefault((name, problem.digest), (target, problem, []))[2]
            searches += [] if own is None else [own]
        names_of = Counter(name for name, _ in groups)
        for (name, _), (target, problem, own_ones) in groups.items():
            title = name if names_of[name] == 1 else f"{name} ({target})"
            # A configuration says itself whether single devices are in the first generation, as ``place run`` has it.
            singles = not own_ones
            found = labelled(own_ones) if own_ones and not self.algorithms else contenders(names, self.grid)
            most = self.budget or usual_budget(problem)
            for each in found:
                yield from (Task(title, problem, each, most, seed, singles) for seed in range(self.seeds))

    def _problem(self, target: str, say: Say) -> tuple[str, Problem, Search | None]:
        """The problem that ``target`` means, and the search where it is a configuration."""
        path = Path(target)
        if is_workload(path):
            alone = all(is_workload(Path(each)) for each in self.problems)
            problem = workload_problem(path, *((self.cluster,) if alone else ()), self.net, self.step)
            return problem.workload.name, problem, None
        if not is_net(target, self.net, self.step):
            return *self._step(target, say), None
        if "optimizer" not in read_json(path, dict[str, msgspec.Raw], "a network or a configuration"):
            subject = self.net.subject(path, self.cluster)
            batch = subject.net.batch(subject.settings.batch_size)
            return f"{path.stem} on {subject.cluster.name}, batch {batch:,}", subject.problem, None
        config = read_config(path)
        subject = subject_of(config)
        settings = subject.settings
        several = f", {settings.batches} batches" if settings.batches > 1 else ""
        rates = f"p {settings.comp_penalization:g}, q {settings.comm_penalization:g}"
        name = f"{config.net.stem} on {subject.cluster.name}{several}, {rates}"
        return name, subject.problem, config.arguments.search()

    def _step(self, target: str, say: Say) -> tuple[str, Problem]:
        if self.step.has_shards_found:
            raise RequestError("--shard auto searches itself: give place compare the modules, as in h.*.mlp=output:2")
        cluster = self.cluster.of_steps()
        graph = captured(target, self.step.capture, cluster, say)
        options = self.step.place_options(self.cluster.in_flight)
        return f"{graph.meta.workload or target} on {cluster.name}", ready(graph, cluster, options).problem


def answer(asked: PlaceCompareRequest, say: Say = silent) -> tuple[SeedRuns, ...]:
    """All seeds of each algorithm on each problem. Raises as ``PlaceCompareRequest.tasks``."""
    return compare(
        [*asked.tasks(say)],
        asked.workers.where,
        saved=asked.save,
        watch=lambda done, total: say(f"{done} of {total} searches"),
    )
