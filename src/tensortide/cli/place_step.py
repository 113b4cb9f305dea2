"""``tensortide place`` of a captured step: its options, and the placement of the ops of ``TARGET``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators
from msgspec import structs

from tensortide.cli.draw import write_picture
from tensortide.cli.place_options import MachineOptions, SearchOptions
from tensortide.cli.place_run import ResultOptions
from tensortide.cli.show import Files, show
from tensortide.cli.source import CaptureOptions, OutputOptions, PlacedCapture, opened, option
from tensortide.errors import DegreesError, PlacementError, WorkloadError
from tensortide.importers.door import File, recognize, resolve
from tensortide.memory.lifetimes import Rule
from tensortide.placements.graphs.hosts import Launch
from tensortide.placements.graphs.schedules import Priority, ScheduleName
from tensortide.placements.graphs.units import By
from tensortide.timing.catalogue import DEFAULT_DEVICE, catalogue
from tensortide.units import parse_bytes
from tensortide.write import check_apart, check_writable

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.placements.graphs import DeviceCluster, PlacedStep, PlaceOptions, Ready
    from tensortide.plans import Plan

_BOTH = frozenset({"machine", "in_flight"})
"""Options of networks that captured steps have too."""
AUTO = "auto"
"""The value of ``--shard`` that has modules searched."""
_ANYWAY = frozenset({"threads"})
"""Options of the search that are no choice."""


@Parameter(name="*", group="Captured steps")
@dataclass(frozen=True)
class StepOptions:
    """Options of placing a captured step."""

    micro_batches: Annotated[
        int,
        Parameter(
            help="Passes of the captured step before one update.",
            validator=validators.Number(gte=1),
        ),
    ] = 1
    schedule: Annotated[ScheduleName, Parameter(help="Order of the micro-batches.")] = "recorded"
    priority: Annotated[
        Priority,
        Parameter(
            help="Which ready op runs first: the earliest recorded, or that with most after it; auto is the second on "
            "several devices, if it fits their memory."
        ),
    ] = "auto"
    pin: Annotated[
        tuple[str, ...],
        option("--pin", "A unit or module, and its device: blocks.0=gpu1. Repeatable."),
    ] = ()
    shard: Annotated[
        tuple[str, ...],
        option(
            "--shard",
            "Modules to divide into shards, each placed on its own: h.*.mlp=output:2 (along batch, output or "
            "reduction). auto: find some that help, by short searches. Repeatable.",
        ),
    ] = ()
    data: Annotated[
        int,
        Parameter(
            help="Groups of equal devices, in the order of the file, each with the step on its part of the batch.",
            validator=validators.Number(gte=1),
        ),
    ] = 1
    bucket_bytes: Annotated[
        str | None,
        option(
            "--bucket-bytes",
            "Size of the buckets in which groups exchange gradients as they become ready (default: 25MiB, the first "
            "1MiB); 0: each gradient by itself.",
        ),
    ] = None
    no_overlap: Annotated[
        bool, option("--no-overlap", "Groups exchange gradients one by one, beside no computation.")
    ] = False
    by: Annotated[
        By,
        Parameter(help="Units are ops of one module, or as few as must share a device (closure)."),
    ] = "module"
    depth: Annotated[int | None, option("--depth", "Levels of modules that units tell apart (default: all).")] = None
    prefix: Annotated[tuple[str, ...], option("--prefix", "A module that is one unit. Repeatable.")] = ()
    units: Annotated[int | None, option("--units", "Units, at most: more are merged.")] = None
    free_backward: Annotated[bool, option("--free-backward", "Backward ops need not follow their forward ops.")] = False
    keep_random: Annotated[bool, option("--keep-random", "Ops that draw random numbers share a device.")] = False
    lifetimes: Annotated[
        Rule,
        Parameter(
            help="When a tensor is released: last_use, after its last use; eager, when eager mode releases it, as "
            "memory and scale count."
        ),
    ] = "last_use"
    staging: Annotated[bool, option("--staging", "A transfer needs a second buffer where it starts.")] = False
    launch: Annotated[
        Launch,
        Parameter(help="The host of each device issues its ops one by one, or in captured graphs; none: in no time."),
    ] = "eager"
    options: PlacedCapture = field(default_factory=PlacedCapture)

    def place_options(self, machine: MachineOptions) -> PlaceOptions:
        """The options of ``placements.graphs.place``. Raises WorkloadError for a pin without a device, or with two, and
        for options of groups without groups."""
        from tensortide.parallelism.shards import Shard
        from tensortide.placements.graphs import Grouping, PlaceOptions

        self._check_groups()
        pins: dict[str, str] = {}
        for text in self.pin:
            module, equals, name = text.rpartition("=")
            if not (equals and module and name):
                raise WorkloadError(f"--pin takes MODULE=DEVICE, as in blocks.0=gpu1, not {text!r}")
            if pins.setdefault(module, name) != name:
                raise WorkloadError(f"--pin: {module} is pinned to {pins[module]} and to {name}")
        return PlaceOptions(
            Grouping(self.by, self.depth, self.prefix, self.units, self.free_backward, self.keep_random),
            pins,
            schedule=self.schedule,
            micro_batches=self.micro_batches,
            priority=self.priority,
            in_flight=machine.in_flight,
            rule=self.lifetimes,
            staging=self.staging,
            shards=tuple(Shard.parse(text) for text in self.shard if text != AUTO),
            data=self.data,
            overlap=not self.no_overlap,
            bucket_bytes=None if self.bucket_bytes is None else parse_bytes(self.bucket_bytes),
            launch=self.launch,
        )

    def _check_groups(self) -> None:
        """Raise WorkloadError for an option of groups without groups, or beside one that it contradicts."""
        given = {"--bucket-bytes": self.bucket_bytes is not None, "--no-overlap": self.no_overlap}
        for name, is_given in given.items():
            if is_given and self.data == 1:
                raise WorkloadError(f"{name} says how groups exchange gradients: give --data N with it")
        if all(given.values()):
            raise WorkloadError("--no-overlap exchanges gradients one by one: leave --bucket-bytes out")


def is_net(target: str) -> bool:
    """Tell whether ``target`` is a network's JSON file: one that no importer reads, or that is not there."""
    return target.lower().endswith(".json") and recognize(Path(target)) is None


