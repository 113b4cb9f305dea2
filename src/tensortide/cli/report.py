"""``tensortide report``: everything about one step, on the terminal and in files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from tensortide.cli.durations import TimeOptions, timed
from tensortide.cli.show import Files, show
from tensortide.cli.source import CaptureOptions, CostOptions, Depth, OutputOptions, Target, Top, option, progress
from tensortide.importers.door import resolve
from tensortide.recorder.resolver import resolver
from tensortide.write import check_writable, write_file

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.reports.blocks import Document


@Parameter(name="*")
@dataclass(frozen=True)
class ToolFiles:
    """Files for other tools."""

    memory_viz: Annotated[Path | None, option("--memory-viz", "Write a snapshot for pytorch.org/memory_viz.")] = None
    ops_csv: Annotated[Path | None, option("--ops-csv", "Write one row per op.")] = None
    modules_csv: Annotated[Path | None, option("--modules-csv", "Write one row per module.")] = None

    def check(self) -> None:
        """Raise OutputError if one of them cannot be written."""
        for path in filter(None, (self.memory_viz, self.ops_csv, self.modules_csv)):
            check_writable(path)

    def write(self, graph: Graph, document: Document) -> list[Path]:
        """Write the files that are asked for, and return their paths."""
        from tensortide.reports.render.csv import render_csv
        from tensortide.reports.snapshot import render_snapshot

        if self.memory_viz is not None:
            write_file(self.memory_viz, render_snapshot(graph))
        for path, table in ((self.ops_csv, "ops.ops"), (self.modules_csv, "modules.modules")):
            if path is not None:
                write_file(path, render_csv(document, table))
        return list(filter(None, (self.memory_viz, self.ops_csv, self.modules_csv)))


def report(
    target: Target,
    /,
    *,
    files: Files = Files(),  # noqa: B008
    tools: ToolFiles = ToolFiles(),
    depth: Depth = 3,
    top: Top = 15,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    cost: CostOptions = CostOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Report what one step costs: totals, where they go, memory over time, what is resident at the peak.

    Time is that of --machine, --durations or --measure; by default an estimate.
    """
    from tensortide.reports.sections import Step, sections_of
    from tensortide.reports.sections.ops import schedule

    files.check()
    tools.check()
    found = timed(resolve(target), options, times, quiet=out.quiet)
    step = Step(found.graph, found.durations, resolver, cost.strict, top, depth)
    with progress(out.quiet) as say:
        say("counting")
        document = step.document(*sections_of(step))
        wrote = replace(files, trace=None).write(document, table="ops.ops")
        if files.trace is not None:
            lanes = msgspec.structs.replace(document, sections=(*document.sections, schedule(step)))
            wrote += Files(trace=files.trace).write(lanes, table="")
        wrote += tools.write(found.graph, document)
    show(document, out, wrote=wrote)
