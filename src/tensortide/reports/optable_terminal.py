"""Tables of ops on the terminal: totals with their formulas, breakdowns, two tables side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tensortide.reports.layout import Column, Trimmed, columns_table, heading, tidy
from tensortide.reports.optable import (
    TITLES,
    Cell,
    CompareDocument,
    Group,
    RowCells,
    TableDocument,
    TotalCells,
    TypeCells,
)
from tensortide.units import format_percent

__all__ = ["render_compare", "render_table"]

LONG = 1200
"""Formulas of more characters are cut: all of them are in JSON and CSV."""


def render_table(document: TableDocument, console: Console, *, top: int) -> None:
    """Print one table: totals, the ``top`` types, phases, loops, and its rows if it has them."""
    parts: list[RenderableType] = [_title(document.file, f"{document.table} table", document.symbols)]
    parts.append(_totals(document.totals))
    parts += _groups("By op type", document.by_type[:top], len(document.by_type))
    parts += _groups("By phase", document.by_phase, len(document.by_phase))
    if any(group.name for group in document.by_loop):
        parts += _groups("By loop", document.by_loop, len(document.by_loop))
    parts += _groups("By scope", document.by_scope[:top], len(document.by_scope))
    if document.rows:
        parts += _rows(document.rows)
    parts += [Padding(Text(tidy(document.coverage), style="dim"), (1, 0, 0, 0))]
    parts += [Text(tidy(note), style="dim") for note in document.assumptions]
    _print(console, parts)


def render_compare(document: CompareDocument, console: Console, *, top: int) -> None:
    """Print both tables: every total with the reasons for its change, and the ``top`` types that differ most."""
    parts: list[RenderableType] = [_title(document.file, f"{document.table} table and ours", document.symbols)]
    for quantity, total in document.totals.items():
        parts += _total_compared(document.table, TITLES[quantity], total)
    for quantity in document.totals:
        rows = [
            (
                row.type,
                f"{row.theirs.value:,}",
                f"{row.ours.value:,}",
                _change(row.theirs, row.ours),
                _why(row),
            )
            for row in document.by_type
            if row.quantity == quantity and row.reasons
        ]
        if rows:
            names = [Column("Type"), *(Column(name, right=True) for name in (document.table, "ours", "change"))]
            parts.append(heading(f"{TITLES[quantity]} by op type", _shown(min(top, len(rows)), len(rows))))
            parts.append(columns_table([*names, Column("Reasons", fold=True, dim=True)], rows[:top], first=False))
    if document.differences:
        parts += _differences(document)
    _print(console, parts)


def _why(row: TypeCells) -> str:
    """The reasons of a type, and the two formulas where it is they that differ."""
    reasons = ", ".join(row.reasons)
    if row.quantity == "flops" and "weights" in row.reasons:
        return f"{reasons}: {row.rules[0]} -> {row.rules[1]}"
    return reasons


def _print(console: Console, parts: Iterable[RenderableType]) -> None:
    for part in parts:
        console.print(Trimmed(part), end="")


def _title(file: str, what: str, symbols: dict[str, int]) -> Text:
    line = Text(tidy(file), style="bold")
    line.append(f"  {what}", style="not bold")
    if symbols:
        line.append("\n" + tidy("  ".join(f"{name}={value}" for name, value in symbols.items())), style="not bold dim")
    return line


def _totals(totals: dict[str, Cell]) -> RenderableType:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(style="dim", overflow="fold")
    for name, cell in totals.items():
        title = TITLES[name]
        style = "" if title.startswith(" ") else "bold"
        table.add_row(Text(title, style), Text(f"{cell.value:,}", style), _formula(cell))
    return Padding(table, (1, 0, 0, 0), expand=False)


def _formula(cell: Cell) -> Text:
    """The formula of a cell, nothing where it is its value."""
    if cell.formula == str(cell.value):
        return Text("")
    shown = cell.formula if len(cell.formula) <= LONG else f"{cell.formula[:LONG]} ... ({len(cell.formula)} characters)"
    return Text(tidy(shown))


def _shown(count: int, of: int) -> str:
    return "" if count == of else f"{count} of {of}"


def _groups(title: str, groups: Sequence[Group], of: int) -> list[RenderableType]:
    rows = [
        (
            group.name or "(outside)",
            str(group.ops),
            *(f"{group.totals[name].value:,}" for name in ("flops", "bytes", "footprint")),
        )
        for group in groups
    ]
    names = ("Ops", "FLOPs", "Bytes", "Footprint")
    columns = [Column(title.removeprefix("By ").capitalize(), fold=True), *(Column(name, right=True) for name in names)]
    return [heading(title, _shown(len(groups), of)), columns_table(columns, rows, first=False)]


def _rows(rows: Sequence[RowCells]) -> list[RenderableType]:
    """Two or three lines per op: what it is, its numbers per run, their formulas."""
    text = Text()
    for row in rows:
        place = f"{row.type}, {row.phase}" + (
            f", x {row.trips.formula} = {row.trips.value:,} in {row.loop}" if row.loop else ""
        )
        text.append(f"\n{tidy(row.name)}")
        text.append(f"  {tidy(place)}", style="dim")
        for name in ("parameters", "flops", "bytes", "footprint"):
            cell: Cell = getattr(row, name)
            if cell.value or cell.formula != "0":
                text.append(f"\n    {TITLES[name].strip():<15} {cell.value:>20,}  ")
                text.append(_formula(cell).plain, style="dim")
    return [heading("Ops", "numbers of one run"), text[1:]]


def _total_compared(table: str, title: str, total: TotalCells) -> list[RenderableType]:
    lines = [
        (table, f"{total.theirs.value:,}", "", _formula(total.theirs).plain),
        *((f"  {row.reason}", _signed(row.change.value), str(row.ops), row.text) for row in total.reasons),
        ("ours", f"{total.ours.value:,}", "", _formula(total.ours).plain),
    ]
    columns = [Column(""), Column("", right=True), Column("Ops", right=True), Column("", fold=True, dim=True)]
    share = format_percent(total.ours.value, total.theirs.value)
    remark = "the same" if not total.change.value else f"{_signed(total.change.value)}: ours are {share}"
    return [heading(title, remark), columns_table(columns, lines, first=False)]


def _signed(value: int) -> str:
    return f"{value:+,}" if value else "0"


def _change(left: Cell, right: Cell) -> str:
    return _signed(right.value - left.value)


def _differences(document: CompareDocument) -> list[RenderableType]:
    rows = [
        (row.name, row.type, row.quantity, f"{row.theirs.value:,}", f"{row.ours.value:,}", row.reason)
        for row in document.differences
    ]
    numbers = [Column(name, right=True) for name in (document.table, "ours")]
    columns = [Column("Op", fold=True), Column("Type"), Column(""), *numbers, Column("Reason", dim=True)]
    return [heading("Ops that differ", "numbers of all runs"), columns_table(columns, rows, first=False)]
