"""``tensortide footprint``: the smallest peak over all orders of the ops, with the order and a proof."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated

from cyclopts import Parameter, validators

from tensortide.cli.source import (
    CaptureOptions,
    OutputOptions,
    Target,
    Top,
    console,
    graph_of,
    is_stdout,
    print_json,
    progress,
)
from tensortide.graph import unrolled
from tensortide.plans import footprint as minimal
from tensortide.plans import save_plan
from tensortide.units import format_bytes, format_percent
from tensortide.write import check_writable


def footprint(
    target: Target,
    /,
    *,
    plan: Annotated[Path | None, Parameter(help="Write the best order as a plan.")] = None,
    device: Annotated[
        str | None, Parameter(help="Device to count on (default: that of the largest footprint).")
    ] = None,
    time: Annotated[
        float, Parameter(help="Seconds after which the search is cut off.", validator=validators.Number(gt=0))
    ] = 60.0,
    top: Top = 15,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Find the order of one step's ops that needs the least memory, with a proof of how little is possible.

    Ctrl-C ends the search and shows the best so far.
    """
    path = None if plan is None else check_writable(plan)
    graph = graph_of(target, options, quiet=out.quiet)
    with progress(out.quiet) as say, _interruptible() as interrupted:

        def watch(lower: int, upper: int) -> bool:
            gap = format_percent(upper - lower, lower)
            say(f"best {format_bytes(upper)}, at least {format_bytes(lower)}, gap {gap}; Ctrl-C to stop here")
            return not interrupted()

        found = minimal(graph, device=device, time_s=time, watch=watch)
    if path is not None:
        save_plan(found.plan, path)
        if is_stdout(path):
            return
    if out.json:
        print_json(found)
        return
    from tensortide.reports.footprint import render_footprint

    screen = console()
    render_footprint(found, unrolled(graph), screen, top=top)
    if path is not None and not out.quiet:
        screen.print(f"wrote {path}", soft_wrap=True)


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Take the first Ctrl-C as a wish, told by the function this yields; the second one ends the program as usual."""
    wishes: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def hear(number: int, frame: FrameType | None) -> None:
        del frame
        wishes.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield lambda: bool(wishes)
    finally:
        signal.signal(signal.SIGINT, before)
