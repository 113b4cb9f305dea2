"""``tensortide scale``: a training step on many devices, in one configuration or the fastest of all."""

from __future__ import annotations

from tensortide.cli.interrupt import end_requests, postponed
from tensortide.cli.search import searching
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import verb
from tensortide.errors import ExitStatus
from tensortide.studies.scale.request import ScaleRequest, answer
from tensortide.studies.scale.run import run_best
from tensortide.studies.scale.study import Scale


@verb
def scale(asked: ScaleRequest, files: Files, out: OutputRequest) -> ExitStatus:
    """Predict a step on many devices, with the given degrees or the fastest ones: time, memory and cost.

    Configurations that cannot run are listed with the reason; exits with 1 if none can, or if a run (--run) differs
    from one process, and with 4 if the search was stopped before one was found. Tables of strong and weak scaling show
    the best one with more and fewer replicas. Configurations of a captured step are evaluated on all cores (--threads)
    or on a Ray cluster (--cluster); Ctrl-C ends the search and shows the results so far.
    """
    with searching(out.quiet) as search:
        found = answer(asked, search)
    with postponed() as interrupts:
        if asked.steps is not None and isinstance(found, Scale) and found.best is not None:
            end_requests()
            found = run_best(asked, found)
    made = found.document()
    show(made, out, wrote=files.write(made, table=found.table))
    for interrupt in interrupts:
        raise interrupt
    return found.status
