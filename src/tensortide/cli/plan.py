"""``tensortide plan``: how to execute a step in less memory.

``plan TARGET --budget``: the fastest plan under a budget, with a bound. ``plan frontier``: that for a row of budgets.
``plan order``: the smallest peak over all orders of the ops, with the order and a proof."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from cyclopts import App, Parameter, validators

from tensortide.cli.durations import TimeOptions
from tensortide.cli.messages import say_warning
from tensortide.cli.numbers import Real
from tensortide.cli.remat.target import StepRules, recording_of
from tensortide.cli.search import PREPARING, Searching, searching
from tensortide.cli.show import Files, show
from tensortide.cli.source import CaptureOptions, OutputOptions, Target, Top, graph_of, option, progress
from tensortide.cli.torch_file import Made, check_torch_file, torch_file_for
from tensortide.errors import PlanError, TensortideError, WorkloadError
from tensortide.graph import unrolled
from tensortide.importers.door import resolve
from tensortide.plans import footprint, load_plan, save_plan, validate
from tensortide.plans.immovable import immovable
from tensortide.recorder.target import Workload
from tensortide.studies.planning.pins import pinned
from tensortide.studies.planning.planning import TIME_LIMIT_S
from tensortide.studies.remat.budgets import Budget, one_budget
from tensortide.timelines import timeline
from tensortide.timing import link
from tensortide.units import format_bytes, format_percent, format_seconds, parse_bytes
from tensortide.write import check_writable

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.plans import Plan
    from tensortide.plans.planned import Planned
    from tensortide.plans.remat.schedule import Recording
    from tensortide.plans.under_budget.search import Watch
    from tensortide.timing import Link

_TIME_LIMIT = "Seconds after which the search stops (default: 60; none with --work-limit)."
AUTO = "auto"
"""The budget of what is free on the device."""

plan = App(name="plan", help="Plan how to execute a step in less memory.", help_format="plaintext")


_MOST_EFFORT = 1e9
"""Millions of ops played, of which a search counts single ones in 64 bits."""
_LINKS = {"host": "pcie4", "ssd": "nvme"}
"""The link to each tier, unless one is given."""


@Parameter(name="*")
@dataclass(frozen=True)
class PlanOptions:
    """Options of planning under a budget: which plans are allowed, and how long to look for one."""

    order: Annotated[
        Literal["recorded", "free"],
        Parameter(help="Order of the first run of each op: as recorded, or any that dependencies allow."),
    ] = "recorded"
    keep_random: Annotated[
        bool, option("--keep-random", "Ops that draw random numbers, such as dropout, run only once.")
    ] = False
    no_recompute: Annotated[
        bool, option("--no-recompute", "No op runs again: tensors only move (--offload), or ops change order.")
    ] = False
    pin: Annotated[
        tuple[str, ...],
        option("--pin", "Tensors that stay, by module or role: blocks.*.mlp, parameter. Repeatable."),
    ] = ()
    against: Annotated[
        tuple[Path, ...],
        option("--against", "A plan to beat: the result is no slower where it fits. Repeatable."),
    ] = ()
    effort: Annotated[
        float,
        Parameter(
            help="Length of the search, in millions of ops played: the plan depends on it, not on the clock, unless "
            "the time limit comes first.",
            validator=Real(least=0, most=_MOST_EFFORT),
        ),
    ] = 100.0
    time_limit: Annotated[float | None, Parameter(help=_TIME_LIMIT, validator=Real(least=0))] = None
    work_limit: Annotated[
        float | None,
        Parameter(
            help="Ops played after which the search stops: it finds the same on any machine, however loaded.",
            validator=Real(least=0),
        ),
    ] = None
    offload: Annotated[
        Literal["host", "ssd", "host,ssd"] | None,
        option("--offload", "Also move tensors away and back: to the host's memory, a drive, or both."),
    ] = None
    host_link: Annotated[
        str | None,
        option("--host-link", "Link to the host: pcie3, pcie4, pcie5, or a speed (25GB/s,10us); default: pcie4."),
    ] = None
    ssd_link: Annotated[str | None, option("--ssd-link", "Link to the drive: nvme, or a speed (default: nvme).")] = None
    host_memory: Annotated[
        str | None, option("--host-memory", "Memory of the host that tensors may take (default: no limit).")
    ] = None
    ssd_memory: Annotated[
        str | None, option("--ssd-memory", "Space on the drive that tensors may take (default: no limit).")
    ] = None

    def links(self) -> tuple[Link, ...]:
        """The links to the tiers that tensors may move to."""
        asked = () if self.offload is None else self.offload.split(",")
        tiers = {"host": (self.host_link, self.host_memory), "ssd": (self.ssd_link, self.ssd_memory)}
        for name, given in tiers.items():
            for what, value in zip(("link", "memory"), given, strict=True):
                if value is not None and name not in asked:
                    raise WorkloadError(f"--{name}-{what} goes with --offload {name}")
        return tuple(
            replace(
                link(speed or _LINKS[name]), name=name, capacity_bytes=None if memory is None else parse_bytes(memory)
            )
            for name, (speed, memory) in tiers.items()
            if name in asked
        )

    def given(self, graph: Graph) -> dict[str, Any]:
        """Return the options as arguments of ``tensortide.plan`` for ``graph``.

        Raises PlanError for a plan to beat that does not execute it.

        What a live run cannot move is pinned, so that no plan asks for it.
        """
        return {
            "links": self.links(),
            "order": self.order,
            "recompute": not self.no_recompute,
            "keep_random": self.keep_random,
            "pinned": immovable(graph) | pinned(graph, self.pin),
            "effort": self.effort,
            "time_limit_s": TIME_LIMIT_S if self.time_limit is self.work_limit is None else self.time_limit,
            "work_limit": self.work_limit,
            "known": {str(path): self._to_beat(path, graph) for path in self.against},
        }

    def _to_beat(self, path: Path, graph: Graph) -> Plan:
        from tensortide.plans.model import plan_writer

        plan = load_plan(path)
        try:
            validate(plan, graph, links=self.links())
        except PlanError as error:
            writer = "" if plan.graph == graph.index.digest else plan_writer(path)
            raise PlanError(f"{path} does not execute this step: {error}{writer}") from error
        return plan


@Parameter(name="*")
@dataclass(frozen=True)
class PlanRun:
    """Options of every verb that plans under budgets."""

    search: PlanOptions = PlanOptions()
    files: Files = Files()  # noqa: RUF009
    options: CaptureOptions = CaptureOptions()  # noqa: RUF009
    times: TimeOptions = TimeOptions()  # noqa: RUF009
    out: OutputOptions = OutputOptions()  # noqa: RUF009

    def recording(self, target: str) -> Recording:
        """The step of ``target`` with its durations, once it is known that the files can be written."""
        self.files.check()
        return recording_of(target, self.options, self.times, StepRules(), quiet=self.out.quiet)

    def _warn(self, graph: Graph) -> None:
        """Say which tensors are too large for a tier."""
        for each in self.search.links():
            most = each.capacity_bytes
            large = [int(x.nbytes) for x in graph.storages if most is not None and x.nbytes > most]
            if large:
                say_warning(
                    f"{len(large):,} tensors, up to {format_bytes(max(large))}, can never move to {each.name}: it has "
                    f"{format_bytes(most or 0)}"
                )

    @contextmanager
    def given(self, graph: Graph, *, policies: bool = False) -> Iterator[dict[str, Any]]:
        """Arguments for the planner, which says how the search goes and ends it on Ctrl-C while the body runs.

        Functions are compiled before, those of ``policies``, too: Ctrl-C then ends the program, which has no result.
        """
        from tensortide.studies.planning.warm import warm_up, warm_up_policies

        device = graph.index.device(self.options.device or "")
        self._warn(graph)
        with progress(self.out.quiet) as say:
            say(PREPARING)
            if policies:
                warm_up_policies()
            else:
                warm_up(moves=bool(self.search.links()))
        with searching(self.out.quiet) as search:
            yield {**self.search.given(graph), "device": device, "watch": _watch(search)}


@plan.default
def under_budget(
    target: Target,
    /,
    *,
    budget: Annotated[
        str | None,
        option(
            "--budget",
            "Memory budget: 8GiB, 24 GB, part of the peak of the step without one (60%, 0.6; tensortide run takes 60% "
            "of the device's memory); auto: what is free.",
        ),
    ] = None,
    written: Annotated[
        Path | None, option("--plan --out", "Write the plan, which tensortide run --policy FILE follows.")
    ] = None,
    torch: Annotated[
        Path | None, option("--torch", "Write a Python file that runs the step in the budget with PyTorch alone.")
    ] = None,
    policies: Annotated[
        str | None,
        option(
            "--policies",
            "Compare with policies of G10 on the machine of its authors, or with the links given: all, or names such "
            "as deepum,g10 (docs/plans.md).",
        ),
    ] = None,
    compat: Annotated[
        bool, option("--compat-memory", "With --policies: play g10-gds and g10-host with four times the memory.")
    ] = False,
    top: Top = 10,
    asked: PlanRun = PlanRun(),
) -> None:
    """Find the fastest way to execute one step under a memory budget, and what no other way can beat.

    Exits with 1 if no plan was found. Ctrl-C ends the search and shows the best plan so far.
    """
    if policies is not None:
        from tensortide.cli.plan_policies import compare

        compare(target, budget, policies, asked, compat=compat, others={"--plan": written, "--torch": torch})
        return
    if compat:
        raise WorkloadError("--compat-memory goes with --policies")
    paths = [] if written is None else [check_writable(written)]
    check_torch_file(target, torch, asked.options)
    wanted = one_budget(budget, "tensortide plan frontier") if budget != AUTO else None
    recording = asked.recording(target)
    found = _found(recording, wanted, asked)
    room = str(found.budget_bytes) if wanted is None or wanted.nbytes is None else str(budget)
    then = _follow(target, asked.options, room, written) if found.plan else ""
    file = torch_file_for(target, torch, recording, found, asked)
    written_plans = [] if found.plan is None else [save_plan(found.plan, path) for path in paths]
    _show(recording, found, file, asked, top, written_plans, then)
    if found.plan is None or file.failed:
        raise SystemExit(1)


def _found(recording: Recording, wanted: Budget | None, asked: PlanRun) -> Planned:
    """The plan within the budget that is ``wanted``; None: what is free on the device."""
    from tensortide.studies.planning import plan as find

    with asked.given(recording.graph) as given:
        peak = timeline(recording.graph, lifetimes="last_use", device=given["device"]).peak_bytes
        nbytes = _free_bytes(given["device"]) if wanted is None else wanted.bytes_of(peak)
        return find(recording, nbytes, **given)


def _show(
    recording: Recording, found: Planned, file: Made, asked: PlanRun, top: int, plans: list[Path], then: str
) -> None:
    """Show the plan that was found and the ``file`` for PyTorch; write what is asked for, beside ``plans``."""
    from tensortide.reports.sections.planned import PICTURES, document

    links, source = asked.search.links(), recording.source
    made = document(found, recording.graph, recording.durations_ns, links=links, source=source, top=top)
    made = msgspec.structs.replace(made, sections=(*made.sections, *file.sections))
    wrote = [*plans, *file.paths, *asked.files.write(made, table="recompute", keys=PICTURES)]
    show(made, asked.out, wrote=wrote, then=then)


def _follow(target: str, options: CaptureOptions, budget: str, written: Path | None) -> str:
    """The command that trains under the plan; what can only be read cannot be run."""
    if not isinstance(resolve(target), Workload):
        return ""
    settings = [part for one in options.set for part in ("--set", one)]
    plan_file = "plan.json" if written is None else str(written)
    command = shlex.join(["tensortide", "run", target, *settings, "--budget", budget, "--policy", plan_file])
    return command if written else f"add --plan {plan_file} to write the plan, then {command}"


def _free_bytes(device: str) -> int:
    """Bytes of ``device`` that are free here, less a margin."""
    from tensortide.run.limit import free_bytes

    try:
        return free_bytes(device)
    except TensortideError as error:
        raise WorkloadError(f"--budget auto: {error}") from error


@plan.command
def frontier(
    target: Target,
    /,
    *,
    points: Annotated[int, Parameter(help="Number of budgets.", validator=validators.Number(gte=2))] = 12,
    budget: Annotated[
        str | None, option("--budget", "Your budget, drawn as a line: 8GiB, or part of the peak.")
    ] = None,
    asked: PlanRun = PlanRun(),
) -> None:
    """Find the fastest plans from the least memory that any was found for up to no budget: what memory costs in time.

    Exits with 1 if no plan was found. Ctrl-C ends the search and shows the best plans so far.
    """
    from tensortide.reports.sections.frontier import document
    from tensortide.studies.planning import frontier as find

    wanted = None if budget is None else one_budget(budget, "a line in the picture")
    recording = asked.recording(target)
    with asked.given(recording.graph) as given:
        found = find(recording, points=points, **given)
    own = None
    if wanted is not None:
        own = wanted.bytes_of(timeline(recording.graph, lifetimes="last_use", device=given["device"]).peak_bytes)
    made = document(found, recording.graph, source=recording.source, budget_bytes=own)
    show(made, asked.out, wrote=[*asked.files.write(made, table="points")])
    if not any(point.plan for point in found.points):
        raise SystemExit(1)


def _watch(search: Searching) -> Watch:
    """Say how the search goes, until Ctrl-C ends it."""

    def watch(best_ns: int | None, bound_ns: int) -> bool:
        best = "no plan yet" if best_ns is None else f"best {format_seconds(best_ns / 1e9)}"
        search.known(f"{best}, none is faster than {format_seconds(bound_ns / 1e9)}")
        return not search.stopped()

    return watch


@plan.command
def order(
    target: Target,
    /,
    *,
    written: Annotated[Path | None, option("--plan", "Write the best order as a plan.")] = None,
    time_limit: Annotated[float | None, Parameter(help=_TIME_LIMIT, validator=Real(above=0))] = None,
    work_limit: Annotated[
        int | None,
        Parameter(
            help="Steps of about a microsecond after which the search stops (default: 40,000,000): the same on "
            "any machine, however loaded.",
            validator=validators.Number(gte=0),
        ),
    ] = None,
    top: Top = 15,
    files: Files = Files(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Find the order of one step's ops that needs the least memory, with a proof of how little is possible.

    Ctrl-C ends the search and shows the best so far.
    """
    from tensortide.reports.sections.order import document

    files.check()
    paths = [] if written is None else [check_writable(written)]
    graph = graph_of(target, options, quiet=out.quiet)
    with searching(out.quiet) as search:

        def watch(lower: int, upper: int) -> bool:
            gap = format_percent(upper - lower, lower)
            search.known(f"best {format_bytes(upper)}, at least {format_bytes(lower)}, gap {gap}")
            return not search.stopped()

        found = footprint(graph, device=options.device, work_limit=work_limit, time_limit_s=time_limit, watch=watch)
    for path in paths:
        save_plan(found.plan, path)
    made = document(found, unrolled(graph), top=top)
    show(made, out, wrote=[*paths, *files.write(made, table="order")])
