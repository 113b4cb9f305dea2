"""Blocks as text for a terminal, a pipe or a log: nothing depends on colour, and it fits from 80 columns on."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from functools import partial

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text

from tensortide.reports.blocks import Block, Column, Document, Facts, Note, Section, Table, Value
from tensortide.reports.pictures import Curve, Spans
from tensortide.reports.render.chart import curve_lines, span_lines
from tensortide.reports.render.values import UNITS, fact_text, texts, tidy, value_text

WIDEST = 160
"""Most columns that charts take."""
ROOMY = 96
"""From so many columns on there are two spaces between columns that would else have one."""
FOLDED = 3
"""Of the width, names in the first columns take one part in so many at most, where a table has to be split."""
TIGHT = 9
"""A table of so many columns or more has one space between them where it is not roomy."""
VERDICTS = 5
"""Most verdicts that are repeated below a long text; the first is that of the whole."""
SETTINGS = 2
"""Most lines that settings take above an answer."""
EIGHTHS = " ▏▎▍▌▋▊▉"
JOINED = "\ue000"
"""Stands for the space between a number and its unit until lines are broken. ``tidy`` leaves none of it in a text."""
_UNIT = re.compile(r"(?<=\d) (?=(?:[num]?s|min|h|days|%|FLOP|[KMGTPE]?i?B|[kMGTPEZY](?:FLOP|B|bit)?)(?:/s)?(?!\w))")
STYLES = {"verdict": "bold green", "failure": "bold red", "advice": "", "assumption": "", "warning": "yellow"}


class Trimmed:
    """``part`` without the spaces that fill its lines: what is piped into a file stays clean. Its lines are broken now,
    so that numbers have a space before their units again."""

    def __init__(self, part: RenderableType) -> None:
        self.part, self.lines = part, 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self.part, options, pad=False):
            left = len("".join(segment.text for segment in line).rstrip())
            for segment in line:
                if kept := segment.text[:left]:
                    yield Segment(kept.replace(JOINED, " "), segment.style)
                left -= len(kept)
            yield Segment.line()
            self.lines += 1


def render_terminal(document: Document, console: Console) -> int:
    """Print what of ``document`` is shown; the number of lines."""
    lines = 0
    for part in parts(document, console.options):
        console.print(part, highlight=False, end="")
        lines += part.lines
    return lines


def render_verdicts(document: Document, console: Console) -> None:
    """Print the first notes of ``document`` that say yes or no, below an empty line."""
    notes = document.verdicts[:VERDICTS]
    for part in (Text(""), *(one for note in notes for one in _block(note, console.options))):
        console.print(Trimmed(part), highlight=False, end="")


def render_text(document: Document, width: int = 100) -> str:
    """Write what of ``document`` is shown as plain text."""
    out = io.StringIO()
    render_terminal(document, Console(file=out, width=width, highlight=False, no_color=True))
    return out.getvalue()


def parts(document: Document, options: ConsoleOptions) -> Iterator[Trimmed]:
    """Render ``document`` part by part. The title of a lone section is left out: that of the document stands for it."""
    yield Trimmed(_title(document, options.max_width))
    for section in document.shown:
        for part in _section(section, options, titled=len(document.shown) > 1):
            yield Trimmed(part)


def prose(text: str) -> str:
    """``text`` on one line, which is broken between words, and never between a number and its unit."""
    return _UNIT.sub(JOINED, tidy(text))


def _title(document: Document, width: int) -> Text:
    """The name of the step, its settings and its origin; above an answer without the details in parentheses."""
    text = Text(tidy(document.title) or "unnamed step", style="bold")
    details = "" if document.answer is None else r" \([^()]*\)"
    for line in (_settings(document, width), *(re.sub(details, "", line) for line in document.subtitle)):
        if line:
            text.append(f"\n{prose(line)}", style="not bold dim")
    return text


def _settings(document: Document, width: int) -> str:
    """Write the settings; above an answer those that have room, and how many more there are."""
    texts = [f"{tidy(name)}={value_text(value, 'text')}" for name, value in document.settings.items()]
    kept, line, used = 0, 1, 0
    for text in texts:
        line, used = (line + 1, 0) if used + cell_len(text) > width else (line, used)
        used += cell_len(text) + 2
        kept += line <= SETTINGS
    if document.answer is None or kept == len(texts):
        return "  ".join(texts)
    return "  ".join([*texts[: kept - 1], f"and {len(texts) - kept + 1} more"])  # in the place of the last that fits


def _section(section: Section, options: ConsoleOptions, *, titled: bool) -> Iterator[RenderableType]:
    blocks = [block for block in section.blocks if block.only not in ("page", "data")]
    rendered = [(block, made) for block in blocks if (made := list(_block(block, options)))]
    if titled and rendered and section.title:
        yield _heading(section.title, section.about)
    previous: Block | None = None
    for block, made in rendered:
        if block.title:
            yield _heading(block.title, block.remark)
        elif not _follows(previous, block) and not (titled and previous is None):
            yield Text("")
        yield from made
        previous = block


def _heading(title: str, remark: str) -> RenderableType:
    line = Text(tidy(title), style="bold")
    if remark:
        line.append(f"  {prose(remark)}", style="not bold dim")
    return Padding(line, (1, 0, 0, 0), expand=False)


def _follows(previous: Block | None, block: Block) -> bool:
    """Tell notes that stand below each other without a gap: advice after a verdict, those of one kind together."""
    if not isinstance(previous, Note) or not isinstance(block, Note):
        return False
    return (block.kind == "advice" and previous.kind in ("verdict", "failure", "advice")) or (
        previous.kind == block.kind and block.kind in ("assumption", "failure")
    )


def _block(block: Block, options: ConsoleOptions) -> Iterator[RenderableType]:
    """Render a block; nothing of a Scatter, for which a terminal has too few points."""
    width, ascii_only = min(options.max_width, WIDEST), options.ascii_only
    match block:
        case Facts() if block.shown:
            yield _facts(block)
        case Table() if options.max_width >= block.at_width:
            yield from _table(block, options)
        case Curve():
            yield Text("\n").join(curve_lines(block, width, ascii_only=ascii_only))
        case Spans() if block.lanes and block.top:
            yield Text("\n").join(span_lines(block, width, ascii_only=ascii_only))
        case Note():
            text = "\n".join(prose(line) for line in block.text.splitlines())
            yield Text(text, style=STYLES.get(block.kind, "dim"))


def _facts(block: Facts) -> RenderableType:
    rows = [(fact, tidy(fact.label), fact_text(fact), prose(fact.remark)) for fact in block.shown]
    if block.compact:
        text = "  ".join(" ".join(filter(None, words)) for _, *words in rows)
        return Text(_UNIT.sub(JOINED, text), style="dim")
    grid = Grid(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    right = any(UNITS[fact.unit].right for fact in block.shown)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=right, justify="right" if right else "left", overflow="fold")
    grid.add_column(style="dim", overflow="fold")
    for fact, label, text, remark in rows:
        style = "" if fact.level else "bold"
        grid.add_row(Text("  " * fact.level + label, style), Text(text, style), Text(remark))
    return grid


def _table(block: Table, options: ConsoleOptions) -> Iterator[RenderableType]:
    width = options.max_width
    rows, rest = block.head(block.top)
    columns = [column for column in block.shown if width >= column.at_width]
    if not rows or not block.shown:
        return
    cells = texts(block, columns, rows, "  ")
    gap = 1 if len(columns) >= TIGHT and width < ROOMY and not block.heads else 2
    for number, part in enumerate(_parts(columns, cells, block.heads, width, gap)):
        named = any(columns[n].label for n in part)
        grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim", show_header=named)
        shown: list[Sequence[str]] = []
        for n in part:
            column, style = columns[n], "dim" if columns[n].dim else ""
            grid.add_column(
                tidy(column.label),
                justify="right" if UNITS[column.unit].right else "left",
                no_wrap=not column.fold,
                overflow="fold",
                style=style,
            )
            shown.append(cells[n])
            if column.bar and width >= column.bar:
                grid.add_column(no_wrap=True, overflow="fold")
                shown.append(_bars(column, rows, options))
        for row in zip(*shown, strict=True):
            grid.add_row(*map(_cell, row))
        yield Padding(grid, (min(1, number), 0, 0, 0), expand=False)
    for text in filter(None, (rest, block.note)):
        yield Text(prose(text), style="dim")


class Name:
    """A text that is folded between words, in a word that is too long after a ``.``, ``_`` or ``/``."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, Text(self.text))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        yield Text(re.sub(rf"\S{{{width},}}", partial(_parted, width), self.text) if width > 1 else self.text)


