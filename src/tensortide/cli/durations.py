"""Durations of a step's ops: the one place where verbs that need times choose their source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, validators

from tensortide.cli.source import CaptureOptions, opened, option, progress, settings_of
from tensortide.errors import WorkloadError
from tensortide.graph import unrolled
from tensortide.importers.imported import Imported
from tensortide.recorder import resolver
from tensortide.recorder.target import Workload
from tensortide.timing import device, estimate, load_durations
from tensortide.timing.durations import times_of

if TYPE_CHECKING:
    from tensortide.importers.door import File

__all__ = ["DEFAULT_MACHINE", "MeasureOptions", "TimeOptions", "timed", "with_durations"]

DEFAULT_MACHINE = "A100-SXM-80GB"


@Parameter(name="*")
@dataclass(frozen=True)
class TimeOptions:
    """Source of the ops' durations."""

    durations: Annotated[
        Path | None,
        option("--durations", "File of durations (default: NAME.durations.json beside a saved graph, if it is there)."),
    ] = None
    machine: Annotated[
        str | None, option("--machine", f"Device that durations are estimated for (default: {DEFAULT_MACHINE}).")
    ] = None
    measure: Annotated[
        bool, option("--measure", "Run the workload here and measure its ops instead of an estimate.")
    ] = False

    def check(self) -> None:
        """Raise WorkloadError if they contradict each other."""
        if sum((self.machine is not None, self.durations is not None, self.measure)) > 1:
            raise WorkloadError("--durations, --machine and --measure exclude each other")


@Parameter(name="*")
@dataclass(frozen=True)
class MeasureOptions:
    """The way durations are measured."""

    device: Annotated[
        Literal["cpu", "cuda"], Parameter(help="Where the workload makes its tensors, unless it says so itself.")
    ] = "cpu"
    steps: Annotated[int, Parameter(help="Steps to measure, after warming up.", validator=validators.Number(gte=1))] = 9
    clock: Annotated[
        Literal["wall", "thread"],
        Parameter(help="Durations by wall time, or by processor time of one thread: for shared machines."),
    ] = "wall"
    threads: Annotated[
        int | None,
        Parameter(
            show_default=False, help="Threads within ops (--clock thread: 1).", validator=validators.Number(gte=1)
        ),
    ] = None
    isolated: Annotated[
        bool, option("--isolated", "Execute each distinct op alone, on random tensors: for steps too large to run.")
    ] = False
    recorded: Annotated[
        Path | None,
        option("--from", "Times from a file: a profiler's trace (.json, also .gz), or a list (.csv, .jsonl: op, ns)."),
    ] = None
    strict: Annotated[bool, option("--strict", "An op that cannot be measured is an error.")] = False

    def conditions(self) -> dict[str, Any]:
        """Clock, threads and device of a measurement."""
        threads = 1 if self.clock == "thread" and self.threads is None else self.threads
        return {"clock": self.clock, "threads": threads, "device": self.device}


def timed(
    found: Workload | File,
    options: CaptureOptions,
    times: TimeOptions,
    how: MeasureOptions = MeasureOptions(),
    /,
    *,
    quiet: bool,
    **reading: object,
) -> Imported:
    """Return the step of a target, its loops written out, with durations.

    What is asked for counts: a file, an estimate for a machine, a measurement. Otherwise those that a file brings, else
    an estimate for ``DEFAULT_MACHINE``. A file must be of this graph. ``reading`` are options of an importer.
    """
    times.check()
    if times.measure and isinstance(found, Workload):
        return _measured(found, options, how, quiet=quiet)
    step = opened(found, options, quiet=quiet, durations=times == TimeOptions(), **reading)
    if step.measure and times == TimeOptions():
        times = TimeOptions(measure=True)
    if step.events is not None and times != TimeOptions():
        raise WorkloadError(f"{found}: it has durations of its own")
    if times.measure and not step.kernels:
        raise WorkloadError(f"{found}, which has no step to run: --measure goes with a workload")
    return with_durations(step, times, quiet=quiet)


def with_durations(step: Imported, times: TimeOptions, *, quiet: bool, **conditions: Any) -> Imported:
    """Return ``step`` with the durations that are asked for, else its own, else an estimate. ``--measure`` executes
    each distinct op alone, under these ``conditions``."""
    times.check()
    graph = unrolled(step.graph)
    if times.durations is not None:
        durations = load_durations(times.durations, graph)
    elif times.measure:
        from tensortide.profile.isolated import measure_isolated

        with progress(quiet) as say:
            durations = measure_isolated(graph, progress=say, **conditions)
    elif times.machine is None and step.durations is not None:
        return replace(step, graph=graph)
    else:
        durations = estimate(graph, device(times.machine or DEFAULT_MACHINE), resolver=resolver)
    return replace(step, graph=graph, durations=durations, times=times_of(durations))


def _measured(found: Workload, options: CaptureOptions, how: MeasureOptions, *, quiet: bool) -> Imported:
    if options.real or options.first_step:
        raise WorkloadError("--measure runs the steady step for real: leave out --real and --first-step")
    from tensortide.profile.measure import measure

    settings = settings_of(found, options)
    with progress(quiet) as say:
        measured = measure(
            found.function,
            hyperparameters=settings,
            name=found.name,
            repeats=how.steps,
            progress=say,
            **how.conditions(),
        )
    return Imported(*measured)
