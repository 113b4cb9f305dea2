"""What ``tensortide liveness`` reads and writes of other tools: their records of steps, configuration, layouts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from cyclopts import Parameter

from tensortide.cli.durations import TimeOptions, durations_of, durations_of_trace
from tensortide.cli.recorded import DumpOptions, compiled, recorded_trace
from tensortide.cli.remat.target import recording_of
from tensortide.cli.source import CaptureOptions, option
from tensortide.errors import WorkloadError
from tensortide.importers.dtrlog import is_log_file
from tensortide.importers.trace import Trace, trace_of
from tensortide.importers.traces import is_recorded
from tensortide.timing.exact import Times, times_of

if TYPE_CHECKING:
    from tensortide.reports.liveness_files import LivenessConfig

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
    """A step, its exact times, where they come from; of a configuration the files that were written on the way, and
    how much memory the device has."""

    trace: Trace
    times: Times
    told: str
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


def source_of(target: str, options: CaptureOptions, times: TimeOptions, dumps: DumpOptions, *, quiet: bool) -> Source:
    """The step of ``target``: captured, saved, a log, or as other tools have it."""
    if is_recorded(target):
        return _timed(recorded_trace(target, options, dumps), times, quiet=quiet)
    if dumps.backward is not None or dumps.weight is not None:
        raise WorkloadError("--backward and --weight go with a dump (fx_graph_transformed.py)")
    if dumps.compiled:
        return _timed(compiled(target, options, quiet=quiet), times, quiet=quiet)
    if is_log_file(target):
        recording = recording_of(target, options, times, quiet=quiet)
        ns = Times(tuple(map(int, recording.durations_ns)))
        return Source(trace_of(recording.graph, ns), ns, recording.source)
    graph, durations = durations_of(target, options, times, quiet=quiet)
    found = times_of(durations)
    return Source(trace_of(graph, found), found, durations.source)


def source_of_config(path: Path, times: TimeOptions, export: ExportOptions, *, quiet: bool) -> Source:
    """Does what the configuration file ``path`` asks for. Kernels are measured if it says so, each alone."""
    from tensortide.reports.liveness_files import liveness_of_config

    told = ""

    def timed(trace: Trace, config: LivenessConfig) -> Times:
        nonlocal told
        asked = TimeOptions(measure=True) if times == TimeOptions() and config.profile else times
        found = _timed(trace, asked, quiet=quiet)
        told = found.told
        return found.times

    done = liveness_of_config(path, timed, with_times=export.with_times, order=export.order)
    return Source(done.trace, done.times, told, done.files, done.config.device_memory_bytes)


def _timed(trace: Trace, times: TimeOptions, *, quiet: bool) -> Source:
    durations = durations_of_trace(trace, times, quiet=quiet)
    recorded = trace.times if times == TimeOptions() else None
    return Source(trace, times_of(durations) if recorded is None else recorded, durations.source)
