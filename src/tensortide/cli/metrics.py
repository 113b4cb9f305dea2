"""``tensortide metrics``: named figures of one step, kept in a file, and the layer table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensortide.cli.console import progress
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import verb
from tensortide.measures.request import Measured, MetricsRequest, answer

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document


@verb
def metrics(asked: MetricsRequest, files: Files, out: OutputRequest) -> None:
    """Compute every metric of a step: costs, sizes, memory, and times where they are known or --machine is given.

    What a step does not have is listed with the reason. A saved status (NAME.status.json) is shown. In Python,
    tensortide.Profiler computes metrics of a model too. With --strict it exits with 3 if an op has no cost rule, or the
    step depends on what was assumed.
    """
    with progress(out.quiet) as say:
        found = answer(asked, say)
    made = _document(found, asked)
    saved = [] if asked.output is None else [found.status.save(asked.output)]
    wrote = files.write(made, table="values" if found.layers is None else "layers")
    show(made, out, wrote=[*wrote, *saved])


def _document(found: Measured, asked: MetricsRequest) -> Document:
    from tensortide.reports.sections import Step
    from tensortide.reports.sections.metrics import of_figures, of_layers, of_status

    sections = [of_status(found.status, exclude=asked.exclude, long=asked.long)]
    if found.graph is None:
        return sections[0].document(asked.target)
    if found.layers is not None:
        sections.append(of_layers(found.layers))
    if found.figures is not None:
        sections.append(of_figures(found.figures))
    return Step(found.graph, found.durations).document(*sections)