def refuse_step_options(target: str, step: StepOptions, then: ResultOptions | None = None) -> None:
    """Raise PlacementError if an option of captured steps is given for the network ``target``."""
    results = () if then is None else _given(then)
    for name in (*_given(replace(step, options=PlacedCapture())), *_given(step.options), *results):
        raise PlacementError(f"{target} is a network of layers: {name} goes with a captured step")


def refuse_net_options(target: str, machine: MachineOptions) -> None:
    """Raise PlacementError if an option of networks is given for the captured step ``target``."""
    for name in _given(machine, _BOTH):
        raise PlacementError(f"{target} is a captured step: {name} goes with a network of layers (a JSON file)")


def refuse_search_options(by: SearchOptions, step: StepOptions) -> None:
    """Raise PlacementError if an option of the search is given beside a Plan."""
    for name in (*_given(by, _ANYWAY), *(["--pin"] if step.pin else []), *(["--shard auto"] * (AUTO in step.shard))):
        raise PlacementError(f"--plan plays a Plan as it is: {name} goes with a search")


def _given(options: Any, left_out: frozenset[str] = frozenset()) -> Iterator[str]:
    """The options that are not at their default, as they are typed."""
    default = type(options)()
    for each in fields(options):
        if each.name not in left_out and getattr(options, each.name) != getattr(default, each.name):
            name = {"options": "option"}.get(each.name, each.name)
            yield "--" + name.replace("_", "-")


def step_cluster(target: str, machine: MachineOptions, check: Callable[[int], None] | None = None) -> DeviceCluster:
    """The cluster for the captured step ``target``. Raises PlacementError without one, and for options of networks."""
    from tensortide.placements.graphs import load_cluster

    refuse_net_options(target, machine)
    if machine.machine is None:
        raise PlacementError(
            "a step is placed on a cluster: give its devices and links with --machine FILE.json (docs/place_graphs.md)."
        )
    return load_cluster(machine.machine, check)


