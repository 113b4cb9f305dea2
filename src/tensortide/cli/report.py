"""``tensortide report``: everything about one step, on the terminal and in files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
    resolver,
)
from tensortide.errors import WorkloadError
from tensortide.write import check_writable, write_file

File = Path | None


def report(
    target: Target,
    /,
    *,
    html: Annotated[File, Parameter(help="Write the report as one offline HTML page.")] = None,
    trace: Annotated[File, Parameter(help="Write a trace for Perfetto or chrome://tracing.")] = None,
    memory_viz: Annotated[File, Parameter(help="Write a snapshot for pytorch.org/memory_viz.")] = None,
    ops_csv: Annotated[File, Parameter(help="Write one row per op.")] = None,
    modules_csv: Annotated[File, Parameter(help="Write one row per module.")] = None,
    markdown: Annotated[File, Parameter(help="Write a summary to paste into a pull request.")] = None,
    depth: Depth = 3,
    top: Top = 15,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    cost: CostOptions = CostOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Report what one step costs: totals, where they go, memory over time, what is alive at the peak.

    The page also tells how long memory lies idle: by the durations that --machine, --durations or --measure give.
    """
    from tensortide.report import report as make_report
    from tensortide.report.formats import render_json, write
    from tensortide.report.html import render_html
    from tensortide.report.liveness import study, with_liveness

    asked = {
        "html": html,
        "trace": trace,
        "memory-viz": memory_viz,
        "ops-csv": ops_csv,
        "modules-csv": modules_csv,
        "markdown": markdown,
    }
    files = {kind: check_writable(path) for kind, path in asked.items() if path is not None}
    if html is None and times != TimeOptions():
        raise WorkloadError("--machine, --durations and --measure go with --html (and with tensortide liveness)")
    recording = None if html is None else recording_of(target, options, times, quiet=out.quiet)
    graph = graph_of(target, options, quiet=out.quiet) if recording is None else recording.graph
    with progress(out.quiet) as say:
        say("counting")
        document = make_report(graph, strict=cost.strict, resolver=resolver, top=max(top, 25))
        for kind, path in files.items():
            say(f"writing {path}")
            if kind == "html" and recording is not None:
                made = study(graph, recording.durations_ns, durations=recording.source)
                write_file(path, render_html(with_liveness(document, made.view)))
            else:
                write(document, kind, path)
    if any(map(is_stdout, files.values())):
        return
    screen = console()
    if out.json:
        screen.file.write(render_json(document).decode())
        return
    from tensortide.report.terminal import render

    render(document, screen, depth=depth, top=top)
    if not out.quiet:
        for path in files.values():
            screen.print(f"wrote {path}", soft_wrap=True)
