"""``tensortide fit``: does the step fit a device, and what would make it."""

from __future__ import annotations

from tensortide.cli.job import show_job
from tensortide.cli.search import searching
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import verb
from tensortide.errors import ExitStatus
from tensortide.studies.fit.request import FitRequest, answer
from tensortide.studies.fit.results import Fit


@verb
def fit(asked: FitRequest, files: Files, out: OutputRequest) -> ExitStatus:
    """Say whether the step fits a device, what dominates its memory, and what to do, each with its peak and time.

    --machine may be repeated. Exits with 1 if it fits none of them, with 4 if that is unsure. Ctrl-C ends the search
    and shows what is known.
    """
    if asked.capture.all_stages:
        return show_job(asked, asked.capture, files, out, rates=asked.links.rates, memory=asked.memory)
    with searching(out.quiet) as search:
        found = answer(asked, search)
    made = found.document()
    wrote = files.write(made, table="outcomes" if isinstance(found, Fit) else "machines")
    show(made, out, wrote=wrote, then=[found.command])
    return found.status
