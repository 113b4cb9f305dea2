"""``tensortide report``: the answer about one step on the terminal, and everything about it in files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from tensortide.cli.console import progress
from tensortide.cli.job import show_job
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import verb
from tensortide.reports.request import ReportRequest, answer
from tensortide.targets.command import command, typed
from tensortide.targets.machines import device_named
from tensortide.write import write_file

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document, Table
    from tensortide.reports.sections import Step

PAGE = "report.html"
"""The page in a command that writes one."""


@verb
def report(asked: ReportRequest, files: Files, out: OutputRequest) -> None:
    """Report what one step costs, on one screen: does it fit, its memory, time and FLOPs, where they go, what to do.

    --full prints all of it, and --html writes it as a page. Time is that of --machine, --durations or --measure; by
    default an estimate.
    """
    from tensortide.reports.sections import report_of
    from tensortide.reports.sections.ops import schedule
    from tensortide.reports.snapshot import render_snapshot

    if asked.step.capture.all_stages:
        show_job(asked, asked.step.capture, files, out)
        return
    with progress(out.quiet) as say:
        step = answer(asked, say)
        say("counting")
        document = report_of(step)
        wrote = replace(files, trace=None).write(document, table="ops.ops")
        if files.trace is not None:
            lanes = msgspec.structs.replace(document, sections=(*document.sections, schedule(step)))
            wrote += Files(trace=files.trace).write(lanes, table="")
        if asked.memory_viz is not None:
            wrote.append(write_file(asked.memory_viz, render_snapshot(step.graph)))
    show(document, out, wrote=wrote, then=_next(asked, files, step, document), full=asked.full)


def _next(asked: ReportRequest, files: Files, step: Step, document: Document) -> Iterator[str]:
    """Commands that say more about the step, with the options that were given."""
    capture = asked.step.capture
    named = capture.machine or step.graph.meta.machine or None
    # a machine without times is a size of memory
    memory_known = named is None or step.durations is None or device_named(named).usable_bytes is not None
    if memory_known and not capture.compiled and "verdict" in {section.key for section in document.sections}:
        machine = () if named else ("--machine", _smallest_that_fits(document["verdict"].table("devices")))
        yield command("fit", asked.target, *typed(capture), *machine)
    rest = [*(["--full"] if not asked.full else []), *(["--html", PAGE] if files.html is None else [])]
    if rest:
        yield command("report", asked.target, *typed(asked, "target", "memory_viz", "full"), *rest)


def _smallest_that_fits(devices: Table) -> str:
    """The name of the smallest device that the step fits, or of the largest."""
    names = [str(name) for name in devices["device"]]
    return next((name for name, fits in zip(names, devices["fits"], strict=True) if fits == "fits"), names[-1])
