"""The durations of a step's ops, as the options of every verb choose them: predicted, measured, or read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from cyclopts import Parameter, validators

from tensortide.cli.local import device_named, software_on
from tensortide.cli.messages import say_warning
from tensortide.cli.source import (
    CaptureOptions,
    graph_of,
    opened,
    option,
    progress,
    settings_of,
    with_progress,
)
from tensortide.errors import GraphFileError, WorkloadError
from tensortide.graph import unrolled
from tensortide.importers.door import File, resolve
from tensortide.importers.imported import Imported
from tensortide.recorder import resolver
from tensortide.recorder.script import Script
from tensortide.recorder.target import Workload
from tensortide.timelines.machines import split
from tensortide.timing import DEFAULT_DEVICE, estimate, load_durations
from tensortide.timing.durations import times_of
from tensortide.timing.estimate import captured_elsewhere
from tensortide.timing.refined import refine
from tensortide.timing.samples import recall

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.timelines.machines import Machines, MachineStep
    from tensortide.timelines.step import Launch
    from tensortide.timing import Device, Durations

_NOT_MEASURED = "--measure repeats a step, and a script runs it once; tensortide time --isolated measures its ops alone"


@Parameter(name="*")
@dataclass(frozen=True)
class TimeOptions:
    """Source of the ops' durations."""

    durations: Annotated[
        Path | None,
        option("--durations", "File of durations (default: NAME.durations.json beside a saved graph, if it is there)."),
    ] = None
    measure: Annotated[
        bool, option("--measure", "Run the workload here and measure its ops instead of estimating them.")
    ] = False

    def check(self, machine: str | None) -> None:
        """Raise WorkloadError if they contradict each other, or an estimate for a ``machine``."""
        if sum((machine is not None, self.durations is not None, self.measure)) > 1:
            raise WorkloadError("--durations, --machine and --measure exclude each other")


@Parameter(name="*")
@dataclass(frozen=True)
class MeasureOptions:
    """The way durations are measured."""

    steps: Annotated[int, Parameter(help="Steps to measure, after warming up.", validator=validators.Number(gte=1))] = 9
    clock: Annotated[
        Literal["wall", "thread"],
        Parameter(help="Measure wall time, or processor time of one thread (for shared machines)."),
    ] = "wall"
    threads: Annotated[
        int | None,
        Parameter(
            show_default=False, help="Threads per op (with --clock thread: 1).", validator=validators.Number(gte=1)
        ),
    ] = None
    isolated: Annotated[
        bool, option("--isolated", "Execute each distinct op by itself, on random tensors; for steps too large to run.")
    ] = False
    recorded: Annotated[
        Path | None,
        option(
            "--from", "Read times from a file: a profiler's trace (.json, also .gz), or a list (.csv, .jsonl: op, ns)."
        ),
    ] = None
    strict: Annotated[
        bool, option("--strict", "Fail if an op has no known time, or a machine's name is short for several.")
    ] = False

    def conditions(self, device: str | None) -> dict[str, Any]:
        """Clock, threads and device of a measurement."""
        threads = 1 if self.clock == "thread" and self.threads is None else self.threads
        return {"clock": self.clock, "threads": threads, "device": device or "cpu"}


def timed(
    found: Workload | Script | File,
    options: CaptureOptions,
    times: TimeOptions,
    how: MeasureOptions = MeasureOptions(),
    /,
    *,
    quiet: bool,
    **reading: object,
) -> Imported:
    """Return the step of a target, its loops written out, with durations.

    Durations are those that the options ask for (a file, an estimate for a machine, a measurement); else those that
    the target brings; else an estimate for the machine that it was captured for, or for ``DEFAULT_DEVICE``. A file of
    durations must be of this graph. ``reading`` are options of an importer.
    """
    times.check(options.machine)
    if times.measure and isinstance(found, Workload):
        return _measured(found, options, how, quiet=quiet)
    if times.measure and isinstance(found, Script):
        raise WorkloadError(f"{found}: {_NOT_MEASURED}")
    asked = times != TimeOptions() or options.machine is not None
    step = opened(found, options, quiet=quiet, durations=not asked, **reading)
    if step.measure and not asked:
        times = TimeOptions(measure=True)
    if step.events is not None and asked:
        raise WorkloadError(f"{found}: it has durations of its own")
    if times.measure and not step.kernels:
        raise WorkloadError(f"{found}, which has no step to run: --measure goes with a workload")
    return with_durations(step, times, options.machine, quiet=quiet)


