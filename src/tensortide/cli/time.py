"""``tensortide time``: the duration of every op of a step, estimated, measured, or read from a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, validators

from tensortide.cli.durations import TimeOptions, timed
from tensortide.cli.show import Files, show
from tensortide.cli.source import (
    CaptureOptions,
    Depth,
    OutputOptions,
    Target,
    Top,
    graph_of,
    option,
    progress,
    settings_of,
)
from tensortide.errors import WorkloadError
from tensortide.importers.door import File, resolve
from tensortide.recorder.resolver import resolver
from tensortide.timing import save_durations
from tensortide.timing.durations import SUFFIX
from tensortide.write import check_writable

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.timing import Durations


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
    how: MeasureOptions = MeasureOptions(),
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
    with progress(out.quiet) as say:
        graph, durations = _durations(target, times, how, options, out.quiet, say)
    if how.strict and durations.measurement is not None:
        require_all(graph, durations.measurement.stand_ins)
    if file is not None:
        save_durations(durations, file)
    made = document(graph, durations, target=target, resolver=resolver, depth=depth, top=top)
    show(made, out, wrote=[*files.write(made, table="ops"), *([] if file is None else [file])])


def _durations(
    target: str,
    times: TimeOptions,
    how: MeasureOptions,
    options: CaptureOptions,
    quiet: bool,
    say: Callable[[str], None],
) -> tuple[Graph, Durations]:
    _check(times, how)
    if how.recorded is not None:
        graph = graph_of(target, options, quiet=True)
        return graph, _imported(graph, how.recorded)
    threads = 1 if how.clock == "thread" and how.threads is None else how.threads
    if how.isolated:
        from tensortide.profile.isolated import measure_isolated

        graph = graph_of(target, options, quiet=True)
        return graph, measure_isolated(graph, clock=how.clock, threads=threads, device=how.device, progress=say)
    found = resolve(target)
    if not times.measure:
        step = timed(found, options, times, quiet=quiet)
        assert step.durations is not None
        return step.graph, step.durations
    if isinstance(found, File):
        raise WorkloadError(
            f"{found}, which has no step to run.\nMeasure the workload it was captured from, or its ops alone "
            "(--isolated), or give a trace of it (--from)."
        )
    if options.real or options.first_step:
        raise WorkloadError("--measure runs the steady step for real: leave out --real and --first-step")
    from tensortide.profile.measure import measure

    return measure(
        found.function,
        hyperparameters=settings_of(found, options),
        repeats=how.steps,
        clock=how.clock,
        threads=threads,
        device=how.device,
        name=target,
        progress=say,
    )


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


def _imported(graph: Graph, file: Path) -> Durations:
    from tensortide.timing.kineto import read_trace
    from tensortide.timing.listed import LISTS, from_list
    from tensortide.timing.traced import from_trace

    if file.name.endswith(LISTS):
        return from_list(graph, file, resolver=resolver)
    return from_trace(graph, read_trace(file), resolver=resolver)
