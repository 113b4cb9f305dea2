"""What ``tensortide liveness`` reads and writes of other tools: their records of steps, configuration, layouts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from cyclopts import Parameter

from tensortide.cli.durations import TimeOptions, timed, with_durations
from tensortide.cli.source import CaptureOptions, option, progress, settings_of, step_of
from tensortide.errors import WorkloadError
from tensortide.importers.door import File, resolve
from tensortide.importers.imported import Imported, with_names
from tensortide.timing.exact import Times, times_of

if TYPE_CHECKING:
    from tensortide.reports.liveness_files import LivenessConfig
    from tensortide.timelines.liveness import Mode

__all__ = ["ExportOptions", "Source", "source_of", "source_of_config"]


@Parameter(name="*")
@dataclass(frozen=True)
class ExportOptions:
    """Files in the layouts of the tensor liveness tool, and the same as tables."""

    export: Annotated[
        Path | None,
        option("--export", "Folder for kernels.config, tensors.config, liveness_analysis.config and the two logs."),
    ] = None
    run: Annotated[str, Parameter(help="Of --export: what the run is called, such as pytorch64.")] = "step"
    formats: Annotated[
        tuple[Literal["config", "json", "csv", "parquet"], ...],
        Parameter(name=["--format"], negative=(), help="Of --export: layouts; once for each."),
    ] = ("config",)
    with_times: Annotated[
        bool, option("--with-times", "Of --export: put the time of each kernel into kernels.config.")
    ] = False
    order: Annotated[
        Literal["creation", "time_size"],
        Parameter(name="--period-order", help="Of --export: order of periods in TensorPeriodLog."),
    ] = "creation"


class Source(NamedTuple):
    """A step, its exact times, their origin, and the mode it is usually seen in; of a configuration the files that were
    written on the way, and how much memory the device has."""

    trace: Imported
    times: Times
    told: str
    mode: Mode = "storage"
    written: tuple[Path, ...] = ()
    capacity_bytes: int | None = None

    def export(self, options: ExportOptions) -> tuple[Path, ...]:
        """Write what is asked for. Raises OutputError; TraceError for tensors without a size."""
        from tensortide.reports.liveness_files import write_liveness_files

        if options.export is None:
            return ()
        return write_liveness_files(
            self.trace,
            options.export,
            options.run,
            times=self.times,
            with_times=options.with_times,
            order=options.order,
            formats=options.formats,
        )


def source_of(target: str, options: CaptureOptions, times: TimeOptions, *, compiled: bool, quiet: bool) -> Source:
    """Return the step of ``target``; with ``compiled`` the graphs that the compiler makes of its model."""
    if compiled:
        return _source(with_durations(_compiled(target, options, quiet=quiet), times, quiet=quiet))
    found = resolve(target)
    step = timed(found, options, times, quiet=quiet)
    is_kernel_trace = isinstance(found, File) and found.importer.name == "g10"
    return _source(step)._replace(mode="compat" if is_kernel_trace else "storage")


def _source(step: Imported) -> Source:
    assert step.durations is not None
    exact = times_of(step.durations) if step.times is None else step.times
    named = step if step.kernels else with_names(step.graph, exact)
    return Source(named, exact, step.durations.source)


def _compiled(target: str, options: CaptureOptions, *, quiet: bool) -> Imported:
    workload = step_of(target, "--compiled")
    if options.real or options.first_step:
        raise WorkloadError("--compiled traces a model on fake tensors: leave out --real and --first-step")
    from tensortide.importers.inductor.compiled import compiled_trace

    settings = settings_of(workload, options)
    with progress(quiet) as say:
        return compiled_trace(workload.function, hyperparameters=settings, name=workload.name, progress=say)


def source_of_config(path: Path, times: TimeOptions, export: ExportOptions, *, quiet: bool) -> Source:
    """Does what the configuration file ``path`` asks for. Kernels are measured if it says so, each alone."""
    from tensortide.reports.liveness_files import liveness_of_config

    sources: list[Source] = []

    def measured(step: Imported, config: LivenessConfig) -> Times:
        asked = TimeOptions(measure=True) if times == TimeOptions() and config.profile else times
        sources.append(_source(with_durations(step, asked, quiet=quiet)))
        return sources[-1].times

    done = liveness_of_config(path, measured, with_times=export.with_times, order=export.order)
    return Source(done.trace, done.times, sources[-1].told, "compat", done.files, done.config.device_memory_bytes)
