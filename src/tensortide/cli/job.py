"""Verbs with ``--all-stages``: the job of a launch command in place of one rank."""

from __future__ import annotations

from tensortide.cli.console import progress
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.errors import ExitStatus, RequestError
from tensortide.request import Request
from tensortide.studies.job import job_of
from tensortide.targets.requests import CaptureRequest
from tensortide.timing.collectives.nodes import OF_CATALOGUE, LinkRates

_TAKEN = frozenset({"target", "capture", "links", "memory"})
"""Fields of a verb's request, and requests in it, whose options a job has, too."""
_STRICT = "--strict"
_FILES = {"html", "csv", "markdown"}
"""Files of tables, which a job has, too."""


def show_job(
    asked: Request,
    capture: CaptureRequest,
    files: Files,
    out: OutputRequest,
    *,
    rates: LinkRates = OF_CATALOGUE,
    memory: int | None = None,
) -> ExitStatus:
    """Show all stages of the launch that a verb is ``asked`` about. Returns the status of ``fit``.

    Raises RequestError for options of the verb that say nothing of a job.
    """
    given = [one for one in asked.given() if _TAKEN.isdisjoint(one.path)]
    strict = any(one.name == _STRICT for one in given)
    unused = [one.name for one in given if one.name != _STRICT]
    unused += [one.name for one in files.given() if one.field.name not in _FILES]
    if unused:
        raise RequestError(f"--all-stages goes without {', '.join(unused)}: leave it out, or ask about one --rank")
    with progress(out.quiet) as say:
        found = job_of(asked.get("target"), capture, rates, memory, say, strict=strict)
    made = found.document()
    show(made, out, wrote=files.write(made, table="ranks"))
    return found.status
