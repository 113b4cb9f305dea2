"""``tensortide formulas growth``: the limits of costs as a model grows."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tensortide.cli.formulas.options import (
    FormulaOptions,
    FormulasTarget,
    Paths,
    formulas_of,
    path_of,
    symbols_of,
)
from tensortide.cli.show import Files, show
from tensortide.cli.source import OutputOptions, Top
from tensortide.formulas.asymptotics import asymptotics as expand
from tensortide.formulas.formulas import shares
from tensortide.formulas.projection import PPOPP19


def growth(
    target: FormulasTarget,
    /,
    *,
    of: Annotated[str, Parameter(name="--growth", help="The hyperparameter that grows.")],
    path: Paths = (),
    batch: Annotated[str, Parameter(show_default=False, help="The symbol of the batch (default: batch or b).")] = "",
    files: Files = Files(),  # noqa: B008
    top: Top = 4,
    options: FormulaOptions = FormulaOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Show what one step costs per parameter as the model grows, and where the growth comes from.

    --figure draws FLOPs per byte against the batch, with the ridge of an accelerator.
    """
    from tensortide.reports.sections.growth import document, intensity_scatter

    files.check()
    steps = path_of(path)
    needed = [of, *sorted(symbols_of(steps)), *([batch] if batch else [])]
    formulas = formulas_of(target, needed, options, quiet=out.quiet)
    found = expand(formulas, of, path=steps, batch=batch)
    drawn = None if files.figure is None else intensity_scatter(formulas.along(steps), of, found.batch, PPOPP19.roof())
    terms = {name: shares(formulas, name) for name in formulas.totals}
    made = document(found, terms, drawn, top=top)
    show(made, out, wrote=files.write(made, table="per_parameter", keys=("intensity_by_batch",)))
