"""One table of a Document as CSV: raw values under the names they have in JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from tensortide.errors import OutputError
from tensortide.reports.blocks import Document, Table, Tree, Value
from tensortide.reports.render.values import data_key

__all__ = ["render_csv", "tables"]


def tables(document: Document) -> dict[str, Table]:
    """Return the tables of ``document`` by name: ``section.table``."""
    blocks = ((f"{section.key}.{block.key}", block) for section in document.sections for block in section.blocks)
    return {name: block for name, block in blocks if isinstance(block, Table)}


def render_csv(document: Document, name: str) -> str:
    """Write the table called ``name``: ``section.table``, or ``table`` alone where only one has that key.

    Raises:
        OutputError: there is no such table, or several.
    """
    every = tables(document)
    found = [one for key, one in every.items() if name in (key, one.key)]
    if len(found) != 1:
        raise OutputError(f"{'several tables are' if found else 'no table is'} called {name!r}: {', '.join(every)}.")
    table = found[0]
    names = [data_key(column.key, column.unit) for column in table.columns]
    cells = zip(*(column.values for column in table.columns), strict=True)
    rows: list[Sequence[object]] = [[_plain(value) for value in row] for row in cells]
    if isinstance(table, Tree):
        names = ["depth", *names]
        rows = [[depth, *row] for depth, row in zip(table.depth, rows, strict=True)]
    return "".join(f"{_line(row)}\n" for row in [names, *rows])


def _line(row: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(row)  # of these characters a text is quoted
    return text.getvalue().removesuffix("\r\n")


def _plain(value: Value) -> int | float | str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else value
