"""``tensortide memory``: memory over the step, its peak and what is alive there."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tensortide.cli.durations import TimeOptions, timed
from tensortide.cli.idle import IdleOptions, show_idle
from tensortide.cli.show import Files, show
from tensortide.cli.source import CaptureOptions, Depth, OutputOptions, Target, Top
from tensortide.importers.door import resolve
from tensortide.memory import ALLOCATORS, EXACT
from tensortide.recorder.resolver import resolver


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
    idle: IdleOptions = IdleOptions(),  # noqa: B008
    files: Files = Files(),  # noqa: B008
    depth: Depth = 3,
    top: Top = 15,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Show memory over one step: its peak, by phase and by module, over time, and what is resident at the peak."""
    from tensortide.reports.sections import Step
    from tensortide.reports.sections.memory import document

    idle.check()
    files.check()
    if idle.idle:
        show_idle(target, idle, files, options, times, out, top=top)
        return
    found = timed(resolve(target), options, times, quiet=out.quiet)
    made = document(Step(found.graph, found.durations, resolver, top=top, depth=depth), allocator=allocator)
    show(made, out, wrote=files.write(made, table="storages"))
