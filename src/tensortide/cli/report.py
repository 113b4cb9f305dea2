"""``tensortide report``: everything about one step, on the terminal and in files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec

from tensortide.cli.durations import TimeOptions, predicted_steps, timed
from tensortide.cli.show import Files, show
from tensortide.cli.source import (
    CaptureOptions,
    Depth,
    OutputOptions,
    Strict,
    Target,
    Top,
    machines_of,
    option,
    progress,
    require_certain,
)
from tensortide.importers.door import resolve
from tensortide.recorder import resolver
from tensortide.write import check_writable, write_file


def report(
    target: Target,
    /,
    *,
    files: Files = Files(),  # noqa: B008
    memory_viz: Annotated[Path | None, option("--memory-viz", "Write a snapshot for pytorch.org/memory_viz.")] = None,
    depth: Depth = 3,
    top: Top = 15,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    strict: Strict = False,
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Report what one step costs: totals, where they go, memory over time, what is resident at the peak.

    Time is that of --machine, --durations or --measure; by default an estimate.
    """
    from tensortide.reports.sections import Step, sections_of
    from tensortide.reports.sections.ops import schedule
    from tensortide.reports.snapshot import render_snapshot

    files.check()
    if memory_viz is not None:
        check_writable(memory_viz)
    if strict:
        options.require_full_names()
    found = timed(resolve(target), replace(options, compare=strict), times, quiet=out.quiet)
    if strict:
        require_certain(found.graph)
    assert found.durations is not None
    asked = [machines_of(text) for text in options.machines]
    predicted = [one.step_time() for one in predicted_steps([found.graph], found.durations, asked)]
    step = Step(found.graph, found.durations, resolver, strict, top, depth, *predicted)
    with progress(out.quiet) as say:
        say("counting")
        document = step.document(*sections_of(step))
        wrote = replace(files, trace=None).write(document, table="ops.ops")
        if files.trace is not None:
            lanes = msgspec.structs.replace(document, sections=(*document.sections, schedule(step)))
            wrote += Files(trace=files.trace).write(lanes, table="")
        if memory_viz is not None:
            wrote.append(write_file(memory_viz, render_snapshot(found.graph)))
    show(document, out, wrote=wrote)
