"""``tensortide count``: FLOPs, MACs, bytes and parameters of one step; of a file also as a table of formulas."""

from __future__ import annotations

from tensortide.cli.console import progress
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import verb
from tensortide.formulas.result import Symbolic
from tensortide.studies.count_request import CountRequest, answer


@verb
def count(asked: CountRequest, files: Files, out: OutputRequest) -> None:
    """Count one step: FLOPs with MACs beside them, bytes and parameters, by phase, module and op.

    With --symbols every figure is a formula in hyperparameters; --ops lists every op. With --strict it exits with 3 if
    an op has no cost rule or no formula, or the step depends on what was assumed.
    """
    from tensortide.reports.sections.count_answer import answered, main_table, text

    with progress(out.quiet) as say:
        found = answer(asked, say)
    made = answered(found, asked, rows=asked.ops or files != Files())
    wrote = files.write(made, table=main_table(found, asked))
    if isinstance(found, Symbolic):
        wrote += asked.written.write(found.formulas)
    show(made, out, wrote=wrote, text=text(found))
