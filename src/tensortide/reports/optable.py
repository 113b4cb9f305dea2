"""A table of ops as a document: totals and breakdowns, each as formula and as value."""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Callable, Iterable, Mapping

import msgspec

from tensortide.cost.count import Count
from tensortide.cost.differences import Comparison
from tensortide.cost.table import QUANTITIES, Row, Table
from tensortide.expr import Expr, compiled, expr_of, text
from tensortide.graph.model import Graph, Role

__all__ = ["TITLES", "Cell", "CompareDocument", "TableDocument", "build_compare", "build_table", "rows_csv"]

FORMAT = "tensortide.optable/1"

TITLES: dict[str, str] = {
    "parameters": "Parameters",
    "slots": "  optimizer slots",
    "buffers": "  other variables",
    "scalars": "  scalars",
    "flops": "FLOPs",
    "product_flops": "  products",
    "elementwise_flops": "  elementwise",
    "bytes": "Bytes accessed",
    "footprint": "Footprint",
    "io": "Fed and fetched",
}
"""Totals by name, as they are shown."""


class Cell(msgspec.Struct, frozen=True):
    """A number as an expression in symbols, and its value where the symbols have theirs."""

    formula: str
    value: int


class RowCells(msgspec.Struct, frozen=True, kw_only=True):
    """One op: quantities of one run, of which a step has ``trips``."""

    name: str
    type: str
    scope: str
    phase: str
    loop: str
    rule: str
    known: bool
    trips: Cell
    parameters: Cell
    flops: Cell
    bytes: Cell
    footprint: Cell
    io: Cell


class Group(msgspec.Struct, frozen=True):
    """Rows that share something: how many, and their totals."""

    name: str
    ops: int
    totals: dict[str, Cell]


class TableDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One table of a graph. ``symbols`` are those of the totals, with the values that all values are at."""

    format: str = FORMAT
    file: str
    table: str
    symbols: dict[str, int]
    totals: dict[str, Cell]
    by_type: tuple[Group, ...]
    by_phase: tuple[Group, ...]
    by_loop: tuple[Group, ...]
    by_scope: tuple[Group, ...]
    coverage: str
    unknown: dict[str, int]
    assumptions: tuple[str, ...] = ()
    rows: tuple[RowCells, ...] = ()


class ReasonCells(msgspec.Struct, frozen=True):
    """What one reason changes of a total, and in how many ops."""

    reason: str
    text: str
    ops: int
    change: Cell


class TotalCells(msgspec.Struct, frozen=True):
    """One total in both tables, and why they differ: ``theirs`` and all changes sum to ``ours``."""

    theirs: Cell
    ours: Cell
    change: Cell
    reasons: tuple[ReasonCells, ...]


class TypeCells(msgspec.Struct, frozen=True):
    """One quantity of all ops of a type in both tables, and the formulas of their FLOPs, theirs and ours."""

    quantity: str
    type: str
    theirs: Cell
    ours: Cell
    reasons: tuple[str, ...]
    rules: tuple[str, str]


class DifferenceCells(msgspec.Struct, frozen=True):
    """One quantity of one op in both tables."""

    name: str
    type: str
    quantity: str
    theirs: Cell
    ours: Cell
    reason: str


class CompareDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The table of another tool, called ``table``, and ours side by side. ``differences`` has every op that differs, if
    asked for."""

    format: str = FORMAT
    file: str
    table: str
    symbols: dict[str, int]
    totals: dict[str, TotalCells]
    by_type: tuple[TypeCells, ...]
    differences: tuple[DifferenceCells, ...] = ()


class _Cells:
    """Expressions as cells: every distinct one is written and evaluated once."""

    def __init__(self, hints: Mapping[str, int]) -> None:
        self._hints = hints
        self.cell: Callable[[Expr], Cell] = functools.cache(self._cell)

    def _cell(self, expr: Expr) -> Cell:
        return Cell(text(expr), int(compiled([expr])(self._hints)[0]) if expr.value is None else int(expr.value))

    def all(self, totals: Mapping[str, Expr]) -> dict[str, Cell]:
        """The cells of a mapping."""
        return {name: self.cell(expr) for name, expr in totals.items()}


def build_table(
    table: Table,
    *,
    file: str,
    name: str,
    count: Count | None = None,
    rows: bool = False,
    depth: int = 3,
    notes: tuple[str, ...] = (),
) -> TableDocument:
    """The document of ``table``, with scopes to ``depth`` levels. With ``count``, of which it is the table, totals are
    told in more detail."""
    cells = _Cells(table.hints)
    totals = dict(table.totals)
    if count is not None:
        totals |= _state(count.graph)
        cost = count.total.cost
        totals |= {"product_flops": expr_of(2 * cost.macs), "elementwise_flops": expr_of(cost.elementwise_flops)}
    return TableDocument(
        file=file,
        table=name,
        symbols=table.symbols,
        totals={title: cells.cell(totals[title]) for title in TITLES if title in totals},
        by_type=_groups(table, cells, lambda row: row.type),
        by_phase=_groups(table, cells, lambda row: row.phase),
        by_loop=_groups(table, cells, lambda row: row.loop),
        by_scope=_groups(table, cells, lambda row: "/".join(row.scope.split("/")[:depth])),
        coverage=table.coverage if count is None else count.coverage.line(),
        unknown=table.unknown,
        assumptions=notes,
        rows=tuple(_row(row, cells) for row in table.rows) if rows else (),
    )


