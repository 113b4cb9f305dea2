"""``tensortide count`` of a file as a table: totals as formulas and values, a row per op, other tools' tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tensortide.cli.show import show
from tensortide.cli.source import CaptureOptions, OutputOptions, is_stdout, opened, option, symbols_of
from tensortide.errors import WorkloadError
from tensortide.importers.door import File
from tensortide.importers.imported import Imported
from tensortide.importers.table import importers
from tensortide.write import check_writable, write_file

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document

__all__ = ["TableOptions", "count_file"]

OURS = "tensortide"
THEIRS = "; ".join(f"{', '.join(importer.tables)}, for {importer.kind}" for importer in importers() if importer.tables)


@Parameter(name="*")
@dataclass(frozen=True)
class TableOptions:
    """The table that a file is counted by, and whether every op has a row."""

    table: Annotated[str, option("--table", f"Of a file: count by another tool's table ({THEIRS}).")] = OURS
    ops: Annotated[bool, option("--ops", "Of a file: a row for every op.")] = False
    csv: Annotated[Path | None, option("--csv", "Of a file: write a row per op as CSV.")] = None


def count_file(
    found: File,
    tables: TableOptions,
    options: CaptureOptions,
    *,
    strict: bool,
    depth: int,
    top: int,
    out: OutputOptions,
) -> Imported | None:
    """Count ``found`` and print its table. Returns the step instead if a report of it says more.

    That is so for a file without loops whose importer has no tables, unless the options ask for one.
    """
    target = None if tables.csv is None else check_writable(tables.csv)
    rows = tables.ops or target is not None
    if tables.table != OURS:
        document = _theirs(found, tables.table, options, strict=strict, rows=rows, depth=depth, top=top)
    else:
        step = opened(found, options, quiet=out.quiet, durations=False)
        if not (found.importer.tables or tables != TableOptions() or step.graph.loops):
            return step
        document = _ours(step, found, strict=strict, rows=rows, depth=depth, top=top)
    if target is not None:
        from tensortide.reports.render.csv import render_csv
        from tensortide.reports.sections.cost_table import ROWS

        write_file(target, render_csv(document, ROWS))
        if is_stdout(target):
            return None
    show(
        document if tables.ops or not rows else _without_rows(document), out, wrote=() if target is None else (target,)
    )
    return None


def _ours(step: Imported, found: File, *, strict: bool, rows: bool, depth: int, top: int) -> Document:
    from tensortide.cost import count
    from tensortide.cost.table import known_sizes, table_of
    from tensortide.reports.sections.cost_table import table_document

    counted = count(step.graph, strict=strict)
    table = table_of(counted, step.symbols or known_sizes(step.graph))
    return table_document(table, file=found.path.name, count=counted, rows=rows, depth=depth, top=top)


def _theirs(
    found: File, name: str, options: CaptureOptions, *, strict: bool, rows: bool, depth: int, top: int
) -> Document:
    """Show a table of the file's importer. Raises WorkloadError if it has none of this name."""
    from tensortide.cost.differences import Comparison
    from tensortide.reports.sections.cost_table import compare_document, table_document

    if name not in found.importer.tables:
        known = ", ".join([OURS, *found.importer.tables])
        raise WorkloadError(f"{found}, which has no table {name!r}: --table takes {known}")
    asked = found.importer.options_of({**options.reading.given(), "symbols": symbols_of(found, options)}, found.path)
    table = found.importer.tables[name](found.path, asked, strict)
    if isinstance(table, Comparison):
        return compare_document(table, file=found.path.name, rows=rows, top=top)
    return table_document(table, file=found.path.name, rows=rows, depth=depth, top=top)


def _without_rows(document: Document) -> Document:
    import msgspec

    from tensortide.reports.sections.cost_table import ROWS

    sections = [
        msgspec.structs.replace(section, blocks=tuple(block for block in section.blocks if block.key != ROWS))
        for section in document.sections
    ]
    return msgspec.structs.replace(document, sections=tuple(section for section in sections if section.blocks))
