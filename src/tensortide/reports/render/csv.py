"""One table of a Document as CSV: raw values under the names they have in JSON."""

from __future__ import annotations

import csv
import io

from tensortide.errors import OutputError
from tensortide.reports.blocks import Document, Table, Value


def tables(document: Document) -> dict[str, Table]:
    """Return the tables of ``document`` by name: ``section.table``."""
    blocks = ((f"{section.key}.{block.key}", block) for section in document.sections for block in section.blocks)
    return {name: block for name, block in blocks if isinstance(block, Table)}


def columns_of(table: Table) -> dict[str, tuple[Value, ...]]:
    """Return the raw columns of ``table`` under the names they have in data; of a tree the first is ``depth``."""
    depth = {} if table.depth is None else {"depth": table.depth}
    return depth | {column.key: column.values for column in table.columns}


def table_named(document: Document, name: str) -> Table:
    """Return the table called ``name``: ``section.table``, or ``table`` alone where only one has that key.

    Raises:
        OutputError: there is no such table, or several.
    """
    every = tables(document)
    found = [one for key, one in every.items() if name in (key, one.key)]
    if len(found) != 1:
        raise OutputError(f"{'several tables are' if found else 'no table is'} called {name!r}: {', '.join(every)}.")
    return found[0]


def render_csv(document: Document, name: str) -> str:
    """Write the table called ``name``. Raises OutputError as ``table_named`` does."""
    columns = columns_of(table_named(document, name))
    return "".join(map(_line, (tuple(columns), *zip(*columns.values(), strict=True))))


def _line(row: tuple[Value, ...]) -> str:
    text = io.StringIO()
    plain = (str(value).lower() if isinstance(value, bool) else value for value in row)
    csv.writer(text, lineterminator="\r\n").writerow(plain)  # of these characters a text is quoted
    return text.getvalue().removesuffix("\r\n") + "\n"
