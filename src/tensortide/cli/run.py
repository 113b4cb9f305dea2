"""``tensortide run``: a workload run live under a memory budget."""

from __future__ import annotations

from tensortide.cli.console import progress
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import verb
from tensortide.errors import ExitStatus, RequestError
from tensortide.studies.live import RunRequest, answer


@verb
def run(asked: RunRequest, files: Files, out: OutputRequest) -> ExitStatus:
    """Run a workload for real under a memory budget, and compare with ordinary steps of it.

    Exits with 1 if a step does not fit the budget, or if its results are not those of ordinary steps.
    """
    from tensortide.reports.sections.run import document
    from tensortide.run.measure import Measured

    if files.trace is not None and not asked.compare:
        raise RequestError("--trace has the step that --compare predicts and measures: give --compare too")
    if files.figure is not None and asked.compiled:
        raise RequestError("--compiled has no figure: leave out --figure")
    with progress(out.quiet or out.json) as say:
        found = answer(asked, say)
    made = document(found)
    then = (of.command,) if isinstance(of := found.measured, Measured) else ()
    show(made, out, wrote=[*files.write(made, table="figures"), *found.wrote], then=then)
    if found.failed is not None:
        raise found.failed
    return found.status
