"""``tensortide remat simulate``: one step under one budget, by one policy: does it fit, at what price, and why not.

``tensortide remat contenders``: plans made ahead against online policies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tensortide.cli import messages
from tensortide.cli.console import progress
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import verb
from tensortide.errors import ExitStatus
from tensortide.recorder import resolver
from tensortide.studies.remat.budgeted import Budgeted
from tensortide.studies.remat.request import ContendersRequest, answer_contenders
from tensortide.studies.remat.simulate import SimulateRequest, answer, write_plan

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document


@verb
def simulate(asked: SimulateRequest, files: Files, out: OutputRequest) -> ExitStatus:
    """Play one step under a memory budget: what is evicted and recomputed, what that costs, and if not, why not.

    Exits with 1 if the step does not fit. A folder as --csv has telemetry too: tensors, storages, ops, every event.
    """
    from tensortide.reports.sections.assumed import assuming
    from tensortide.reports.sections.simulation import document

    with progress(out.quiet) as say:
        run = answer(asked, say)
        made = assuming(document(run, top=asked.top), run.graph)
        wrote = [*write_plan(run, asked.plan), *_write(run, made, files)]
    show(made, out, wrote=wrote)
    if asked.plan is not None and asked.plan not in wrote:
        name = messages.one_line(str(asked.plan))
        messages.say("error", f"no plan was written to {name}: the run did not end")  # beside what was shown
    return run.status


def _write(run: Budgeted, made: Document, files: Files) -> Iterator[Path]:
    """Write the files: the page with a report of the step, tables with telemetry."""
    from tensortide.reports.sections import Step, sections_of
    from tensortide.reports.sections.simulation import telemetry_section

    if files.html is not None:
        report = (*made.sections, *sections_of(Step(run.graph, resolver=resolver)))
        yield from Files(html=files.html).write(msgspec.structs.replace(made, sections=report), table="")
    if files.csv:
        telemetry = [] if run.telemetry is None else [telemetry_section(run.telemetry)]
        whole = msgspec.structs.replace(made, sections=(*made.sections, *telemetry))
        yield from Files(csv=files.csv).write(whole, table="evicted")
    yield from replace(files, html=None, csv=()).write(made, table="", keys=("memory",))


@verb
def contenders(asked: ContendersRequest, files: Files, out: OutputRequest) -> None:
    """Compare plans made ahead (Chen, Revolve, Checkmate's optimum) with online policies under the same budgets.

    All are played on the same step and measured alike.
    """
    from tensortide.reports.sections.assumed import assuming
    from tensortide.reports.sections.contenders import document

    with progress(out.quiet) as say:
        found, graph = answer_contenders(asked, say)
    made = assuming(document(found), graph)
    show(made, out, wrote=files.write(made, table="entries"))
