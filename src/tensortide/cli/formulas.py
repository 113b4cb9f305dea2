"""``tensortide formulas``: costs as formulas, and the questions they answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensortide.cli.console import progress
from tensortide.cli.show import Files, OutputRequest
from tensortide.cli.show import show as show_document
from tensortide.cli.verb import family, verb
from tensortide.formulas import questions
from tensortide.formulas.formulas import Formulas
from tensortide.formulas.projection import PPOPP19
from tensortide.formulas.questions import GrowthRequest, ProjectRequest, ShowRequest, SolveRequest, SweepRequest

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document

formulas = family(
    "formulas", "Find a step's costs as formulas in its hyperparameters; tabulate, solve and extrapolate them."
)


@formulas.command
@verb
def show(asked: ShowRequest, files: Files, out: OutputRequest) -> None:
    """Show the totals of one step as formulas in its hyperparameters, by phase, module and op, and where they hold.

    Without --symbols every hyperparameter that is an integer is a symbol. With --strict it exits with 3 if anything has
    no formula or no cost rule.
    """
    from tensortide.reports.sections.formulas import document

    with progress(out.quiet) as say:
        found = questions.answer_show(asked, say)
    made = document(found, depth=asked.depth, top=asked.top)
    written = [] if isinstance(found, Formulas) else asked.written.write(found.formulas)
    show_document(made, out, wrote=[*files.write(made, table="totals"), *written])


@formulas.command
@verb
def sweep(asked: SweepRequest, files: Files, out: OutputRequest) -> None:
    """Tabulate the totals of one step over ranges of its hyperparameters.

    With --strict it exits with 3 if the formulas do not hold at a point, or are extrapolated there.
    """
    from tensortide.reports.sections.formula_answers import check_drawable, of_sweep

    with progress(out.quiet) as say:
        costs, found = questions.answer_sweep(asked, say)
    if files.figure is not None:
        check_drawable(found)
    _show(of_sweep(found), costs, files, out, table="points")


@formulas.command
@verb
def solve(asked: SolveRequest, files: Files, out: OutputRequest) -> None:
    """Find the value of one hyperparameter with which a total reaches a target.

    Exits with 1 if no value does, with 4 if none was found and not all were looked at. With --strict it exits with 3 if
    the value is not checked by a capture, or extrapolated.
    """
    from tensortide.reports.sections.formula_answers import of_solution

    with progress(out.quiet) as say:
        costs, found = questions.answer_solve(asked, say)
    _show(of_solution(found), costs, files, out, table="values")


@formulas.command
@verb
def growth(asked: GrowthRequest, files: Files, out: OutputRequest) -> None:
    """Show what one step costs per parameter as the model grows, and where the growth comes from.

    --figure draws FLOPs per byte against the batch, with the ridge of an accelerator.
    """
    from tensortide.reports.sections.formula_answers import intensity_scatter, of_growth

    with progress(out.quiet) as say:
        costs, found, terms = questions.answer_growth(asked, say)
    drawn = None
    if files.figure is not None:
        drawn = intensity_scatter(costs.along(dict(asked.path)), asked.of, found.batch, PPOPP19)
    made = of_growth(found, terms, drawn, top=asked.top)
    _show(made, costs, files, out, table="per_parameter", keys=("intensity_by_batch",))


@formulas.command
@verb
def project(asked: ProjectRequest, files: Files, out: OutputRequest) -> None:
    """Project what a model must be to reach an accuracy, and what a step and an epoch of it take.

    Exits with 1 if no model has the parameters that are needed.
    """
    from tensortide.reports.sections.formula_answers import of_projection

    with progress(out.quiet) as say:
        costs, found = questions.answer_project(asked, say)
    _show(of_projection(found), costs, files, out, table="requirements")


def _show(
    document: Document, costs: Formulas, files: Files, out: OutputRequest, *, table: str, keys: Sequence[str] = ()
) -> None:
    """Write the files that are asked for, and show ``document``, which follows from ``costs``."""
    from tensortide.reports.sections.assumed import assuming

    made = assuming(document, costs.assumptions)
    show_document(made, out, wrote=files.write(made, table=table, keys=keys))
