"""``tensortide metrics``: named figures of one step, kept in a file, and the layer table."""

from __future__ import annotations

from tensortide.cli.console import progress
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import verb
from tensortide.measures.request import MetricsRequest, answer


@verb
def metrics(asked: MetricsRequest, files: Files, out: OutputRequest) -> None:
    """Compute every metric of a step: costs, sizes, memory, and times where they are known or --machine is given.

    What a step does not have is listed with the reason. A saved status (NAME.status.json) is shown. In Python,
    tensortide.Profiler computes metrics of a model too. With --strict it exits with 3 if an op has no cost rule, or the
    step depends on what was assumed.
    """
    with progress(out.quiet) as say:
        found = answer(asked, say)
    made = found.document()
    wrote = files.write(made, table="values" if found.layers is None else "layers")
    show(made, out, wrote=[*wrote, *found.wrote])
