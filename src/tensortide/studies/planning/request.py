"""Questions to the planner: the fastest plan under a budget, those of a row of budgets, and the order of the least
memory."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from tensortide.errors import ExitStatus, PlanError, RequestError
from tensortide.graph import unrolled
from tensortide.importers.door import resolve
from tensortide.plans import footprint, load_plan, validate
from tensortide.plans.immovable import immovable
from tensortide.plans.model import plan_writer
from tensortide.progress import UNWATCHED, Search
from tensortide.recorder.target import Workload
from tensortide.replays.g10 import chosen
from tensortide.replays.remat.budgets import MISSING, Budget, budget_or_auto, one_budget
from tensortide.request import Arg, Opt, Request, Rule, exclusive, needs
from tensortide.studies.planning.budget import budget_bytes
from tensortide.studies.planning.frontier import frontier
from tensortide.studies.planning.g10_comparison import Compared
from tensortide.studies.planning.pins import pinned
from tensortide.studies.planning.planning import plan
from tensortide.studies.planning.policies import compared
from tensortide.studies.planning.tiers import TiersRequest
from tensortide.studies.torch_file import Asked, TorchFile, make
from tensortide.studies.torch_file.choice import own_suffix
from tensortide.targets.again import capture_again
from tensortide.targets.opening import graph_of, settings_of
from tensortide.targets.recordings import recorded_step
from tensortide.targets.requests import TARGET, CaptureRequest, TimedRequest, Top
from tensortide.units import format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.plans import Plan
    from tensortide.plans.order.minimal import MinimalFootprint
    from tensortide.plans.planned import Frontier, Planned
    from tensortide.plans.remat.schedule import Recording
    from tensortide.plans.under_budget.search import Watch
    from tensortide.timing.links import Link

LOG = logging.getLogger("tensortide")
LIMIT = "Seconds that the search may take (default: 60 of processor time, 120 for a frontier; none with --work-limit)."
APART = "policies are compared on a machine of their own"
_MOST_EFFORT = 1e9
"""Millions of ops played, of which a search counts single ones in 64 bits."""
_SEARCH = "The search"
_STATUSES = {"fits": ExitStatus.HOLDS, "infeasible": ExitStatus.FAILS, "none found": ExitStatus.UNDECIDED}


@dataclass(frozen=True, kw_only=True)
class PlannerRequest(Request):
    """The plans that are allowed, and how long to look for one."""

    GROUP = "The plans that are allowed"

    order: Annotated[
        Literal["recorded", "free"],
        Opt("Order of the first run of each op: as recorded, or any that dependencies allow."),
    ] = "recorded"
    keep_random: Annotated[bool, Opt("Ops that draw random numbers, such as dropout, run only once.")] = False
    no_recompute: Annotated[bool, Opt("No op runs again: tensors only move (--offload), or ops change order.")] = False
    pin: Annotated[
        tuple[str, ...], Opt("Tensors that stay, by module or role: blocks.*.mlp, parameter.", value="NAME")
    ] = ()
    against: Annotated[
        tuple[Path, ...], Opt("A plan to beat: the result is no slower where it fits.", group=_SEARCH)
    ] = ()
    effort: Annotated[
        float,
        Opt(
            "Length of the search, in millions of ops played: the plan depends on it, not on the clock, unless the "
            "time limit comes first.",
            least=0,
            most=_MOST_EFFORT,
            group=_SEARCH,
        ),
    ] = 100.0
    time_limit: Annotated[float | None, Opt(LIMIT, least=0, common=True, value="SECONDS", group=_SEARCH)] = None
    work_limit: Annotated[
        float | None,
        Opt(
            "Ops played after which the search stops: it finds the same on any machine, however loaded.",
            least=0,
            group=_SEARCH,
        ),
    ] = None
    tiers: TiersRequest = TiersRequest()

    @property
    def search(self) -> dict[str, Any]:
        """The limits of the search, as arguments of the planners."""
        return {
            "recompute": not self.no_recompute,
            "effort": self.effort,
            "time_limit_s": self.time_limit,
            "work_limit": self.work_limit,
        }

    def of(self, graph: Graph) -> dict[str, Any]:
        """All of it as arguments of ``plan`` for ``graph``. What a live run cannot move is pinned, so that no plan asks
        for it.

        Raises:
            PlanError: a plan to beat does not execute ``graph``, or a pattern names no tensor.
        """
        return {
            **self.search,
            "links": self.tiers.links,
            "order": self.order,
            "keep_random": self.keep_random,
            "pinned": immovable(graph) | pinned(graph, self.pin),
            "known": {str(path): self._to_beat(path, graph) for path in self.against},
        }

    def _to_beat(self, path: Path, graph: Graph) -> Plan:
        found = load_plan(path)
        try:
            validate(found, graph, links=self.tiers.links)
        except PlanError as error:
            writer = "" if found.graph == graph.index.digest else plan_writer(path)
            raise PlanError(f"{path} does not execute this step: {error}{writer}") from error
        return found


def _no_budget(asked: Request) -> str | None:
    return None if asked.has("budget") or asked.has("policies") else MISSING


def _no_python(asked: Request) -> str | None:
    path = asked.get("torch")
    if path is None or path.suffix == ".py":
        return None
    return f"--torch writes Python: give a name that ends with .py, not {path.name}"


@dataclass(frozen=True, kw_only=True)
class PlanRequest(Request):
    """Question for the fastest way to execute a step under a memory budget."""

    GROUP = "The budget"

    target: Annotated[str, Arg(TARGET)]
    budget: Annotated[
        Budget | Literal["auto"] | None,
        Opt(
            "Memory that the step may take: 8GiB, 60% (of its peak without a budget), 60%act (of the activations in "
            "that), or auto (what is free).",
            read=partial(budget_or_auto, many="tensortide plan frontier"),
            common=True,
        ),
    ] = None
    plan: Annotated[
        Path | None,
        Opt(
            "Write the plan to a file that tensortide run --policy FILE follows.",
            writes=True,
            common=True,
            group="Output",
        ),
    ] = None
    torch: Annotated[
        Path | None,
        Opt(
            "Write a Python file that runs the step within the budget with PyTorch alone.",
            writes=True,
            replaces=own_suffix,
            common=True,
            group="Output",
        ),
    ] = None
    policies: Annotated[
        Sequence[str] | None,
        Opt(
            "Compare with policies of G10 on the machine of its authors, or with the links given: all, or names such "
            "as deepum,g10 (docs/plans.md).",
            read=chosen,
            value="NAMES",
            group="Policies of G10",
        ),
    ] = None
    compat_memory: Annotated[
        bool, Opt("With --policies: play g10-gds and g10-host with four times the memory.", group="Policies of G10")
    ] = False
    top: Top = 10
    planner: PlannerRequest = PlannerRequest()
    step: TimedRequest = TimedRequest()

    RULES = (
        Rule(("budget", "policies"), _no_budget),
        Rule(("torch",), _no_python),
        needs("compat_memory", "policies"),
        *(
            exclusive(name, "policies", why=APART)
            for name in ("plan", "torch", "order", "pin", "against", "keep_random", "ssd_memory")
        ),
    )


class PlannedStep(NamedTuple):
    """A step, and its plan under a budget with the file for PyTorch alone, or policies compared with such a plan."""

    recording: Recording
    found: Planned | Compared
    file: TorchFile | None = None
    links: tuple[Link, ...] = ()

    @property
    def status(self) -> ExitStatus:
        """The answer to whether there is a plan, and text for the file if one is asked for."""
        if isinstance(self.found, Compared):
            return self.found.status
        lacks_file = self.file is not None and not self.file.text and not self.file.needless
        return _STATUSES[self.found.status] or (ExitStatus.UNDECIDED if lacks_file else ExitStatus.HOLDS)


def answer(asked: PlanRequest, search: Search = UNWATCHED) -> PlannedStep:
    """The fastest plan of the step under the budget that is found until the search is stopped, or policies beside it if
    some are asked for."""
    _require_again(asked)
    planner, recording, device = opened_for(asked, search)
    nbytes = None if asked.budget is None else budget_bytes(asked.budget, recording.graph, device)
    if asked.policies is not None:
        search.preparing()
        return PlannedStep(recording, compared(asked, recording, device, nbytes, watch_of(search)))
    assert nbytes is not None
    how = planner.of(recording.graph)
    search.preparing()
    made = plan(recording, nbytes, device=device, followed=asked.torch is None, watch=watch_of(search), **how)
    return PlannedStep(recording, made, links=planner.tiers.links)


def with_file(asked: PlanRequest, step: PlannedStep) -> PlannedStep:
    """The step with the file for PyTorch alone, if one is asked for.

    Raises:
        PlanError: no file can change the step.
    """
    if asked.torch is None or isinstance(step.found, Compared):
        return step
    found = resolve(asked.target)
    # ``answer`` has refused targets that cannot be captured once more, before the search.
    again, _ = capture_again(found, asked.step.capture)
    assert again is not None
    assert isinstance(found, Workload)
    settings = settings_of(found, asked.step.capture)
    file = make(
        Asked(
            step.recording,
            step.found,
            lambda changes: again(settings, changes, False),
            links=tuple(one for one in step.links if one.name == "host"),
            keep_random=asked.planner.keep_random,
            name=asked.torch.stem,
            recompute=not asked.planner.no_recompute,
            target=asked.target,
            pinned=pinned(step.recording.graph, asked.planner.pin),
        )
    )
    return step._replace(file=file)


def _require_again(asked: PlanRequest) -> None:
    """Raise RequestError if a file for PyTorch is asked for a target that cannot be captured once more."""
    why_not = "" if asked.torch is None else capture_again(resolve(asked.target), asked.step.capture)[1]
    if why_not:
        raise RequestError(f"--torch: {why_not}")


@dataclass(frozen=True, kw_only=True)
class FrontierRequest(Request):
    """Question for what memory costs in time: the fastest plans under a row of budgets."""

    GROUP = "The budget"

    target: Annotated[str, Arg(TARGET)]
    points: Annotated[int, Opt("Budgets to find the fastest plan for.", least=2, common=True)] = 12
    budget: Annotated[
        Budget | None,
        Opt(
            "Budget of yours, drawn as a line: 8GiB, 60% of the peak, or 60%act of the activations in it.",
            read=partial(one_budget, many="a line in the picture"),
            common=True,
        ),
    ] = None
    planner: PlannerRequest = PlannerRequest()
    step: TimedRequest = TimedRequest()


class FrontierOfStep(NamedTuple):
    """A step, its plans under a row of budgets, and the user's budget in bytes."""

    recording: Recording
    found: Frontier
    budget_bytes: int | None

    @property
    def status(self) -> ExitStatus:
        """The answer to whether there is any plan."""
        return ExitStatus.HOLDS if any(point.plan for point in self.found.points) else ExitStatus.UNDECIDED


