"""``tensortide memory``: memory over the step, its peak and what is alive there."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tensortide.cli.source import CaptureOptions, Depth, OutputOptions, Target, Top, console, graph_of, print_json
from tensortide.graph import unrolled
from tensortide.memory import ALLOCATORS, EXACT
from tensortide.recorder.resolver import resolver
from tensortide.reports import report


def _known(_: object, name: str) -> None:
    if name not in ALLOCATORS:
        raise ValueError(f"there are {', '.join(ALLOCATORS)}")


def memory(
    target: Target,
    /,
    *,
    allocator: Annotated[
        str,
        Parameter(help=f"Also replay the step on an allocator: {', '.join(ALLOCATORS)}.", validator=_known),
    ] = EXACT.name,
    depth: Depth = 3,
    top: Top = 15,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Show memory over one step: its peak, by phase and by module, the bytes at every op, and what is alive at it."""
    from tensortide.reports.allocator import replayed

    graph = unrolled(graph_of(target, options, quiet=out.quiet))
    document = report(graph, resolver=resolver)
    peaks = replayed(graph, allocator) if allocator != EXACT.name else None
    if out.json:
        keys = ("format", "overview", "memory", "modules", "storages", "environment", "assumptions", "notes")
        print_json({**{key: getattr(document, key) for key in keys}, "allocator": peaks})
        return
    from tensortide.reports.terminal import render_timeline

    render_timeline(document, console(), depth=depth, top=top, allocator=peaks)
