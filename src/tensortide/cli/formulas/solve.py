"""``tensortide formulas solve``: the value of a hyperparameter that reaches a target."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from tensortide.cli.formulas.options import FormulaOptions, FormulasTarget, formulas_of
from tensortide.cli.show import Files, show
from tensortide.cli.source import OutputOptions
from tensortide.formulas.invert import solve as solved


def solve(
    target: FormulasTarget,
    /,
    *,
    symbol: Annotated[str, Parameter(name="--for", help="The hyperparameter to solve for.")],
    where: Annotated[str, Parameter(help='What it must reach: "peak_bytes <= 24GiB", "flops/bytes >= 19.9".')],
    want: Annotated[
        Literal["largest", "smallest"] | None,
        Parameter(show_default=False, help="Which of the values that reach it (default: the only one)."),
    ] = None,
    files: Files = Files(),  # noqa: B008
    options: FormulaOptions = FormulaOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Find the value of one hyperparameter with which a total reaches a target."""
    from tensortide.reports.sections.solution import document

    files.check()
    made = document(solved(formulas_of(target, [symbol], options, quiet=out.quiet), symbol, where, want=want))
    show(made, out, wrote=files.write(made, table="values"))