def _parted(width: int, long: re.Match[str]) -> str:
    """A word in lines of ``width`` columns at most, where it has places to part it."""
    lines = [""]
    for part in re.findall(r"[^._/]*[._/]*", long[0]):
        if lines[-1] and cell_len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _cell(text: str) -> RenderableType:
    """``text``; if it is indented, so are the lines it is folded into."""
    kept = text.lstrip(" ")
    indent = len(text) - len(kept)
    return Padding(Name(kept), (0, 0, 0, indent), expand=False) if indent else Name(text)


def _parts(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], heads: int, width: int, gap: int
) -> Iterator[list[int]]:
    """Split columns into parts that fit ``width``, each with the first ``heads``; 0 keeps all together.

    Names in the first columns are folded where more columns stand together for it.
    """
    if not heads:
        yield list(range(len(columns)))
        return
    wide = [gap + max(map(cell_len, [tidy(one.label), *some])) for one, some in zip(columns, cells, strict=True)]
    for n in range(heads):
        wide[n] = min(wide[n], gap + width // FOLDED) if columns[n].fold else wide[n]
    first = list(range(heads))
    part, used = first, sum(wide[:heads])
    for n in range(heads, len(columns)):
        if len(part) > heads and used + wide[n] - gap > width:
            yield part
            part, used = first, sum(wide[:heads])
        part, used = [*part, n], used + wide[n]
    yield part


def _bars(column: Column, rows: Sequence[int], options: ConsoleOptions) -> list[str]:
    """Draw values as bars: shares of 1, other values of the largest. Anything above nothing shows."""
    most = 1.0 if column.unit == "share" else max(map(_number, column.values), default=0.0) or 1.0
    width = 12 if options.max_width >= 118 else 8
    shares = [min(1.0, max(0.0, _number(column.values[i]) / most)) for i in rows]
    if options.ascii_only:
        return ["#" * max(share > 0, round(share * width)) for share in shares]
    eighths = [max(share > 0, round(share * width * 8)) for share in shares]
    return ["█" * (n // 8) + EIGHTHS[n % 8].strip() for n in eighths]


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