def answer_frontier(asked: FrontierRequest, search: Search = UNWATCHED) -> FrontierOfStep:
    """The fastest plans from the least memory that any is found for up to no budget."""
    planner, recording, device = opened_for(asked, search)
    own = None if asked.budget is None else budget_bytes(asked.budget, recording.graph, device)
    how = planner.of(recording.graph)
    search.preparing()
    found = frontier(recording, points=asked.points, device=device, watch=watch_of(search), **how)
    return FrontierOfStep(recording, found, own)


def opened_for(asked: PlanRequest | FrontierRequest, search: Search) -> tuple[PlannerRequest, Recording, str]:
    """The plans that are allowed, with the tiers of the machine, the step with its durations, and the device to plan
    for; says which tensors are too large for a tier."""
    compares = isinstance(asked, PlanRequest) and asked.policies is not None  # these take the machine as it is
    tiers = asked.planner.tiers if compares else asked.planner.tiers.on(asked.step.capture.machine)
    recording = recorded_step(asked.target, asked.step, search.say)
    for tier in tiers.links:
        most = tier.capacity_bytes
        large = [int(one.nbytes) for one in recording.graph.storages if most is not None and one.nbytes > most]
        if large:
            LOG.warning(
                "%s tensors, up to %s, can never move to %s: it has %s. Give it more, or another tier",
                *(f"{len(large):,}", format_bytes(max(large)), tier.name, format_bytes(most or 0)),
            )
    planner = replace(asked.planner, tiers=tiers)
    return planner, recording, recording.graph.index.device(asked.step.capture.device or "")


