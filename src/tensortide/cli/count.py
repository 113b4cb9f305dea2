"""``tensortide count``: FLOPs, MACs, bytes and parameters of one step."""

from __future__ import annotations

from typing import Annotated

from tensortide.cli.costtable import TableOptions, count_file
from tensortide.cli.rules import explain_op, list_missing
from tensortide.cli.show import show
from tensortide.cli.source import CaptureOptions, CostOptions, Depth, OutputOptions, Target, Top, opened, option
from tensortide.cli.symbols import SymbolOptions, count_symbols
from tensortide.errors import WorkloadError
from tensortide.graph import unrolled
from tensortide.importers.door import File, resolve
from tensortide.importers.imported import Imported
from tensortide.recorder.resolver import resolver


def count(
    target: Target,
    /,
    *,
    explain: Annotated[str, option("--explain", "Explain the cost of one op, by index or name: 42, mm, aten.mm.")] = "",
    missing: Annotated[
        bool, option("--missing", "List the ops without a cost rule, each with one to complete.")
    ] = False,
    depth: Depth = 3,
    top: Top = 15,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    cost: CostOptions = CostOptions(),  # noqa: B008
    tables: TableOptions = TableOptions(),  # noqa: B008
    chosen: SymbolOptions = SymbolOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Count one step: FLOPs with MACs beside them, bytes and parameters, by phase, module and op.

    With --symbols every figure is a formula in hyperparameters.
    """
    from tensortide.reports.sections import Step
    from tensortide.reports.sections.cost import of_step as cost_section
    from tensortide.reports.sections.modules import of_step as modules_section
    from tensortide.reports.sections.ops import of_step as ops_section

    if chosen != SymbolOptions():
        if not chosen.symbols:
            raise WorkloadError("--condition, --values, --formulas and --latex go with --symbols NAMES")
        count_symbols(target, chosen, options, strict=cost.strict, depth=depth, top=top, out=out)
        return
    found = resolve(target)
    if explain or missing:
        graph = opened(found, options, quiet=out.quiet, durations=False).graph
        if explain:
            explain_op(graph, explain, out)
        if missing:
            list_missing(graph, out)
        return
    read: Imported | None
    if isinstance(found, File):
        read = count_file(found, tables, options, strict=cost.strict, depth=depth, top=top, out=out)
        if read is None:
            return
    elif tables != TableOptions():
        raise WorkloadError(f"{target} is a workload: --table, --ops and --csv go with a file")
    else:
        read = opened(found, options, quiet=out.quiet)
    step = Step(unrolled(read.graph), resolver=resolver, strict=cost.strict, top=top, depth=depth)
    sections = (cost_section(step), modules_section(step), ops_section(step))
    show(step.document(*filter(None, sections)), out)
