"""``tensortide sweep``: the totals of a step over ranges of its hyperparameters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tensortide.cli.formulas import FormulaOptions, FormulasTarget, Plot, formulas_of
from tensortide.cli.source import OutputOptions, console, is_stdout, print_json
from tensortide.formulas.sweep import axis
from tensortide.formulas.sweep import sweep as make_sweep
from tensortide.write import check_writable, write_file


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
    csv: Annotated[Path | None, Parameter(help="Write one line per point.")] = None,
    markdown: Annotated[Path | None, Parameter(help="Write a table to paste into a page.")] = None,
    plot: Plot = None,
    options: FormulaOptions = FormulaOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Tabulate the totals of one step over ranges of its hyperparameters."""
    from tensortide.reports.figures import sweep_figure
    from tensortide.reports.render.figure import check_figure

    axes = dict(map(axis, over))
    files = [path for path in (csv, markdown, plot) if path is not None]
    for path in files:
        check_figure(path) if path is plot else check_writable(path)
    formulas = formulas_of(target, axes, options, quiet=out.quiet)
    table = make_sweep(formulas, axes)
    if csv is not None:
        write_file(csv, table.csv())
    if markdown is not None:
        write_file(markdown, table.markdown())
    if plot is not None:
        sweep_figure(table, plot)
    if any(map(is_stdout, files)):
        return
    if out.json:
        print_json({"workload": table.workload, "fixed": table.fixed, "over": table.over, "points": table.rows()})
        return
    from tensortide.reports.formulas import render_sweep

    screen = console()
    render_sweep(table, screen)
    if not out.quiet:
        for path in files:
            screen.print(f"wrote {path}", soft_wrap=True)
