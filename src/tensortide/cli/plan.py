"""``tensortide plan``: how to execute a step in less memory.

``plan order``: the smallest peak over all orders of the ops, with the order and a proof."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter, validators

from tensortide.cli.interrupt import counted
from tensortide.cli.show import Files, show
from tensortide.cli.source import CaptureOptions, OutputOptions, Target, Top, graph_of, option, progress
from tensortide.graph import unrolled
from tensortide.plans import footprint, save_plan
from tensortide.units import format_bytes, format_percent
from tensortide.write import check_writable

plan = App(name="plan", help="Plan how to execute a step in less memory.", help_format="plaintext")


@plan.command
def order(
    target: Target,
    /,
    *,
    written: Annotated[Path | None, option("--plan", "Write the best order as a plan.")] = None,
    time: Annotated[
        float, Parameter(help="Seconds after which the search stops.", validator=validators.Number(gt=0))
    ] = 60.0,
    top: Top = 15,
    files: Files = Files(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Find the order of one step's ops that needs the least memory, with a proof of how little is possible.

    Ctrl-C ends the search and shows the best so far.
    """
    from tensortide.reports.sections.order import document

    files.check()
    paths = [] if written is None else [check_writable(written)]
    graph = graph_of(target, options, quiet=out.quiet)
    with progress(out.quiet) as say, counted() as requests:

        def watch(lower: int, upper: int) -> bool:
            gap = format_percent(upper - lower, lower)
            say(f"best {format_bytes(upper)}, at least {format_bytes(lower)}, gap {gap}; Ctrl-C to stop here")
            return not requests

        found = footprint(graph, device=options.device, time_s=time, watch=watch)
    for path in paths:
        save_plan(found.plan, path)
    made = document(found, unrolled(graph), top=top)
    show(made, out, wrote=[*paths, *files.write(made, table="order")])
