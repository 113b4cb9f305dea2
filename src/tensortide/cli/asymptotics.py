"""``tensortide asymptotics``: what costs become as a model grows."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tensortide.cli.formulas import FormulaOptions, FormulasTarget, Paths, Plot, formulas_of, path_of, symbols_of
from tensortide.cli.source import OutputOptions, Top, console, print_json
from tensortide.formulas.asymptotics import asymptotics as expand
from tensortide.formulas.domains import PPOPP19
from tensortide.formulas.shares import shares


def asymptotics(
    target: FormulasTarget,
    /,
    *,
    growth: Annotated[str, Parameter(help="The hyperparameter that grows.")],
    path: Paths = (),
    batch: Annotated[str, Parameter(show_default=False, help="The symbol of the batch (default: batch or b).")] = "",
    plot: Plot = None,
    top: Top = 4,
    options: FormulaOptions = FormulaOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Show what one step costs per parameter as the model grows, and where the growth comes from.

    --plot draws FLOPs per byte against the batch, with the ridge of an accelerator.
    """
    from tensortide.reports.figures import intensity_figure
    from tensortide.reports.render.figure import check_figure

    if plot is not None:
        check_figure(plot)
    steps = path_of(path)
    needed = [growth, *sorted(symbols_of(steps)), *([batch] if batch else [])]
    formulas = formulas_of(target, needed, options, quiet=out.quiet)
    found = expand(formulas, growth, path=steps, batch=batch)
    if plot is not None:
        intensity_figure(formulas.along(steps), growth, found.batch, PPOPP19.roof(), plot)
    terms = {name: shares(formulas, name) for name in formulas.totals}
    if out.json:
        print_json({**found.plain(), "terms": terms})
        return
    from tensortide.reports.growth import render_asymptotics

    render_asymptotics(found, terms, console(), top=top)
