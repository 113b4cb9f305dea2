"""``tensortide count``: FLOPs, MACs, bytes and parameters of one step."""

from __future__ import annotations

from tensortide.cli.source import (
    CaptureOptions,
    CostOptions,
    Depth,
    OutputOptions,
    Target,
    Top,
    console,
    graph_of,
    print_json,
    resolver,
)
from tensortide.report import report


def count(
    target: Target,
    /,
    *,
    depth: Depth = 3,
    top: Top = 15,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    cost: CostOptions = CostOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Count one step: FLOPs with MACs beside them, bytes and parameters, by phase, module and op."""
    graph = graph_of(target, options, quiet=out.quiet)
    document = report(graph, strict=cost.strict, resolver=resolver, top=max(top, 25))
    if out.json:
        keys = (
            "format",
            "overview",
            "phases",
            "modules",
            "top_by_flops",
            "top_by_bytes",
            "ops",
            "environment",
            "assumptions",
            "notes",
        )
        print_json({key: getattr(document, key) for key in keys})
        return
    from tensortide.report.terminal import render_count

    render_count(document, console(), depth=depth, top=top)