def _state(graph: Graph) -> dict[str, Expr]:
    """Elements of what is no parameter: optimizer slots, other variables, scalars among those."""
    sizes: dict[str, dict[int, Expr]] = {"slots": {}, "buffers": {}, "scalars": {}}
    for entry in graph.named:
        tensor = graph.tensors[entry.tensor]
        if entry.role in (Role.OPTIMIZER_STATE, Role.BUFFER) or (entry.role is Role.PARAMETER and not entry.trainable):
            kind = "slots" if entry.role is Role.OPTIMIZER_STATE else "buffers" if tensor.shape else "scalars"
            sizes[kind][entry.tensor] = expr_of(tensor.numel)
    return {kind: sum(found.values(), start=expr_of(0)) for kind, found in sizes.items()}


def _groups(table: Table, cells: _Cells, key: Callable[[Row], str]) -> tuple[Group, ...]:
    counts: dict[str, int] = {}
    for row in table.rows:
        counts[key(row)] = counts.get(key(row), 0) + 1
    groups = [Group(name, counts[name], cells.all(totals)) for name, totals in table.by(key).items()]
    return tuple(sorted(groups, key=lambda g: (-g.totals["flops"].value, -g.totals["bytes"].value)))


def _row(row: Row, cells: _Cells) -> RowCells:
    return RowCells(
        name=row.name,
        type=row.type,
        scope=row.scope,
        phase=row.phase,
        loop=row.loop,
        rule=row.rule,
        known=row.known,
        trips=cells.cell(row.trips),
        parameters=cells.cell(row.parameters),
        flops=cells.cell(row.flops),
        bytes=cells.cell(row.bytes),
        footprint=cells.cell(row.footprint),
        io=cells.cell(row.io),
    )


def build_compare(comparison: Comparison, *, file: str, rows: bool = False) -> CompareDocument:
    """The document of ``comparison``."""
    theirs, ours = comparison.theirs, comparison.ours
    cells = _Cells({**theirs.hints, **ours.hints})
    totals = {}
    types = []
    rules = [{row.type: row.rule for row in table.rows} for table in (theirs, ours)]
    for quantity in QUANTITIES:
        a, b = theirs.totals[quantity], ours.totals[quantity]
        reasons = tuple(
            ReasonCells(reason.name.lower(), reason.value, ops, cells.cell(change))
            for reason, (ops, change) in comparison.by_reason[quantity].items()
        )
        ordered = tuple(sorted(reasons, key=lambda row: -abs(row.change.value)))
        totals[quantity] = TotalCells(cells.cell(a), cells.cell(b), cells.cell(b - a), ordered)
        found = comparison.by_type(quantity).items()
        cases = [
            TypeCells(
                quantity,
                kind,
                cells.cell(x),
                cells.cell(y),
                tuple(reason.name.lower() for reason in why),
                (rules[0].get(kind, ""), rules[1].get(kind, "")),
            )
            for kind, (x, y, why) in found
            if x.terms or y.terms
        ]
        types += sorted(cases, key=lambda row: -abs(row.ours.value - row.theirs.value))
    return CompareDocument(
        file=file,
        table=comparison.theirs.name,
        symbols=theirs.symbols | ours.symbols,
        totals=totals,
        by_type=tuple(types),
        differences=tuple(
            DifferenceCells(d.name, d.type, d.quantity, cells.cell(d.theirs), cells.cell(d.ours), d.reason.name.lower())
            for d in comparison.differences
        )
        if rows
        else (),
    )


def rows_csv(document: TableDocument | CompareDocument) -> str:
    """The rows of a document as CSV: every quantity as formula and as value."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows(_table_lines(document) if isinstance(document, TableDocument) else _compare_lines(document))
    return out.getvalue()


def _table_lines(document: TableDocument) -> Iterable[list[str | int]]:
    columns = ("trips", *QUANTITIES)
    texts = ("name", "type", "scope", "phase", "loop")
    yield [*texts, "known", *(name for column in columns for name in (column, f"{column}_formula"))]
    for row in document.rows:
        cells = [getattr(row, column) for column in columns]
        shown = [value for cell in cells for value in (cell.value, cell.formula)]
        yield [*(getattr(row, name) for name in texts), str(row.known).lower(), *shown]


def _compare_lines(document: CompareDocument) -> Iterable[list[str | int]]:
    theirs = document.table
    yield ["name", "type", "quantity", theirs, f"{theirs}_formula", "ours", "ours_formula", "reason"]
    for row in document.differences:
        left, right = row.theirs, row.ours
        yield [row.name, row.type, row.quantity, left.value, left.formula, right.value, right.formula, row.reason]
