"""``tensortide scale``: a training step on many devices, in one configuration or the fastest of all."""

from __future__ import annotations

from tensortide.cli.interrupt import end_requests, postponed
from tensortide.cli.search import searching
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import verb
from tensortide.errors import ExitStatus
from tensortide.studies.scale.request import ScaleRequest, answer
from tensortide.studies.scale.run import run_best


@verb
def scale(asked: ScaleRequest, files: Files, out: OutputRequest) -> ExitStatus:
    """Predict a step on many devices, with the given degrees or the fastest ones: time, memory and cost.

    Configurations that cannot run are listed with the reason; exits with 1 if none can, or if a run (--run) differs
    from one process, and with 4 if the search was stopped before one was found. Tables of strong and weak scaling show
    the best one with more and fewer replicas. Configurations of a captured step are evaluated on all cores (--threads)
    or on a Ray cluster (--cluster); Ctrl-C ends the search and shows the results so far.
    """
    from tensortide.reports.sections.scale import document

    with searching(out.quiet) as search:
        found = answer(asked, search)
    with postponed() as interrupts:
        if asked.steps is not None and found.best is not None:
            end_requests()
            found = run_best(asked, found)
    made = document(found)
    show(made, out, wrote=files.write(made, table="configurations" if len(found.legal) > 1 else "parts"))
    for interrupt in interrupts:
        raise interrupt
    return found.status
