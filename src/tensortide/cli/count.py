"""``tensortide count``: FLOPs, MACs, bytes and parameters of one step."""

from __future__ import annotations

from tensortide.cli.costtable import TableOptions, count_file
from tensortide.cli.source import (
    CaptureOptions,
    CostOptions,
    Depth,
    OutputOptions,
    Target,
    Top,
    console,
    opened,
    print_json,
)
from tensortide.cli.symbols import SymbolOptions, count_symbols
from tensortide.errors import WorkloadError
from tensortide.importers.door import File, resolve
from tensortide.importers.imported import Imported
from tensortide.recorder.resolver import resolver
from tensortide.reports import report


def count(
    target: Target,
    /,
    *,
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
    if chosen != SymbolOptions():
        if not chosen.symbols:
            raise WorkloadError("--condition, --values, --formulas and --latex go with --symbols NAMES")
        count_symbols(target, chosen, options, strict=cost.strict, depth=depth, top=top, out=out)
        return
    found = resolve(target)
    step: Imported | None
    if isinstance(found, File):
        step = count_file(found, tables, options, strict=cost.strict, depth=depth, top=top, out=out)
        if step is None:
            return
    elif tables != TableOptions():
        raise WorkloadError(f"{target} is a workload: --table, --ops and --csv go with a file")
    else:
        step = opened(found, options, quiet=out.quiet)
    document = report(step.graph, strict=cost.strict, resolver=resolver, top=max(top, 25))
    if out.json:
        keys = (
            "format",
            "overview",
            "phases",
            "modules",
            "top_by_flops",
            "top_by_bytes",
            "ops",
            "environment",
            "assumptions",
            "notes",
        )
        print_json({key: getattr(document, key) for key in keys})
        return
    from tensortide.reports.terminal import render_count

    render_count(document, console(), depth=depth, top=top)
