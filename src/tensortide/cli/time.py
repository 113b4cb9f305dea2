"""``tensortide time``: the duration of every op of a step, estimated, measured, or read from a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tensortide.cli.durations import MeasureOptions, TimeOptions, timed, with_durations
from tensortide.cli.show import Files, show
from tensortide.cli.source import (
    CaptureOptions,
    Depth,
    OutputOptions,
    Target,
    Top,
    graph_of,
)
from tensortide.errors import WorkloadError
from tensortide.importers.door import File, resolve
from tensortide.importers.imported import Imported
from tensortide.recorder import resolver
from tensortide.timing import save_durations
from tensortide.timing.durations import SUFFIX
from tensortide.write import check_writable

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.timing import Durations


def time(
    target: Target,
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(
            name=["--output", "-o"],
            help=f"Write the durations; NAME{SUFFIX} beside NAME.tide is found by verbs that need times.",
        ),
    ] = None,
    times: TimeOptions = TimeOptions(),  # noqa: B008
    how: MeasureOptions = MeasureOptions(),  # noqa: B008
    depth: Depth = 3,
    top: Top = 15,
    files: Files = Files(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Show the time of every op of one step, by phase, op and module.

    Times are estimated for a device, or those beside a saved graph, unless --measure, --isolated or --from is given.
    """
    from tensortide.reports.sections.time import document
    from tensortide.timing.standins import require_all

    files.check()
    file = None if output is None else check_writable(output)
    graph, durations = _durations(target, times, how, options, out.quiet)
    if how.strict and durations.measurement is not None:
        require_all(graph, durations.measurement.stand_ins)
    if file is not None:
        save_durations(durations, file)
    made = document(graph, durations, target=target, resolver=resolver, depth=depth, top=top)
    show(made, out, wrote=[*files.write(made, table="ops"), *([] if file is None else [file])])


def _durations(
    target: str, times: TimeOptions, how: MeasureOptions, options: CaptureOptions, quiet: bool
) -> tuple[Graph, Durations]:
    _check(times, how)
    if how.recorded is not None:
        source = resolve(how.recorded)
        if not isinstance(source, File) or not source.importer.has("step"):
            raise WorkloadError(f"{source}: --from takes a profiler's trace or a list of times")
        step = source.read(step=graph_of(target, options, quiet=True))
    elif how.isolated:
        graph = graph_of(target, options, quiet=True)
        step = with_durations(Imported(graph), TimeOptions(measure=True), quiet=quiet, **how.conditions())
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


def _check(times: TimeOptions, how: MeasureOptions) -> None:
    """Raise WorkloadError for options that do not go together."""
    times.check()
    chosen = [name for name, given in (("--isolated", how.isolated), ("--from", how.recorded is not None)) if given]
    others = [f"--{name}" for name in ("durations", "machine", "measure") if getattr(times, name)]
    if len(chosen) > 1 or (chosen and others):
        raise WorkloadError(f"{' and '.join([*chosen, *others])} exclude each other")
    plain = MeasureOptions(isolated=how.isolated, recorded=how.recorded, strict=how.strict)
    if how != plain and not (times.measure or how.isolated):
        raise WorkloadError("--device, --steps, --clock and --threads go with --measure or --isolated")
