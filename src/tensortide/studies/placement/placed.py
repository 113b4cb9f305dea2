"""A target that is placed: a network of layers, a workload of dnn-partitioning, or a captured step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tensortide.errors import DegreesError, ExitStatus, OutputError, RequestError, TensortideError
from tensortide.graph import Graph, unrolled
from tensortide.importers.door import recognize
from tensortide.placements import write_assignment
from tensortide.placements.graphs import PlacedStep, placed, played, ready
from tensortide.placements.graphs.auto_shards import AutoSharded, auto_shards
from tensortide.placements.partitions.workload import is_workload, split_text
from tensortide.placements.search import SearchResult
from tensortide.plans import save_plan
from tensortide.progress import UNWATCHED, Search
from tensortide.request import Arg, Opt, Request, Rule, exclusive, options
from tensortide.shown import Shown
from tensortide.studies.placement.placed_net import PlacedNet
from tensortide.studies.placement.placed_workload import PlacedWorkload, workload_problem
from tensortide.studies.placement.request import ClusterRequest, NetRequest, SearchRequest
from tensortide.studies.placement.result import ResultRequest
from tensortide.studies.placement.steps import AUTO, StepRequest
from tensortide.studies.ranks import workload_of
from tensortide.studies.scale.captured import samples_of
from tensortide.targets.opening import settings_of
from tensortide.targets.requests import TARGET
from tensortide.write import write_file

if TYPE_CHECKING:
    from tensortide.run.placed.placed_run import MeasuredPlacement

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
        Opt(
            "Write the placement, as a JSON file from layer to device; of a captured step its Plan.",
            writes=True,
            common=True,
            group="Output",
        ),
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


@dataclass(repr=False)
class Placed(Shown):
    """A placed target. Of a captured step: the batch if it has inputs, and the ``shards`` that were found for ``--shard
    auto``.

    ``wrote``: files; ``notes``: what of it its device map cannot say; ``measured``: a run of it; ``failed``: what could
    not be exported or run after all.
    """

    SECTION = "placed_step"

    asked: PlaceRequest
    found: PlacedNet | PlacedStep | PlacedWorkload
    samples: int | None = None
    shards: AutoSharded | None = None
    wrote: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    measured: MeasuredPlacement | None = None
    failed: list[TensortideError] = field(default_factory=list)

    @property
    def is_net(self) -> bool:
        """True of a network of layers."""
        return isinstance(self.found, PlacedNet)

    @property
    def is_workload(self) -> bool:
        """True of a workload of dnn-partitioning."""
        return isinstance(self.found, PlacedWorkload)

    @property
    def fits(self) -> bool:
        """True if the placement fits the memory of every device."""
        return self.found.run.fits if isinstance(self.found, PlacedNet) else self.found.fits

    @property
    def search(self) -> SearchResult | None:
        """The result of the search; None of a Plan that was played."""
        return self.found.search if isinstance(self.found, PlacedStep) else self.found.found

    @property
    def status(self) -> ExitStatus:
        """FAILS if it does not fit and none does, or if a run differs; UNDECIDED if another one may fit."""
        if self.fits:
            return ExitStatus.HOLDS if self.measured is None or self.measured.verified else ExitStatus.FAILS
        return ExitStatus.FAILS if self.search is None or self.search.none_fits else ExitStatus.UNDECIDED

    @property
    def runs(self) -> bool:
        """True if it is to run."""
        return self.fits and self.asked.result.run is not None

    def run(self) -> None:
        """Run it, if that was asked for and it fits; what fails, first of all on a rank, is in ``failed``."""
        target, steps = self.asked.target, self.asked.result.run
        if isinstance(self.found, PlacedStep) and steps is not None and self.fits:
            from tensortide.run.placed.placed_run import RunnableStep, run_placed
            from tensortide.run.placed.seeded import SeededWorkload

            try:
                settings = settings_of(workload_of(target), self.asked.step.capture)
                self.measured = run_placed(SeededWorkload(target, settings, steps), RunnableStep.of(self.found))
            except TensortideError as error:
                self.failed.append(error)

    def raise_errors(self) -> None:
        """Raise OutputError if the file to resume from could not be written, and what is in ``failed``: several errors
        become one, a line each."""
        if self.search is not None and self.search.unsaved:
            raise OutputError(
                f"{self.search.unsaved}\nThe search ended as shown; it resumes from what was written before."
            )
        if len(self.failed) > 1:
            raise TensortideError("\n".join(map(str, self.failed)))
        for error in self.failed:
            raise error


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
    found = PlacedWorkload(problem, asked.search.kind, asked.search.found(problem, search))
    wrote = asked.search.wrote(found.found)
    if asked.out is not None:
        wrote.insert(0, write_file(asked.out, split_text(problem.workload, found.nodes)))
    return Placed(asked, found, wrote=wrote)


def _net(asked: PlaceRequest, search: Search, check: Callable[[int], None]) -> Placed:
    subject = asked.net.subject(Path(asked.target), asked.cluster)
    check(len(subject.net.order))
    found = subject.placed(asked.search.kind, asked.search.found(subject.problem, search))
    wrote = asked.search.wrote(found.found)
    if asked.out is not None:
        wrote.insert(0, write_assignment(asked.out, subject.net, found.placement, subject.cluster))
    return Placed(asked, found, wrote=wrote)


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
    return Placed(asked, found, _samples(graph), shards, wrote, notes, failed=failed)


def _samples(graph: Graph) -> int | None:
    """The batch of the captured step, if it has inputs."""
    try:
        return samples_of(unrolled(graph))
    except DegreesError:
        return None
