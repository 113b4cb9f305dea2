"""``tensortide count``: FLOPs, MACs, bytes and parameters of one step; of a file also as a table of formulas."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tensortide.cli.expressions import opened_exactly
from tensortide.cli.show import Files, show
from tensortide.cli.source import (
    CaptureOptions,
    Depth,
    OutputOptions,
    Strict,
    Target,
    Top,
    option,
    require_certain,
    symbols_of,
)
from tensortide.cli.symbols import SymbolOptions, count_symbols
from tensortide.errors import GraphFileError, WorkloadError
from tensortide.file_faults import reading
from tensortide.graph import Graph, unrolled
from tensortide.graph.plain import plain
from tensortide.importers.door import File, resolve
from tensortide.importers.imported import Imported
from tensortide.recorder import resolver
from tensortide.recorder.script import Script

if TYPE_CHECKING:
    from tensortide.cost.differences import Comparison
    from tensortide.cost.table import Table
    from tensortide.recorder.target import Workload
    from tensortide.reports.blocks import Document

OURS = "tensortide"


@Parameter(name="*")
@dataclass(frozen=True)
class TableOptions:
    """The table that a file is counted by, and whether every op has a row."""

    table: Annotated[str, Parameter(show=False)] = OURS
    ops: Annotated[bool, option("--ops", "For a file: show a row for every op.")] = False


def count(
    target: Target,
    /,
    *,
    explain: Annotated[str, option("--explain", "Explain the cost of one op, by index or name: 42, mm, aten.mm.")] = "",
    missing: Annotated[
        bool, option("--missing", "List the ops without a cost rule, each with a rule to complete.")
    ] = False,
    depth: Depth = 3,
    top: Top = 15,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    strict: Strict = False,
    tables: TableOptions = TableOptions(),
    chosen: SymbolOptions = SymbolOptions(),  # noqa: B008
    files: Files = Files(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Count one step: FLOPs with MACs beside them, bytes and parameters, by phase, module and op.

    With --symbols every figure is a formula in hyperparameters.
    """
    files.check()
    if chosen != SymbolOptions():
        if not chosen.symbols:
            raise WorkloadError("--condition, --values, --formulas and --latex go with --symbols NAMES")
        made = count_symbols(target, chosen, options, strict=strict, depth=depth, top=top, quiet=out.quiet)
        show(made, out, wrote=files.write(made, table="totals"))
        return
    found = resolve(target)
    if explain or missing:
        graph = opened_exactly(found, options, quiet=out.quiet).graph
        asked = [*([_explained(graph, explain)] if explain else ()), *([_missing(graph)] if missing else ())]
        for made, table, text in asked:
            show(made, out, wrote=files.write(made, table=table), text=text)
        return
    if not isinstance(found, File) and tables != TableOptions():
        raise WorkloadError(f"{target} is a workload: --table and --ops go with a file")
    rows = tables.ops or files != Files()
    made = _counted(found, tables, options, strict=strict, depth=depth, top=top, rows=rows, quiet=out.quiet)
    show(made, out, wrote=files.write(made, table="ops"))


def _counted(
    found: File | Script | Workload,
    tables: TableOptions,
    options: CaptureOptions,
    *,
    strict: bool,
    depth: int,
    top: int,
    rows: bool,
    quiet: bool,
) -> Document:
    """Count ``found``; with ``rows`` a table has one for every op, which is printed if the options ask for it.

    A file is shown as a table if the options ask for one, its importer has one, its graph has loops or its
    sizes open symbols; else as the
    report of a step, which says more.
    """
    from tensortide.cost import count
    from tensortide.cost.table import table_of
    from tensortide.graph.sizes import known_sizes
    from tensortide.reports.sections import Step, cost, modules, ops
    from tensortide.reports.sections.cost_table import table_document

    as_table = partial(table_document, rows=rows, listed=tables.ops, depth=depth, top=top)
    if isinstance(found, File) and tables.table != OURS:
        return as_table(_theirs(found, tables.table, options, strict), file=found.path.name)
    if strict:
        options.require_full_names()
    read = opened_exactly(found, replace(options, compare=strict), quiet=quiet)
    if strict:
        require_certain(read.graph)
    if isinstance(found, File) and (found.importer.tables or tables.ops or read.graph.loops or _is_open(read, options)):
        counted = count(read.graph, strict=strict)
        table = table_of(counted, read.symbols or known_sizes(read.graph))
        return as_table(table, count=counted, file=found.path.name)
    step = Step(unrolled(plain(read.graph)), resolver=resolver, strict=strict, top=top, depth=depth)
    return step.document(*filter(None, (cost.of_step(step), modules.of_step(step), ops.of_step(step))))


def _is_open(read: Imported, options: CaptureOptions) -> bool:
    """Tell whether sizes have a symbol whose value was not given: then its formulas say more than its numbers."""
    return bool(read.symbols.keys() - {setting.rpartition("=")[0].strip() for setting in options.set})


def _theirs(found: File, name: str, options: CaptureOptions, strict: bool) -> Table | Comparison:
    """Return a table of the file's importer. Raises WorkloadError if it has none of this name."""
    if name not in found.importer.tables:
        known = ", ".join([OURS, *found.importer.tables])
        raise WorkloadError(f"{found}, which has no table {name!r}: --table takes {known}")
    asked = found.importer.options_of({**options.of_file(), "symbols": symbols_of(found, options)}, found.path)
    with reading(found.path, GraphFileError):
        return found.importer.tables[name](found.path, asked, strict)


def _explained(graph: Graph, op: str) -> tuple[Document, str, str]:
    """Explain the rule of one op: its source line, the values that went in, and the cost that came out."""
    from tensortide.cost import explain
    from tensortide.reports.sections.rules import document

    found = explain(graph, op, resolver=resolver)
    return document(found, title=graph.meta.workload), "arguments", str(found)


def _missing(graph: Graph) -> tuple[Document, str, str]:
    """List the ops of a step that have no cost rule, each with a rule ready to complete."""
    from tensortide.cost import count, missing
    from tensortide.reports.sections.rules import missing_rules

    unknown, coverage = missing(graph, resolver=resolver), count(graph, resolver=resolver).coverage
    text = "\n\n".join([coverage.line(), *map(str, unknown)]) + "\nevery op has a cost rule" * (not unknown)
    return missing_rules(unknown, coverage, title=graph.meta.workload), "missing", text