def place_step(
    target: str,
    machine: MachineOptions,
    by: SearchOptions,
    step: StepOptions,
    then: ResultOptions,
    written: Path | None,
    draw: Path | None,
    files: Files,
    out: OutputOptions,
) -> None:
    """Place the captured step ``target``, show what it takes, run it and write the Plan and more if that is asked for.

    Exits with 1 if no placement was found that fits, or if a run is not what the Plan and one process have. What cannot
    be run or expressed after all is an error once the rest is shown.
    """
    from tensortide.placements.graphs import ready
    from tensortide.placements.graphs.auto_shards import auto_shards
    from tensortide.plans import save_plan
    from tensortide.reports.drawing import check_count, step_picture
    from tensortide.reports.sections.auto_shards import section as auto_section
    from tensortide.reports.sections.placed_step import PICTURES, document

    cluster = step_cluster(target, machine, then.checks_devices)
    options = step.place_options(machine)
    if written is not None:
        check_writable(written)
    by.check_resume()
    check_apart({"--machine": machine.machine, "--resume": by.resume, "--out": written, "--draw": draw, **then.files})
    capture = then.check(target, step.options)
    plan = then.loaded()
    if plan is not None:
        refuse_search_options(by, step)
    with then.capturing():
        graph = captured(target, capture, cluster, quiet=out.quiet)
    found_shards = auto_shards(graph, cluster, options, seed=by.seed) if AUTO in step.shard else None
    if found_shards is not None:
        options = replace(options, shards=found_shards.shards)
    prepared = ready(graph, cluster, options)
    if draw is not None:
        check_count(len(prepared.problem.names))
    then.check_ready(prepared, plan, keep_random=step.keep_random)
    found = _found(prepared, plan, by, quiet=out.quiet)
    made = document(found, title=graph.meta.workload or target, samples=_samples(graph))
    if found_shards is not None:
        made = structs.replace(made, sections=(*made.sections, auto_section(found_shards)))
    wrote: list[Path] = [] if written is None else [save_plan(found.plan, written)]
    wrote += by.wrote(found.search)
    wrote += [] if draw is None else [write_picture(draw, step_picture(found))]
    done = then.carried_out(found, target, capture)
    made = structs.replace(made, sections=(*made.sections, *done.sections))
    show(made, out, wrote=[*wrote, *done.wrote, *files.write(made, table="units", keys=PICTURES)])
    by.check_saved(found.search)
    done.raise_errors()
    if not (found.fits and done.verified):
        raise SystemExit(1)


def _samples(graph: Graph) -> int | None:
    """The batch of the captured step, if it has inputs."""
    from tensortide.graph import unrolled
    from tensortide.studies.scale.captured import samples_of

    try:
        return samples_of(unrolled(graph))
    except DegreesError:
        return None


def _found(prepared: Ready, plan: Plan | None, by: SearchOptions, *, quiet: bool) -> PlacedStep:
    """Search a placement, or play the given plan."""
    from tensortide.placements.graphs import placed, played
    from tensortide.placements.graphs.placed_step import EVALUATIONS

    if plan is not None:
        return played(prepared, plan)
    with by.carried_out(quiet) as search:
        best = search(prepared.problem, EVALUATIONS)
    return placed(prepared, best.placement, best)


def captured(target: str, options: CaptureOptions, cluster: DeviceCluster, *, quiet: bool) -> Graph:
    """Open ``target``; a step that is captured here has the kernels of the first device that is no CPU."""
    found = resolve(target)
    row = next((each.row for each in cluster.devices if each.row.kind != "cpu"), None)
    if row is not None and not isinstance(found, File) and options.device != "cpu":
        options = replace(options, machines=(row.name if row in catalogue() else DEFAULT_DEVICE,))
    return opened(found, options, quiet=quiet, durations=False).graph
