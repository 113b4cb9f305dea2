"""A Document as Markdown, for a pull request or a notebook: notes, facts and tables; curves are left to figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from tensortide.reports.blocks import Block, Document, Facts, Note, Section, Table
from tensortide.reports.render.values import UNITS, fact_text, texts, tidy, value_text

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
    if section.folded:
        yield f"\n<details>\n<summary>{_plain(section.title)}</summary>"
    elif section.title:
        yield f"\n## {_plain(section.title)}"
    if section.about:
        yield f"\n{_plain(section.about)}"
    for block in section.blocks:
        if block.only in ("page", "data"):
            continue
        body = list(_block(block))
        if body and block.title:
            yield f"\n### {_plain(block.title)}"
            if block.remark:
                yield f"\n{_plain(block.remark)}"
        yield from body
    if section.folded:
        yield "\n</details>"


def _block(block: Block) -> Iterator[str]:
    match block:
        case Note():
            yield f"\n{'> **Warning:** ' if block.kind == 'warning' else ''}{_plain(block.text)}"
        case Facts(shown=facts) if facts:
            lines = [("&nbsp;&nbsp;" * fact.level + fact.label, fact_text(fact), fact.remark) for fact in facts]
            yield from _grid(("", "", ""), (False, any(UNITS[fact.unit].right for fact in facts), False), lines)
        case Table() if len(block) and block.shown and block.top != 0:
            rows, rest = block.head(block.top or ROWS)
            cells = zip(*texts(block, block.shown, rows, "&nbsp;&nbsp;"), strict=True)
            yield from _grid([one.label for one in block.shown], [UNITS[one.unit].right for one in block.shown], cells)
            yield from (f"\n{_plain(text)}" for text in (rest, block.note) if text)


def _grid(head: Sequence[str], right: Sequence[bool], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"\n| {' | '.join(map(_plain, head))} |"
    yield f"| {' | '.join('---:' if one else '---' for one in right)} |"
    for row in rows:
        yield f"| {' | '.join(map(_plain, row))} |"


def _plain(text: str) -> str:
    """Escape ``text``, so that no name in it is markup."""
    return SPECIAL.sub(r"\\\1", tidy(text))
