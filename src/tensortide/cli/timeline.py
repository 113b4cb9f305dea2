"""``tensortide timeline``: memory over the step, its peak and what is alive there."""

from __future__ import annotations

from tensortide.cli.source import CaptureOptions, OutputOptions, Target, Top, console, graph_of, print_json, resolver
from tensortide.report import report


def timeline(
    target: Target,
    /,
    *,
    top: Top = 15,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Show memory over one step: bytes resident at every op by role, the peak, and what is alive at it."""
    document = report(graph_of(target, options, quiet=out.quiet), resolver=resolver)
    if out.json:
        keys = ("format", "overview", "memory", "storages", "environment", "notes")
        print_json({key: getattr(document, key) for key in keys})
        return
    from tensortide.report.terminal import render_timeline

    render_timeline(document, console(), top=top)
