"""``tensortide count`` of a TensorFlow graph file: one table of costs or both, as formulas and values."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from tensortide.cli.source import CaptureOptions, OutputOptions, console, is_stdout, print_json, symbols_of
from tensortide.cli.tableoptions import TableOptions
from tensortide.cost import count
from tensortide.cost.table import Table, known_sizes, table_of
from tensortide.errors import WorkloadError
from tensortide.graph import Graph
from tensortide.importers.door import File
from tensortide.importers.imported import Imported
from tensortide.importers.tf1.catamount import NOT_PARAMETERS, compare, tabulate
from tensortide.importers.tf1.importer import MetaGraphOptions, bindings
from tensortide.importers.tf1.load import import_graph
from tensortide.reports.optable import CompareDocument, TableDocument, build_compare, build_table, rows_csv
from tensortide.write import check_writable, write_file

__all__ = ["count_file", "count_graph"]


def count_file(
    found: File,
    tables: TableOptions,
    options: CaptureOptions,
    *,
    strict: bool,
    depth: int,
    top: int,
    out: OutputOptions,
) -> None:
    """Count the step in a TensorFlow graph file and print what was asked for."""
    target = None if tables.csv is None else check_writable(tables.csv)
    asked = found.importer.options_of({**options.reading.given(), "symbols": symbols_of(found, options)}, found.path)
    assert isinstance(asked, MetaGraphOptions)
    file, every = found.path, tables.ops or target is not None
    document: TableDocument | CompareDocument
    if tables.table == "both":
        document = _compared(file, asked, strict, every)
    elif tables.table == "catamount":
        document = _catamount(file, asked, every, depth)
    else:
        imported = import_graph(file, bind=bindings(asked.bind), settings=asked.symbols)
        document = _ours(imported, file, strict, every, depth)
    _give(document, tables, target, top, out)


def count_graph(
    graph: Graph, found: File, tables: TableOptions, *, strict: bool, depth: int, top: int, out: OutputOptions
) -> None:
    """Count a graph as a table: one with loops has no report over time."""
    if tables.table != "tensortide":
        raise WorkloadError(f"{found}: --table goes with a TensorFlow file")
    target = None if tables.csv is None else check_writable(tables.csv)
    every = tables.ops or target is not None
    document = _ours(Imported(graph, symbols=known_sizes(graph)), found.path, strict, every, depth)
    _give(document, tables, target, top, out)


def _give(
    document: TableDocument | CompareDocument, tables: TableOptions, target: Path | None, top: int, out: OutputOptions
) -> None:
    """Write and print ``document``."""
    if target is not None:
        write_file(target, rows_csv(document))
        if is_stdout(target):
            return
    shown = document if tables.ops else _without_rows(document)
    if out.json:
        print_json(shown)
        return
    _render(shown, top)
    if target is not None and not out.quiet:
        console().print(f"wrote {target}", soft_wrap=True)


def _ours(imported: Imported, file: Path, strict: bool, rows: bool, depth: int) -> TableDocument:
    counted = count(imported.graph, strict=strict)
    table = table_of(counted, imported.symbols)
    notes = imported.graph.meta.assumptions
    return build_table(table, file=file.name, name="tensortide", count=counted, rows=rows, depth=depth, notes=notes)


def _catamount(file: Path, asked: MetaGraphOptions, rows: bool, depth: int) -> TableDocument:
    imported, table = _as_catamount(file, asked)
    notes = imported.graph.meta.assumptions
    return build_table(table, file=file.name, name="catamount", rows=rows, depth=depth, notes=notes)


def _as_catamount(file: Path, asked: MetaGraphOptions) -> tuple[Imported, Table]:
    imported = import_graph(
        file,
        preparation="catamount",
        preset=asked.preset,
        drop=asked.drop,
        bind=bindings(asked.bind),
        settings=asked.symbols,
    )
    skipped = NOT_PARAMETERS.get(asked.preset, "")
    return imported, tabulate(imported.graph, imported.symbols, skip_parameters=skipped)


def _compared(file: Path, asked: MetaGraphOptions, strict: bool, rows: bool) -> CompareDocument:
    _, table = _as_catamount(file, asked)
    bind = _there(bindings(asked.bind), import_graph(file).graph) if asked.bind else {}
    imported = import_graph(file, bind=bind, settings=asked.symbols)
    comparison = compare(table, count(imported.graph, strict=strict), imported.symbols)
    return build_compare(comparison, file=file.name, rows=rows)


def _there(bind: dict[str, tuple[str, ...]], graph: Graph) -> dict[str, tuple[str, ...]]:
    """The bindings of ops that the step has: the ``catamount`` table sees more of a file."""
    labels = [op.label for op in graph.ops]
    return {pattern: dims for pattern, dims in bind.items() if any(re.fullmatch(pattern, label) for label in labels)}


def _without_rows(document: TableDocument | CompareDocument) -> TableDocument | CompareDocument:
    if isinstance(document, TableDocument):
        return msgspec.structs.replace(document, rows=())
    return msgspec.structs.replace(document, differences=())


def _render(document: TableDocument | CompareDocument, top: int) -> None:
    from tensortide.reports.optable_terminal import render_compare, render_table

    if isinstance(document, TableDocument):
        render_table(document, console(), top=top)
    else:
        render_compare(document, console(), top=top)
