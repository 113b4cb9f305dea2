"""``tensortide count`` of a TensorFlow graph file: one table of costs or both, as formulas and values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tensortide.cli.source import CaptureOptions, OutputOptions, console, is_stdout, print_json, symbol_values
from tensortide.cli.tableoptions import FileOptions, TableOptions
from tensortide.cost import count
from tensortide.cost.table import Table, known_sizes, table_of
from tensortide.errors import WorkloadError
from tensortide.graph import Graph
from tensortide.importers.tf1.catamount import NOT_PARAMETERS, compare, tabulate
from tensortide.importers.tf1.load import Imported, import_graph
from tensortide.reports.optable import CompareDocument, TableDocument, build_compare, build_table, rows_csv
from tensortide.write import check_writable, write_file

__all__ = ["count_file", "count_graph", "graph_of_file"]


def graph_of_file(file: str, options: CaptureOptions, reading: FileOptions) -> Graph:
    """The Graph of ``file``: what its training step runs, or all but what the preset and the patterns drop."""
    everything = reading.preset != "none" or reading.drop
    return import_graph(
        file,
        preparation="catamount" if everything else "default",
        preset=reading.preset,
        drop=reading.drop,
        bind=bindings(reading.bind),
        settings=symbol_values(file, options),
    ).graph


def count_file(
    file: str, tables: TableOptions, options: CaptureOptions, *, strict: bool, depth: int, top: int, out: OutputOptions
) -> None:
    """Count the step in ``file`` and print what was asked for."""
    target = None if tables.csv is None else check_writable(tables.csv)
    values = symbol_values(file, options)
    every = tables.ops or target is not None
    document: TableDocument | CompareDocument
    if tables.table == "both":
        document = _compared(file, tables, values, strict, every)
    elif tables.table == "catamount":
        document = _catamount(file, tables, values, every, depth)
    else:
        imported = import_graph(file, bind=bindings(tables.bind), settings=values)
        document = _ours(imported, file, strict, every, depth)
    _give(document, tables, target, top, out)


def count_graph(
    graph: Graph, file: str, tables: TableOptions, *, strict: bool, depth: int, top: int, out: OutputOptions
) -> None:
    """Count a saved graph as a table: one with loops has no report over time."""
    if tables.table != "tensortide" or tables.bind or tables.drop or tables.preset != "none":
        raise WorkloadError(f"{file} is a saved graph: --table, --preset, --drop and --bind go with a TensorFlow file")
    target = None if tables.csv is None else check_writable(tables.csv)
    every = tables.ops or target is not None
    _give(_ours(Imported(graph, known_sizes(graph)), file, strict, every, depth), tables, target, top, out)


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


def bindings(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """``PATTERN=dim,dim`` texts as dims by pattern. Raises WorkloadError for a text of another form."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        pattern, _, dims = text.rpartition("=")
        if not pattern or not all(dim.strip() for dim in dims.split(",")):
            raise WorkloadError(f"--bind takes PATTERN=dim,dim,..., not {text!r}")
        found[pattern] = tuple(dim.strip() for dim in dims.split(","))
    return found


def _ours(imported: Imported, file: str, strict: bool, rows: bool, depth: int) -> TableDocument:
    counted = count(imported.graph, strict=strict)
    table = table_of(counted, imported.hints)
    notes = imported.graph.meta.assumptions
    return build_table(
        table, file=Path(file).name, name="tensortide", count=counted, rows=rows, depth=depth, notes=notes
    )


def _catamount(file: str, tables: TableOptions, values: dict[str, int], rows: bool, depth: int) -> TableDocument:
    imported, table = _as_catamount(file, tables, values)
    notes = imported.graph.meta.assumptions
    return build_table(table, file=Path(file).name, name="catamount", rows=rows, depth=depth, notes=notes)


def _as_catamount(file: str, tables: TableOptions, values: dict[str, int]) -> tuple[Imported, Table]:
    imported = import_graph(
        file,
        preparation="catamount",
        preset=tables.preset,
        drop=tables.drop,
        bind=bindings(tables.bind),
        settings=values,
    )
    skipped = NOT_PARAMETERS.get(tables.preset, "")
    return imported, tabulate(imported.graph, imported.hints, skip_parameters=skipped)


def _compared(file: str, tables: TableOptions, values: dict[str, int], strict: bool, rows: bool) -> CompareDocument:
    _, table = _as_catamount(file, tables, values)
    bind = _there(bindings(tables.bind), import_graph(file).graph) if tables.bind else {}
    imported = import_graph(file, bind=bind, settings=values)
    comparison = compare(table, count(imported.graph, strict=strict), imported.hints)
    return build_compare(comparison, file=Path(file).name, rows=rows)


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
