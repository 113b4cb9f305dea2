"""``tensortide formulas show``: the formulas of a step."""

from __future__ import annotations

import dataclasses

from tensortide.cli.formulas.options import FormulasTarget
from tensortide.cli.show import Files
from tensortide.cli.show import show as show_document
from tensortide.cli.source import CaptureOptions, Depth, OutputOptions, Strict, Top
from tensortide.cli.symbols import ALL, SymbolOptions, count_symbols
from tensortide.errors import WorkloadError
from tensortide.formulas.formulas import is_formulas_file, load_formulas
from tensortide.recorder.target import find_workload


def show(
    target: FormulasTarget,
    /,
    *,
    depth: Depth = 3,
    top: Top = 15,
    files: Files = Files(),  # noqa: B008
    chosen: SymbolOptions = SymbolOptions(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    strict: Strict = False,
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Show the totals of one step as formulas in its hyperparameters, by phase, module and op, and where they hold.

    Without --symbols every hyperparameter that is an integer is a symbol.
    """
    files.check()
    if find_workload(target) is None and is_formulas_file(target):
        from tensortide.reports.sections.formulas import document_of_file

        if chosen != SymbolOptions() or options != CaptureOptions():
            raise WorkloadError(f"{target} is a file of formulas: --symbols and --set go with a workload")
        made = document_of_file(load_formulas(target))
    else:
        chosen = chosen if chosen.symbols else dataclasses.replace(chosen, symbols=ALL)
        made = count_symbols(target, chosen, options, strict=strict, depth=depth, top=top, quiet=out.quiet)
    show_document(made, out, wrote=files.write(made, table="totals"))