def with_durations(
    step: Imported, times: TimeOptions, machine: str | None = None, *, quiet: bool, **conditions: Any
) -> Imported:
    """Return ``step`` with the durations that the options ask for, else its own, else an estimate for ``machine``.

    A measurement executes each distinct op by itself, under these ``conditions``.
    """
    times.check(machine)
    graph = unrolled(step.graph)
    if times.durations is not None:
        durations = load_durations(times.durations, graph)
    elif times.measure:
        from tensortide.profile.isolated import measure_isolated

        with progress(quiet) as say:
            durations = measure_isolated(graph, progress=say, **conditions)
    elif machine is None and step.durations is not None:
        return replace(step, graph=graph)
    else:
        row = device_named(machine or graph.meta.machine or DEFAULT_DEVICE)
        durations = predicted_on(graph, row)
        if elsewhere := captured_elsewhere(graph, row):
            durations = msgspec.structs.replace(durations, source=f"{durations.source}, {elsewhere}")
    return replace(step, graph=graph, durations=durations, times=times_of(durations))


def predicted_on(graph: Graph, row: Device) -> Durations:
    """Predict the times on ``row``; those of calls that were measured there are taken from the store."""
    durations = estimate(graph, row, resolver=resolver)
    try:
        return refine(graph, recall(graph, durations, row.name, software_on(row)), row, resolver=resolver)
    except GraphFileError as error:
        say_warning(f"{error}\nIt is not used. Delete it, or measure again with --remember in another folder.")
        return durations


def captured_for(target: str, options: CaptureOptions, asked: Sequence[Machines], graph: Graph) -> list[Graph]:
    """The step as it is captured for each machine: ``graph`` for the first, and for all where it is read from a file.

    Machines with the same kernels share a capture.
    """
    if isinstance(resolve(target), File):
        return [graph] * len(asked)
    found: dict[str | None, Graph] = {}
    own = [replace(options, machines=(split(one.text)[1],)) for one in asked]
    for each in own:
        if each.kernels not in found:
            found[each.kernels] = unrolled(graph_of(target, each, quiet=True)) if found else graph
    return [found[each.kernels] for each in own]


def predicted_steps(
    graphs: Sequence[Graph], durations: Durations, asked: Sequence[Machines], launch: Launch = "eager"
) -> list[MachineStep]:
    """The step, with its host, on each machine, one of ``graphs`` for each; on that of ``durations``, which are those
    of the first, if none is asked for. None where they are not predicted, or for a device that the catalogue does not
    have."""
    from tensortide.timelines.machines import machines, step_on

    if durations.forecast is None or not (asked or durations.forecast.device):
        return []
    chosen = asked or [machines(durations.forecast.device)]
    first, steps = chosen[0].device, []
    for graph, one in zip(graphs, chosen, strict=True):
        own = durations if one.device is first and graph is graphs[0] else predicted_on(graph, one.device)
        steps.append(step_on(graph, one, durations=own, launch=launch, resolver=resolver))
    return steps


def _measured(found: Workload, options: CaptureOptions, how: MeasureOptions, *, quiet: bool) -> Imported:
    if options.first_step:
        raise WorkloadError("--measure runs the steady step: leave out --first-step")
    if options.compiled:
        raise WorkloadError("--measure runs the step eagerly: leave out --compiled")
    from tensortide.profile.measure import measure

    conditions = {"repeats": how.steps, **how.conditions(options.device)}
    return Imported(*with_progress(measure, found, settings_of(found, options), quiet=quiet, **conditions))


def durations_of(
    target: str, times: TimeOptions, how: MeasureOptions, options: CaptureOptions, quiet: bool
) -> tuple[Graph, Durations]:
    """Return the step of a target, and its durations by all options of ``tensortide time``."""
    _check(times, how, options.machine)
    if how.recorded is not None:
        source = resolve(how.recorded)
        if not isinstance(source, File) or not source.importer.has("step"):
            raise WorkloadError(f"{source}: --from takes a profiler's trace or a list of times")
        step = source.read(step=graph_of(target, options, quiet=True))
    elif how.isolated:
        graph = graph_of(target, options, quiet=True)
        step = with_durations(Imported(graph), TimeOptions(measure=True), quiet=quiet, **how.conditions(options.device))
    else:
        found = resolve(target)
        if times.measure and isinstance(found, File):
            raise WorkloadError(
                f"{found}, which has no step to run.\nMeasure the workload it was captured from, or its ops alone "
                "(--isolated), or give a trace of it (--from)."
            )
        step = timed(found, options, times, how, quiet=quiet)
    assert step.durations is not None
    return step.graph, step.durations


def _check(times: TimeOptions, how: MeasureOptions, machine: str | None) -> None:
    """Raise WorkloadError for options that do not go together."""
    times.check(machine)
    chosen = [name for name, given in (("--isolated", how.isolated), ("--from", how.recorded is not None)) if given]
    given = {"durations": times.durations, "machine": machine, "measure": times.measure}
    others = [f"--{name}" for name, value in given.items() if value]
    if len(chosen) > 1 or (chosen and others):
        raise WorkloadError(f"{' and '.join([*chosen, *others])} exclude each other")
    plain = MeasureOptions(isolated=how.isolated, recorded=how.recorded, strict=how.strict)
    if how != plain and not (times.measure or how.isolated):
        raise WorkloadError("--steps, --clock and --threads go with --measure or --isolated")
