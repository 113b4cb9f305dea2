"""``tensortide report``: everything about one step, on the terminal and in files."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tensortide.cli.console import progress
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import verb
from tensortide.reports.request import ReportRequest, answer
from tensortide.write import write_file


@verb
def report(asked: ReportRequest, files: Files, out: OutputRequest) -> None:
    """Report what one step costs: totals, where they go, memory over time, what is resident at the peak.

    Time is that of --machine, --durations or --measure; by default an estimate.
    """
    from tensortide.reports.sections import sections_of
    from tensortide.reports.sections.ops import schedule
    from tensortide.reports.snapshot import render_snapshot

    with progress(out.quiet) as say:
        step = answer(asked, say)
        say("counting")
        document = step.document(*sections_of(step))
        wrote = replace(files, trace=None).write(document, table="ops.ops")
        if files.trace is not None:
            lanes = msgspec.structs.replace(document, sections=(*document.sections, schedule(step)))
            wrote += Files(trace=files.trace).write(lanes, table="")
        if asked.memory_viz is not None:
            wrote.append(write_file(asked.memory_viz, render_snapshot(step.graph)))
    show(document, out, wrote=wrote)