@dataclass(frozen=True, kw_only=True)
class OrderRequest(Request):
    """Question for the order of the ops that needs the least memory."""

    GROUP = _SEARCH

    target: Annotated[str, Arg(TARGET)]
    plan: Annotated[
        Path | None, Opt("Write the best order to a file, as a plan.", writes=True, common=True, group="Output")
    ] = None
    time_limit: Annotated[
        float | None,
        Opt(
            "Seconds that the search may take (default: 60 of processor time; none with --work-limit).",
            above=0,
            common=True,
            value="SECONDS",
        ),
    ] = None
    work_limit: Annotated[
        int | None,
        Opt(
            "Steps of about a microsecond after which the search stops (default: 40,000,000): the same on any "
            "machine, however loaded.",
            least=0,
        ),
    ] = None
    top: Top = 15
    capture: CaptureRequest = CaptureRequest()


def answer_order(asked: OrderRequest, search: Search = UNWATCHED) -> tuple[Graph, MinimalFootprint]:
    """The step, its loops written out, and the order of the least peak that is found until the search is stopped."""
    graph = graph_of(asked.target, asked.capture, search.say)

    def watch(lower: int, upper: int) -> bool:
        gap = format_percent(upper - lower, lower)
        search.known(f"best {format_bytes(upper)}, at least {format_bytes(lower)}, gap {gap}")
        return not search.stopped()

    found = footprint(
        graph, device=asked.capture.device, work_limit=asked.work_limit, time_limit_s=asked.time_limit, watch=watch
    )
    return unrolled(graph), found


def watch_of(search: Search) -> Watch:
    """Have a planner say how its search goes, and end when ``search`` is stopped. A part of the search that has no plan
    of its own yet does not hide the best of those before."""
    found: list[int] = []

    def watch(best_ns: int | None, bound_ns: int) -> bool:
        if best_ns is not None:
            found[:] = [min([best_ns, *found])]
        best = f"best {format_seconds(found[0] / 1e9)}" if found else "no plan yet"
        search.known(f"{best}, none is faster than {format_seconds(bound_ns / 1e9)}")
        return not search.stopped()

    return watch
