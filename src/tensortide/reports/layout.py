"""Small parts of the text report: headings, bars, tables whose columns come and go with the width."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tensortide.graph.model import UNKNOWN_DEVICE

EIGHTHS = " ▏▎▍▌▋▊▉"


class Column(msgspec.Struct, frozen=True):
    """A column: numbers to the right, text folded rather than cut, left out where the console is too narrow."""

    name: str
    right: bool = False
    fold: bool = False
    shown: bool = True
    dim: bool = False


def heading(text: str, remark: str = "") -> RenderableType:
    """Title of a section, with a remark beside it."""
    line = Text(text, style="bold")
    if remark:
        line.append(f"  {remark}", style="not bold dim")
    return Padding(line, (1, 0, 0, 0), expand=False)


def columns_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, first: bool = True, gap: int = 2
) -> RenderableType:
    """``rows`` under the names of ``columns``, without lines. ``first``: set off from what is above."""
    named = any(column.name for column in columns if column.shown)
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim", show_header=named)
    for column in columns:
        if column.shown:
            table.add_column(
                column.name,
                justify="right" if column.right else "left",
                no_wrap=not column.fold,
                overflow="fold",
                style="dim" if column.dim else "",
            )
    for row in rows:
        table.add_row(*(_cell(cell) for cell, column in zip(row, columns, strict=True) if column.shown))
    return Padding(table, (1 if first else 0, 0, 0, 0), expand=False)


def _cell(text: str) -> RenderableType:
    """``text``; if it is indented, so are the lines it is folded into."""
    kept = text.lstrip(" ")
    indent = len(text) - len(kept)
    return Padding(Text(kept), (0, 0, 0, indent), expand=False) if indent else Text(text)


class Trimmed:
    """``part`` without the spaces that fill its lines: what is piped into a file stays clean."""

    def __init__(self, part: RenderableType) -> None:
        self.part = part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self.part, options, pad=False):
            text = "".join(segment.text for segment in line)
            left = len(text.rstrip())
            for segment in line:
                kept = segment.text[:left]
                left -= len(kept)
                if kept:
                    yield Segment(kept, segment.style)
            yield Segment.line()


def bar(share: float, width: int, ascii_only: bool) -> str:
    """A bar of at most ``width`` characters; anything above nothing shows."""
    if share <= 0:
        return ""
    if ascii_only:
        return "#" * max(1, round(share * width))
    eighths = max(1, round(min(share, 1.0) * width * 8))
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def tidy(text: str) -> str:
    """``text`` on one line and without control characters: a name cannot repaint a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def device_text(device: str) -> str:
    """A device in a sentence."""
    return "an unknown device" if device == UNKNOWN_DEVICE else tidy(device)
