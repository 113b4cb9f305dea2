"""A Document as Markdown, for a pull request or a notebook: notes, facts and tables; curves are left to figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tensortide.reports.blocks import Block, Document, Facts, Note, Section, Table, Tree
from tensortide.reports.layout import tidy
from tensortide.reports.render.values import UNITS, cell, fact_text, value_text

__all__ = ["render_markdown"]

ROWS = 20
"""Most rows of a table that states no other number."""
SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")


def render_markdown(document: Document) -> str:
    """Write ``document``; of each table the rows that a terminal shows, or ``ROWS``."""
    settings = ", ".join(f"{name}={value_text(value, 'text')}" for name, value in document.settings.items())
    lines = [f"# {_plain(document.title)}"]
    lines += [f"\n{_plain(line)}" for line in (settings, *document.subtitle) if line]
    for section in document.sections:
        lines += _section(section)
    return "\n".join(lines) + "\n"


def _section(section: Section) -> Iterator[str]:
    if section.title:
        yield f"\n## {_plain(section.title)}"
    if section.about:
        yield f"\n{_plain(section.about)}"
    for block in section.blocks:
        if block.only == "page":
            continue
        body = list(_block(block))
        if body and block.title:
            yield f"\n### {_plain(block.title)}"
            if block.remark:
                yield f"\n{_plain(block.remark)}"
        yield from body


def _block(block: Block) -> Iterator[str]:
    match block:
        case Note():
            yield f"\n{'> **Warning:** ' if block.kind == 'warning' else ''}{_plain(block.text)}"
        case Facts(shown=rows) if rows:
            cells = [("&nbsp;&nbsp;" * f.level + _plain(f.label), _plain(fact_text(f)), _plain(f.remark)) for f in rows]
            yield from _grid(("", "", ""), (False, any(UNITS[f.unit].right for f in rows), False), cells)
        case Table() if len(block) and block.shown and block.top != 0:
            yield from _table(block)


def _table(table: Table) -> Iterator[str]:
    depth = table.depth if isinstance(table, Tree) else (0,) * len(table)
    deepest = table.to_depth if isinstance(table, Tree) else 0
    rows = [i for i, level in enumerate(depth) if level <= deepest]
    shown = rows[: table.top or ROWS]
    columns = table.shown
    cells = [
        [("&nbsp;&nbsp;" * depth[i] if not n else "") + _plain(cell(column, i)) for n, column in enumerate(columns)]
        for i in shown
    ]
    yield from _grid([_plain(c.label) for c in columns], [UNITS[c.unit].right for c in columns], cells)
    if rest := len(rows) - len(shown):
        yield f"\n{_plain(table.rest) or f'and {rest:,} more rows'}"
    if table.note:
        yield f"\n{_plain(table.note)}"


def _grid(head: Sequence[str], right: Sequence[bool], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---:' if one else '---' for one in right)} |"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _plain(text: str) -> str:
    """Escape ``text``, so that no name in it is markup."""
    return SPECIAL.sub(r"\\\1", tidy(text))
