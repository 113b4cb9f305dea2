"""A target that is placed: a network of layers, a workload of dnn-partitioning, or a captured step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tensortide.errors import DegreesError, ExitStatus, RequestError, TensortideError
from tensortide.graph import Graph, unrolled
from tensortide.importers.door import recognize
from tensortide.placements import write_assignment
from tensortide.placements.graphs import PlacedStep, placed, played, ready
from tensortide.placements.graphs.auto_shards import AutoSharded, auto_shards
from tensortide.placements.partitions.workload import is_workload, split_text
from tensortide.plans import save_plan
from tensortide.progress import UNWATCHED, Search
from tensortide.request import Arg, OutFile, Request, Rule, exclusive, options
from tensortide.studies.placement.outcome import Placed
from tensortide.studies.placement.placed_workload import PlacedWorkload, workload_problem
from tensortide.studies.placement.request import ClusterRequest, NetRequest, SearchRequest
from tensortide.studies.placement.result import ResultRequest
from tensortide.studies.placement.steps import AUTO, StepRequest
from tensortide.studies.scale.captured import samples_of
from tensortide.targets.requests import TARGET
from tensortide.write import write_file

if TYPE_CHECKING:
    from tensortide.run.placed.placed_run import MeasuredPlacement
    from tensortide.run.placed.seeded import SeededWorkload

_AS_IT_IS = "a Plan is played as it is, without a search"
_NET = "a network of layers (a JSON file)"
_ON_CPU = "the step runs as the CPU of this machine runs it"


def _shards_found(request: Request) -> str | None:
    found = request.has("plan") and AUTO in request.get("shard")
    return f"--plan and --shard {AUTO} exclude each other: {_AS_IT_IS}" if found else None


@dataclass(frozen=True, kw_only=True)
class PlaceRequest(Request):
    """Ask on which device of a cluster each layer, or op of a captured step, runs."""

    target: Annotated[
        str,
        Arg(
            "A network: a JSON file of layers, or a workload of dnn-partitioning (docs/placement.md). "
            f"Or a step: {TARGET[0].lower()}{TARGET[1:]}"
        ),
    ]
    cluster: ClusterRequest = field(default_factory=ClusterRequest)
    net: NetRequest = field(default_factory=NetRequest)
    search: SearchRequest = field(default_factory=SearchRequest)
    step: StepRequest = field(default_factory=StepRequest)
    out: Annotated[
        Path | None,
        OutFile("Write the placement, as a JSON file from layer to device; of a captured step its Plan."),
    ] = None
    result: ResultRequest = field(default_factory=ResultRequest)

    RULES = (
        *(
            exclusive("plan", one.field.name, why=_AS_IT_IS)
            for one in options(SearchRequest)
            if one.field.name != "threads"
        ),
        exclusive("plan", "pin", why=_AS_IT_IS),
        Rule(("plan", "shard"), _shards_found),
        *(exclusive("run", name, why=_ON_CPU) for name in ("ranks", "compiled", "first_step")),
    )


@dataclass(eq=False, repr=False)
class StepPlacement(Placed):
    """A captured step as it was placed (``found``).

    ``samples``: the batch, if it has inputs; ``shards``: those found for ``--shard auto``; ``notes``: what its device
    map cannot say; ``workload``: the steps to run, if any, and ``measured`` their run.
    """

    SECTION = "placed_step"
    TABLE, PICTURES = "units", ("timeline", "memory", "measured")

    target: str
    found: PlacedStep
    samples: int | None = None
    shards: AutoSharded | None = None
    notes: list[str] = field(default_factory=list)
    workload: SeededWorkload | None = None
    measured: MeasuredPlacement | None = None

    @property
    def fits(self) -> bool:
        return self.found.fits

    @property
    def runs(self) -> bool:
        return self.fits and self.workload is not None

    def run(self) -> None:
        if self.workload is not None and self.fits:
            from tensortide.run.placed.placed_run import run_placed

            try:
                self.measured = run_placed(self.workload, self.found)
            except TensortideError as error:
                self.failed.append(error)

    @property
    def status(self) -> ExitStatus:
        """Return that of any placement, or FAILS for a run that differs."""
        return super().status if self.measured is None or self.measured.verified else ExitStatus.FAILS


def answer(
    asked: PlaceRequest, search: Search = UNWATCHED, check: Callable[[int], None] = lambda count: None
) -> Placed:
    """Place the target, until the search is stopped, and write the placement as it is asked for. ``check`` may refuse
    the number of layers, or units, before.

    Raises:
        RequestError: an option goes with another kind of target, or there is no cluster.
        NothingFits: no placement fits, whatever is searched.
    """
    if is_workload(Path(asked.target)):
        return _workload(asked, search)
    of_net = is_net(asked.target, asked.net, asked.step, asked.result)
    return _net(asked, search, check) if of_net else _step(asked, search, check)


def is_net(target: str, net: NetRequest, *of_steps: Request) -> bool:
    """Tell whether ``target`` is a network's JSON file: one that no importer reads, or that is not there. Raises
    RequestError if an option of the other kind of target is given, of those of networks or ``of_steps``."""
    found = target.lower().endswith(".json") and recognize(Path(target)) is None
    what, other = ("a network of layers", "a captured step") if found else ("a captured step", _NET)
    for one in (one for request in (of_steps if found else (net,)) for one in request.given()):
        raise RequestError(f"{target} is {what}: {one.name} goes with {other}")
    return found


def place_and_run(asked: PlaceRequest) -> Placed:
    """The placed target, as ``answer`` has it, and a run of it where that is asked for.

    Raises:
        OutputError: a file could not be written.
        TensortideError: it could not be exported or run.
    """
    found = answer(asked)
    found.run()
    found.raise_errors()
    return found


def _workload(asked: PlaceRequest, search: Search) -> Placed:
    problem = workload_problem(Path(asked.target), asked.cluster, asked.net, asked.step, asked.result)
    found = PlacedWorkload(problem, asked.search.kind, search=asked.search.found(problem, search))
    if asked.out is not None:
        found.wrote.append(write_file(asked.out, split_text(problem.workload, found.nodes)))
    found.wrote += asked.search.wrote(found.search)
    return found


def _net(asked: PlaceRequest, search: Search, check: Callable[[int], None]) -> Placed:
    subject = asked.net.subject(Path(asked.target), asked.cluster)
    check(len(subject.net.order))
    found = subject.placed(asked.search.kind, asked.search.found(subject.problem, search))
    if asked.out is not None:
        found.wrote.append(write_assignment(asked.out, subject.net, found.placement, subject.cluster))
    found.wrote += asked.search.wrote(found.search)
    return found


def _step(asked: PlaceRequest, search: Search, check: Callable[[int], None]) -> Placed:
    result, chosen = asked.result, asked.step.place_options(asked.cluster.in_flight)
    plan = result.loaded()
    cluster, graph = result.opened(asked.target, asked.step.capture, asked.cluster, search.say)
    shards = auto_shards(graph, cluster, chosen, seed=asked.search.seed) if asked.step.has_shards_found else None
    prepared = ready(graph, cluster, chosen if shards is None else replace(chosen, shards=shards.shards))
    result.check_ready(prepared, plan)
    check(len(prepared.problem.names))
    if plan is not None:
        found = played(prepared, plan)
    else:
        best = asked.search.found(prepared.problem, search)
        found = placed(prepared, best.placement, best)
    wrote = [] if asked.out is None else [save_plan(found.plan, asked.out)]
    exported, notes, failed = result.exported(found)
    wrote += [*asked.search.wrote(found.search), *exported]
    workload = result.workload(asked.target, asked.step.capture)
    step = StepPlacement(asked.target, found, _samples(graph), shards, notes, workload, search=found.search)
    step.wrote, step.failed = wrote, failed
    return step


def _samples(graph: Graph) -> int | None:
    """The batch of the captured step, if it has inputs."""
    try:
        return samples_of(unrolled(graph))
    except DegreesError:
        return None
