"""A Document as HTML of a few kB for a cell of a notebook: what a terminal shows, in the notebook's own colours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from msgspec.structs import replace

from tensortide.reports.blocks import Block, Document, Facts, Note, Section, Table
from tensortide.reports.pictures import Curve, Spans
from tensortide.reports.render.chart import curve_lines, span_lines
from tensortide.reports.render.values import UNITS, fact_text, texts, tidy, value_text

ROWS = 8
"""Most rows of a table."""
WIDTH = 80
"""Columns of charts, and of the terminal whose columns tables have."""
_STYLE = (
    ".tensortide{overflow-x:auto}"
    ".tensortide p{margin:.2em 0}.tensortide .soft{opacity:.7}.tensortide .head{font-weight:bold;margin-top:.8em}"
    ".tensortide table{border-collapse:collapse;margin:.3em 0;background:none}"
    ".tensortide th,.tensortide td{padding:.1em 1em .1em 0;text-align:left;border:0;vertical-align:top}"
    ".tensortide pre{line-height:1.15;background:none}"
)
"""Nothing has a colour: a notebook has its own, for light and for dark."""
_RIGHT = ".tensortide .r{0} tr>:nth-child({0}){{text-align:right;white-space:nowrap}}"
"""The style of column 2 in a table of the class r2, which is shorter than a class of each cell."""


def render_cell(document: Document) -> str:
    """Write what a terminal shows of ``document``."""
    settings = "  ".join(f"{name}={value_text(value, 'text')}" for name, value in document.settings.items())
    parts = [_paragraph(document.title or "unnamed step", "head")]
    parts += (_paragraph(line, "soft") for line in (settings, *document.subtitle) if line)
    for section in document.shown:
        parts += _section(section, titled=len(document.shown) > 1)
    hint = "" if document.answer is None else ".full() shows every section; "
    parts.append(_paragraph(f"{hint}.page() shows the page, and .page().save(FILE) writes it", "soft"))
    body = "".join(parts)
    classes = " ".join(re.findall(r'<table class="([^"]*)">', body))  # text has its quotes escaped
    rules = "".join(_RIGHT.format(name[1:]) for name in sorted({*classes.split()}))
    return f'<div class="tensortide"><style>{_STYLE}{rules}</style>{body}</div>'


def _paragraph(text: str, kind: str = "") -> str:
    body = "<br>".join(escape(tidy(line)) for line in text.splitlines())
    return f'<p class="{kind}">{body}</p>' if kind else f"<p>{body}</p>"


def _section(section: Section, *, titled: bool) -> Iterator[str]:
    made = [(block, [*_block(block)]) for block in section.blocks if block.only not in ("page", "data")]
    if titled and section.title and any(body for _, body in made):
        yield _heading(section.title, section.about)
    for block, body in made:
        if body and block.title:
            yield _heading(block.title, block.remark)
        yield from body


def _heading(title: str, remark: str) -> str:
    soft = f' <span class="soft" style="font-weight:normal">{escape(tidy(remark))}</span>' if remark else ""
    return f'<p class="head">{escape(tidy(title))}{soft}</p>'


def _block(block: Block) -> Iterator[str]:
    match block:
        case Note():
            kinds = {"verdict": "head", "failure": "head", "advice": "", "assumption": "", "warning": ""}
            yield _paragraph(block.text, kinds.get(block.kind, "soft"))
        case Facts(shown=facts) if facts and block.compact:
            words = (" ".join(filter(None, (fact.label, fact_text(fact), fact.remark))) for fact in facts)
            yield _paragraph("; ".join(words), "soft")
        case Facts(shown=facts) if facts:
            right = any(UNITS[fact.unit].right for fact in facts)
            lines = [("  " * fact.level + fact.label, fact_text(fact), fact.remark) for fact in facts]
            yield _grid((), (False, right, False), lines)
        case Table() if len(block) and block.shown and block.top != 0:
            shown = [column for column in block.shown if column.at_width <= WIDTH]
            most = ROWS if block.top is None else min(ROWS, block.top)
            rows, rest = (block if block.top == most else replace(block, rest="")).head(most)
            cells = zip(*texts(block, shown, rows, "  "), strict=True)
            yield _grid([column.label for column in shown], [UNITS[column.unit].right for column in shown], cells)
            yield from (_paragraph(text, "soft") for text in (rest, block.note) if text)
        case Curve():
            yield _chart(line.plain for line in curve_lines(block, WIDTH))
        case Spans() if block.lanes and block.top:
            yield _chart(line.plain for line in span_lines(block, WIDTH))


def _chart(lines: Iterable[str]) -> str:
    return f"<pre>{escape(chr(10).join(line.rstrip() for line in lines))}</pre>"


def _cell(text: str) -> str:
    kept = text.lstrip(" ")
    return "&emsp;" * ((len(text) - len(kept)) // 2) + escape(tidy(kept))


def _grid(head: Sequence[str], right: Sequence[bool], rows: Iterable[Sequence[str]]) -> str:
    def row(texts: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{_cell(text)}</{tag}>' for text in texts)}</tr>"

    numbers = " ".join(f"r{n}" for n, one in enumerate(right, 1) if one)
    lines = [*([row(head, "th")] if any(head) else []), *(row(one, "td") for one in rows)]
    return f'<table class="{numbers}">{"".join(lines)}</table>'
