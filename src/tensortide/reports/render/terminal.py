"""Blocks as text for a terminal, a pipe or a log: nothing depends on colour, and it fits from 80 columns on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from tensortide.reports import layout
from tensortide.reports.blocks import (
    Block,
    Column,
    Curve,
    Document,
    Fact,
    Facts,
    Note,
    Scatter,
    Section,
    Spans,
    Table,
    Tree,
    Value,
)
from tensortide.reports.layout import Trimmed, bar, columns_table, heading, tidy
from tensortide.reports.render.chart import curve_lines, span_lines
from tensortide.reports.render.values import UNITS, cell, fact_text, value_text

__all__ = ["parts", "render_terminal"]

WIDEST = 160
"""Most columns that charts take."""
ROOMY = 96
"""From so many columns on there are two spaces between columns that would else have one."""
TIGHT = 9
"""A table of so many columns or more has one space between them where it is not roomy."""
STYLES = {"verdict": "bold green", "failure": "bold red", "advice": "", "assumption": "", "warning": "yellow"}


def render_terminal(document: Document, console: Console) -> None:
    """Print ``document``."""
    for part in parts(document, console.options):
        console.print(part, highlight=False, end="")


def parts(document: Document, options: ConsoleOptions) -> Iterator[RenderableType]:
    """Render ``document`` part by part. The title of a lone section is left out: that of the document stands for it."""
    yield Trimmed(_title(document))
    for section in document.sections:
        for part in _section(section, options, titled=len(document.sections) > 1):
            yield Trimmed(part)


def _title(document: Document) -> Text:
    text = Text(tidy(document.title) or "unnamed step", style="bold")
    settings = "  ".join(f"{tidy(name)}={value_text(value, 'text')}" for name, value in document.settings.items())
    for line in (settings, *document.subtitle):
        if line:
            text.append(f"\n{tidy(line)}", style="not bold dim")
    return text


def _section(section: Section, options: ConsoleOptions, *, titled: bool) -> Iterator[RenderableType]:
    blocks = [block for block in section.blocks if block.only != "page"]
    rendered = [(block, made) for block in blocks if (made := list(_RENDERERS[type(block)](block, options)))]
    if titled and rendered and section.title:
        yield heading(tidy(section.title), tidy(section.about))
    previous: Block | None = None
    for block, made in rendered:
        if block.title:
            yield heading(tidy(block.title), tidy(block.remark))
        elif not _follows(previous, block) and not (titled and previous is None):
            yield Text("")
        yield from made
        previous = block


def _follows(previous: Block | None, block: Block) -> bool:
    """Tell notes that stand below each other without a gap: advice after a verdict, assumptions together."""
    if not isinstance(previous, Note) or not isinstance(block, Note):
        return False
    return (block.kind == "advice" and previous.kind in ("verdict", "failure", "advice")) or (
        previous.kind == block.kind == "assumption"
    )


def _facts(block: Facts, options: ConsoleOptions) -> Iterator[RenderableType]:
    if not block.shown:
        return
    if block.compact:
        yield Text("  ".join(_compact(fact) for fact in block.shown), style="dim")
        return
    grid = Grid(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    right = any(UNITS[fact.unit].right for fact in block.shown)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=right, justify="right" if right else "left", overflow="fold")
    grid.add_column(style="dim", overflow="fold")
    for fact in block.shown:
        style = "" if fact.level else "bold"
        name = "  " * fact.level + tidy(fact.label)
        grid.add_row(Text(name, style), Text(fact_text(fact), style), Text(tidy(fact.remark)))
    yield grid


def _compact(fact: Fact) -> str:
    return " ".join(part for part in (tidy(fact.label), fact_text(fact), tidy(fact.remark)) if part)


def _table(block: Table, options: ConsoleOptions) -> Iterator[RenderableType]:
    yield from _rows(block, options, range(len(block)), [0] * len(block))


def _tree(block: Tree, options: ConsoleOptions) -> Iterator[RenderableType]:
    rows = [i for i, depth in enumerate(block.depth) if depth <= block.to_depth]
    yield from _rows(block, options, rows, list(block.depth))


def _rows(block: Table, options: ConsoleOptions, rows: Any, depth: list[int]) -> Iterator[RenderableType]:
    width = options.max_width
    if width < block.at_width or not rows or not block.shown or block.top == 0:
        return
    shown = rows if block.top is None else rows[: block.top]
    columns = [column for column in block.shown if width >= column.at_width]
    texts = [[("" if n else "  " * depth[i]) + cell(column, i) for i in shown] for n, column in enumerate(columns)]
    gap = 1 if len(columns) >= TIGHT and width < ROOMY and not block.heads else 2
    for number, part in enumerate(_parts(columns, texts, block.heads, width, gap)):
        head: list[layout.Column] = []
        cells: list[list[str]] = []
        for n in part:
            column = columns[n]
            right = UNITS[column.unit].right
            head.append(layout.Column(tidy(column.label), right=right, fold=column.fold, dim=column.dim))
            cells.append(texts[n])
            if column.bar and width >= column.bar:
                head.append(layout.Column(""))
                cells.append(_bars(column, shown, options))
        yield columns_table(head, list(zip(*cells, strict=True)), first=number > 0, gap=gap)
    if rest := len(rows) - len(shown):
        yield Text(tidy(block.rest) or f"and {rest:,} more row{'s' * (rest > 1)}", style="dim")
    if block.note:
        yield Text(tidy(block.note), style="dim")


def _parts(
    columns: Sequence[Column], texts: Sequence[Sequence[str]], heads: int, width: int, gap: int
) -> Iterator[list[int]]:
    """Split columns into parts that fit ``width``, each with the first ``heads``; 0 keeps all together."""
    first, others = list(range(heads)), list(range(heads, len(columns)))
    if not heads:
        yield others
        return
    wide = [gap + max(map(cell_len, [tidy(one.label), *some])) for one, some in zip(columns, texts, strict=True)]
    part, used = list(first), sum(wide[:heads])
    for n in others:
        if len(part) > heads and used + wide[n] - gap > width:
            yield part
            part, used = list(first), sum(wide[:heads])
        part.append(n)
        used += wide[n]
    yield part


def _bars(column: Column, rows: Any, options: ConsoleOptions) -> list[str]:
    """Draw values as bars: shares of 1, other values of the largest."""
    most = 1.0 if column.unit == "share" else max((_number(value) for value in column.values), default=0.0)
    width = 12 if options.max_width >= 118 else 8
    return [bar(min(1.0, _number(column.values[i]) / (most or 1)), width, options.ascii_only) for i in rows]


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _curve(block: Curve, options: ConsoleOptions) -> Iterator[RenderableType]:
    yield Text("\n").join(curve_lines(block, min(options.max_width, WIDEST), ascii_only=options.ascii_only))


def _spans(block: Spans, options: ConsoleOptions) -> Iterator[RenderableType]:
    if block.lanes and block.top:
        yield Text("\n").join(span_lines(block, min(options.max_width, WIDEST), ascii_only=options.ascii_only))


def _scatter(block: Scatter, options: ConsoleOptions) -> Iterator[RenderableType]:
    """Nothing: a terminal has too few points. Figures and the page draw it."""
    yield from ()


def _note(block: Note, options: ConsoleOptions) -> Iterator[RenderableType]:
    text = "\n".join(tidy(line) for line in block.text.splitlines())
    yield Text(text, style=STYLES.get(block.kind, "dim"))


_RENDERERS: dict[type[Block], Callable[[Any, ConsoleOptions], Iterator[RenderableType]]] = {
    Facts: _facts,
    Table: _table,
    Tree: _tree,
    Curve: _curve,
    Scatter: _scatter,
    Spans: _spans,
    Note: _note,
}
