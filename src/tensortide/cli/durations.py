"""Durations of a step's ops: the one place where verbs that need times choose their source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tensortide.cli.source import CaptureOptions, opened, option, progress, settings_of
from tensortide.errors import WorkloadError
from tensortide.graph import unrolled
from tensortide.importers.imported import Imported
from tensortide.recorder.resolver import resolver
from tensortide.recorder.target import Workload
from tensortide.timing import device, estimate, load_durations
from tensortide.timing.exact import times_of

if TYPE_CHECKING:
    from tensortide.importers.door import File

__all__ = ["DEFAULT_MACHINE", "TimeOptions", "timed", "with_durations"]

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


def timed(
    found: Workload | File, options: CaptureOptions, times: TimeOptions, *, quiet: bool, **reading: object
) -> Imported:
    """Return the step of a target, its loops written out, with durations.

    What is asked for counts: a file, an estimate for a machine, a measurement. Otherwise those that a file brings, else
    an estimate for ``DEFAULT_MACHINE``. A file must be of this graph. ``reading`` are options of an importer.
    """
    times.check()
    if times.measure and isinstance(found, Workload):
        return _measured(found, options, quiet=quiet)
    step = opened(found, options, quiet=quiet, durations=times == TimeOptions(), **reading)
    if step.measure and times == TimeOptions():
        times = TimeOptions(measure=True)
    if step.events is not None and times != TimeOptions():
        raise WorkloadError(f"{found}: it has durations of its own")
    if times.measure and not step.kernels:
        raise WorkloadError(f"{found}, which has no step to run: --measure goes with a workload")
    return with_durations(step, times, quiet=quiet)


def with_durations(step: Imported, times: TimeOptions, *, quiet: bool) -> Imported:
    """Return ``step`` with the durations that are asked for, else its own, else an estimate. ``--measure`` executes
    each distinct op alone."""
    times.check()
    graph = unrolled(step.graph)
    if times.durations is not None:
        durations = load_durations(times.durations, graph)
    elif times.measure:
        from tensortide.profile.isolated import measure_isolated

        with progress(quiet) as say:
            durations = measure_isolated(graph, progress=say)
    elif times.machine is None and step.durations is not None:
        return replace(step, graph=graph)
    else:
        durations = estimate(graph, device(times.machine or DEFAULT_MACHINE), resolver=resolver)
    return replace(step, graph=graph, durations=durations, times=times_of(durations))


def _measured(found: Workload, options: CaptureOptions, *, quiet: bool) -> Imported:
    if options.real or options.first_step:
        raise WorkloadError("--measure runs the steady step for real: leave out --real and --first-step")
    from tensortide.profile.measure import measure

    settings = settings_of(found, options)
    with progress(quiet) as say:
        graph, durations = measure(found.function, hyperparameters=settings, name=found.name, progress=say)
    return Imported(graph, durations)
