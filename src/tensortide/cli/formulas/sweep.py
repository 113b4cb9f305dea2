"""``tensortide formulas sweep``: the totals of a step over ranges of its hyperparameters."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tensortide.cli.formulas.options import FormulaOptions, FormulasTarget, formulas_of
from tensortide.cli.show import Files, show
from tensortide.cli.source import OutputOptions
from tensortide.formulas.sweep import axis
from tensortide.formulas.sweep import sweep as make_sweep


def sweep(
    target: FormulasTarget,
    /,
    *,
    over: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(), help="Values of a symbol: hidden=256:8192:*2, seq=128:1024:128, batch=1,2,4. Repeatable."
        ),
    ],
    files: Files = Files(),  # noqa: B008
    options: FormulaOptions = FormulaOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Tabulate the totals of one step over ranges of its hyperparameters."""
    from tensortide.reports.sections.sweep import check_drawable, document

    files.check()
    axes = dict(map(axis, over))
    table = make_sweep(formulas_of(target, axes, options, quiet=out.quiet), axes)
    if files.figure is not None:
        check_drawable(table)
    made = document(table)
    show(made, out, wrote=files.write(made, table="points"))
