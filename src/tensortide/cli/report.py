"""``tensortide report``: everything about one step, on the terminal and in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tensortide.cli.durations import TimeOptions
from tensortide.cli.remat.target import recording_of
from tensortide.cli.source import (
    CaptureOptions,
    CostOptions,
    Depth,
    OutputOptions,
    Target,
    Top,
    console,
    graph_of,
    is_stdout,
    progress,
)
from tensortide.errors import WorkloadError
from tensortide.recorder.resolver import resolver
from tensortide.write import check_writable, write_file

if TYPE_CHECKING:
    from tensortide.plans.remat.recording import Recording
    from tensortide.reports.document import Document

File = Path | None


@Parameter(name="*")
@dataclass(frozen=True)
class ReportFiles:
    """What is written beside the text: one file of each format."""

    html: Annotated[
        File, Parameter(help="Write the report as one offline HTML page; its folder is made if it is missing.")
    ] = None
    trace: Annotated[File, Parameter(help="Write a trace for Perfetto or chrome://tracing.")] = None
    memory_viz: Annotated[File, Parameter(help="Write a snapshot for pytorch.org/memory_viz.")] = None
    ops_csv: Annotated[File, Parameter(help="Write one row per op.")] = None
    modules_csv: Annotated[File, Parameter(help="Write one row per module.")] = None
    markdown: Annotated[File, Parameter(help="Write a summary to paste into a pull request.")] = None

    def check(self) -> dict[str, Path]:
        """The files to be written, by format. Raises OutputError if one cannot be."""
        asked = {name.replace("_", "-"): path for name, path in asdict(self).items()}
        return {
            format: check_writable(path, folders=format == "html") for format, path in asked.items() if path is not None
        }


def report(
    target: Target,
    /,
    *,
    files: ReportFiles = ReportFiles(),
    depth: Depth = 3,
    top: Top = 15,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    cost: CostOptions = CostOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Report what one step costs: totals, where they go, memory over time, what is alive at the peak.

    The page also tells how long memory lies idle, and the trace when ops start and end: by the durations that
    --machine, --durations or --measure give.
    """
    from tensortide.reports import report as make_report
    from tensortide.reports.formats import render_json
    from tensortide.reports.terminal import render

    written = files.check()
    timed = files.html is not None or files.trace is not None
    if not timed and times != TimeOptions():
        raise WorkloadError(
            "--machine, --durations and --measure go with --html and --trace (and with tensortide liveness)"
        )
    recording = recording_of(target, options, times, quiet=out.quiet) if timed else None
    graph = graph_of(target, options, quiet=out.quiet) if recording is None else recording.graph
    with progress(out.quiet) as say:
        say("counting")
        document = make_report(graph, strict=cost.strict, resolver=resolver, top=max(top, 25))
        _write(document, recording, written, say)
    if any(map(is_stdout, written.values())):
        return
    screen = console()
    if out.json:
        screen.file.write(render_json(document).decode())
        return
    render(document, screen, depth=depth, top=top)
    if not out.quiet:
        for path in written.values():
            screen.print(f"wrote {path}", soft_wrap=True)


def _write(
    document: Document, recording: Recording | None, files: Mapping[str, Path], say: Callable[[str], None]
) -> None:
    """Write the files; those that show time by the durations of ``recording``."""
    from tensortide.reports.formats import write
    from tensortide.reports.html import render_html
    from tensortide.reports.liveness import study, with_liveness
    from tensortide.reports.trace import render_trace

    timed: dict[str, Callable[[], str | bytes]] = {}
    if recording is not None:
        made = study(recording.graph, recording.durations_ns, durations=recording.source)
        timed["html"] = lambda: render_html(with_liveness(document, made.view))
        timed["trace"] = lambda: render_trace(document, made)
    for format, path in files.items():
        say(f"writing {path}")
        if format in timed:
            write_file(path, timed[format](), folders=format == "html")
        else:
            write(document, format, path)
