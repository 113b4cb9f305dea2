"""Results of ``tensortide run``: steps under a budget, the least budget, or steps by a generated program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensortide.reports.blocks import Document
from tensortide.reports.sections import run, run_program
from tensortide.reports.sections.assumed import assuming

if TYPE_CHECKING:
    from tensortide.studies.live import Ran

__all__ = ["document"]


def document(ran: Ran) -> Document:
    """Show the steps that ``ran``, and what the capture of the step assumed."""
    from tensortide.run.generated.measure import MeasuredProgram
    from tensortide.run.least import Least

    if isinstance(ran.found, Least):
        made = run.least_document(ran.found)
    elif isinstance(ran.found, MeasuredProgram):
        made = run_program.document(ran.found)
    else:
        made = run.document(ran.found, ran.compared)
    return assuming(made, *([] if ran.graph is None else [ran.graph]))
