"""How long the ops of a step take: the one place where verbs that need times choose where these come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tensortide.cli.source import CaptureOptions, graph_of, is_saved, option, progress, resolver, symbol_values
from tensortide.errors import GraphFileError, WorkloadError
from tensortide.graph import unrolled
from tensortide.importers.traces import is_recorded, read_recorded
from tensortide.timing import beside, device, estimate, load_durations

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.importers.trace import Trace
    from tensortide.timing import Durations

__all__ = ["DEFAULT_MACHINE", "TimeOptions", "durations_of", "durations_of_trace"]

DEFAULT_MACHINE = "A100-SXM-80GB"


@Parameter(name="*")
@dataclass(frozen=True)
class TimeOptions:
    """How long ops take."""

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


def durations_of(target: str, options: CaptureOptions, times: TimeOptions, *, quiet: bool) -> tuple[Graph, Durations]:
    """The Graph of ``target``, its loops written out, and the durations of its ops.

    What is asked for counts: a file, an estimate for a machine, a measurement. Otherwise the file beside a saved graph
    is taken if there is one, or what other tools recorded, else an estimate for ``DEFAULT_MACHINE``. A file must be of
    this graph.
    """
    times.check()
    if is_recorded(target):
        trace = read_recorded(target, bind=symbol_values(target, options))
        return trace.graph, durations_of_trace(trace, times, quiet=quiet)
    if times.measure:
        return _measured(target, options, quiet=quiet)
    graph = unrolled(graph_of(target, options, quiet=quiet))
    if times.durations is not None:
        return graph, load_durations(times.durations, graph)
    if times.machine is None and is_saved(target) and beside(target).is_file():
        return graph, _beside(target, graph)
    return graph, estimate(graph, device(times.machine or DEFAULT_MACHINE), resolver=resolver)


def durations_of_trace(trace: Trace, times: TimeOptions, *, quiet: bool) -> Durations:
    """Durations of the ops of ``trace``: what is asked for, else what was recorded, else an estimate. ``--measure``
    executes each distinct op alone."""
    times.check()
    graph = trace.graph
    if times.durations is not None:
        return load_durations(times.durations, graph)
    if times.measure:
        from tensortide.profile.isolated import measure_isolated

        with progress(quiet) as say:
            return measure_isolated(graph, progress=say)
    if times.machine is None and trace.times is not None:
        return trace.times.durations(graph, f"recorded in {graph.meta.workload}")
    return estimate(graph, device(times.machine or DEFAULT_MACHINE), resolver=resolver)


def _beside(target: str, graph: Graph) -> Durations:
    try:
        return load_durations(beside(target), graph)
    except GraphFileError as error:
        raise GraphFileError(
            f"{error}\nIt lies beside {target} and is taken for its durations. Profile again, or say which to take: "
            "--durations FILE or --machine NAME."
        ) from None


def _measured(target: str, options: CaptureOptions, *, quiet: bool) -> tuple[Graph, Durations]:
    if is_saved(target):
        raise WorkloadError(f"{target} is a saved graph, which has no step to run: --measure goes with a workload")
    if options.real or options.first_step:
        raise WorkloadError("--measure runs the steady step for real: leave out --real and --first-step")
    from tensortide.profile.measure import measure
    from tensortide.recorder.target import find, parse_settings

    workload = find(target)
    with progress(quiet) as say:
        settings = parse_settings(options.set, workload, target)
        return measure(workload, hyperparameters=settings, name=target, progress=say)
