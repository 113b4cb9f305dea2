"""Curves and spans as lines of text: blocks in up to three shades over an axis."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from tensortide.reports.pictures import Curve, Spans
from tensortide.reports.render.values import shortened, tidy, value_text

HEIGHT = 10
LABEL = 12
EIGHTHS = " ▁▂▃▄▅▆▇█"
SHADES = (("█", "#", "yellow"), ("▒", "+", "cyan"), ("░", ".", "blue"))
"""Character, the same without Unicode and colour of each group of series, from the top of the stack down."""
BEHIND, LIMIT, SHADED = ("·", ":", "blue"), ("─", "-", "red"), ("▄", "^", "magenta")


class _Column(NamedTuple):
    """One column of a chart: the entry that it shows, its groups from the bottom up, and the line behind them."""

    entry: int
    groups: list[float]
    line: float
    shaded: float


def curve_lines(curve: Curve, width: int, *, ascii_only: bool = False) -> list[Text]:
    """Draw ``curve`` in at most ``width`` columns: its first mark, the chart, its axis, what the shades mean."""
    if not len(curve):
        return [Text("Nothing was executed.")]
    groups = list(dict.fromkeys(one.group or one.label for one in curve.stack))
    lowest = max(0, len(groups) - len(SHADES))  # the groups up to here share the lowest shade
    places = [max(0, groups.index(one.group or one.label) - lowest) for one in curve.stack]
    columns = list(_columns(curve, places, max(10, width - LABEL)))
    highest = max(max(sum(c.groups), c.line) for c in columns)
    shown = [limit.value for limit in curve.limits if limit.value <= 2 * highest]
    most = max(1e-9, highest, *shown)
    limits = {max(0, min(HEIGHT - 1, round(value * HEIGHT / most) - 1)): value for value in shown}
    free = [row for row in (HEIGHT - 1, HEIGHT // 2 - 1) if all(abs(row - other) > 1 for other in limits)]
    labels = limits | {row: most * (row + 1) / HEIGHT for row in free}
    lines = list(_marks(curve, columns, width))
    for row in reversed(range(HEIGHT)):
        value = round(labels.get(row, 0)) if curve.unit == "bytes" else labels.get(row, 0)
        text = value_text(value, curve.unit, column=True)[: LABEL - 2] if row in labels else ""
        line = Text(f"{text:>{LABEL - 2}} {'|' if ascii_only else '┤' if text else '│'}")
        for column in columns:
            line.append(*_cell(column, row * most / HEIGHT, most / HEIGHT, row in limits, ascii_only))
        lines.append(line)
    lines += _axis(curve, columns, ascii_only)
    names = [", ".join(groups[: lowest + 1]), *groups[lowest + 1 :]] if groups else []
    entries = list(zip(SHADES, reversed(names), strict=False))
    entries += [(BEHIND, one.label) for one in curve.lines[:1]]
    entries += [(LIMIT, curve.limits[0].label)] if shown else []
    entries += [(SHADED, curve.shades[0].label)] if any(c.shaded for c in columns) else []
    lines += _legend(entries, width, ascii_only)
    for line in lines:
        line.rstrip()
    return lines


def _columns(curve: Curve, places: Sequence[int], count: int) -> Iterator[_Column]:
    """Cut the axis into ``count`` equal stretches; each shows the highest of its entries.

    ``places`` has the group of each series of the stack."""
    start, span = curve.x[0], curve.x[-1] - curve.x[0]
    totals = curve.totals()
    for c in range(count):
        left, right = start + span * c / count, start + span * (c + 1) / count
        first = max(0, min(len(curve) - 1, bisect_right(curve.x, left) - 1))
        last = max(first + 1, min(len(curve), bisect_left(curve.x, right)))
        entry = max(range(first, last), key=totals.__getitem__)
        groups = [0.0] * (max(places, default=-1) + 1)
        for one, place in zip(curve.stack, places, strict=True):
            groups[place] += one.values[entry]
        line = max((max(one.values[first:last]) for one in curve.lines), default=0.0)
        shaded = sum(max(0, min(last, s.end) - max(first, s.start)) for s in curve.shades) / (last - first)
        yield _Column(entry, groups, line, min(1.0, shaded))


def _cell(column: _Column, low: float, unit: float, limit: bool, ascii_only: bool) -> tuple[str, str]:
    """Choose character and style of a cell: the group at its middle, a limit, or the line behind."""
    total = sum(column.groups)
    part = max(0, min(8, int(8 * (total - low) / unit + 0.5)))
    if limit and part < 8:
        return LIMIT[ascii_only], LIMIT[2]
    if total <= low or (ascii_only and part < 4):
        return (BEHIND[ascii_only], BEHIND[2]) if column.line - low >= unit / 2 else (" ", "")
    chosen = bisect_right(list(accumulate(column.groups)), min(low + unit / 2, (low + total) / 2))
    shade = SHADES[max(0, len(column.groups) - 1 - chosen)]
    solid = ascii_only or part == 8 or (part >= 4 and shade is not SHADES[0])
    return (shade[ascii_only] if solid else EIGHTHS[part]), shade[2]


def _marks(curve: Curve, columns: Sequence[_Column], width: int) -> Iterator[Text]:
    """Point at the column of each mark, from the right or from the left of it."""
    for mark in curve.marks:
        column = LABEL + next((c for c, one in enumerate(columns) if one.entry >= mark.at), len(columns) - 1)
        words = tidy(mark.label)
        if cell_len(words) + 2 > width - LABEL:
            words = set_cell_size(words, width - LABEL - 2)
        fits = column + 2 + cell_len(words) <= width
        before = " " * max(0, column - cell_len(words) - 1)
        yield Text(" " * column + "v " + words if fits else f"{before}{words} v", style="bold")


def _axis(curve: Curve, columns: Sequence[_Column], ascii_only: bool) -> Iterator[Text]:
    """Draw the axis with the name of each band where there is room for it, the shades, and the ends in numbers."""
    corner, dash, end = ("+", "-", "+") if ascii_only else ("└", "─", "┴")
    bands = [next((b.label for b in curve.bands if b.start <= one.entry < b.end), "") for one in columns]
    runs = [(tidy(name), len(list(members))) for name, members in groupby(bands)]
    parts = []
    for number, (name, length) in enumerate(runs):
        last = number + 1 == len(runs)
        text = f" {name} " if name and length - (not last) >= cell_len(name) + 4 else ""
        room = length - (not last) - cell_len(text)
        parts.append(dash * (room // 2) + text + dash * (room - room // 2) + end * (not last))
    yield Text(" " * (LABEL - 1) + corner + "".join(parts))
    if any(column.shaded for column in columns):
        marks = [SHADED[1] if ascii_only else EIGHTHS[max(1, round(8 * column.shaded))] for column in columns]
        shown = (mark if column.shaded else " " for mark, column in zip(marks, columns, strict=True))
        yield Text(" " * LABEL).append("".join(shown), SHADED[2])
    by_op = curve.x_unit == "op"
    ends = [f"op {x}" if by_op else value_text(x, "ns") if x else "0" for x in (curve.x[0], curve.x[-1] - by_op)]
    yield Text(" " * LABEL + ends[0] + ends[1].rjust(len(columns) - len(ends[0])))


def _legend(entries: Sequence[tuple[tuple[str, str, str], str]], width: int, ascii_only: bool) -> list[Text]:
    lines = [Text(" " * LABEL)]
    for (block, plain, color), name in entries:
        words = set_cell_size(f" {tidy(name)}", min(cell_len(tidy(name)) + 1, width - LABEL - 1))
        if lines[-1].cell_len > LABEL and lines[-1].cell_len + 1 + cell_len(words) > width:
            lines.append(Text(" " * LABEL))
        lines[-1].append(plain if ascii_only else block, color).append(f"{words}   ")
    return lines


def span_lines(spans: Spans, width: int, *, ascii_only: bool = False) -> list[Text]:
    """Draw the first lanes of ``spans``, one line each: a block where an interval covers half of a column or more. Time
    begins at 0, as it does in other pictures."""
    lanes = spans.lanes[: spans.top]
    room = min(max(cell_len(tidy(lane.label)) for lane in lanes), width // 3)
    count = max(10, width - room - 1)
    start = 0 if spans.x_unit == "ns" else min((x for lane in lanes for x in lane.start), default=0)
    span = max((x for lane in lanes for x in lane.end), default=0) - start or 1
    lines = []
    for lane in lanes:
        covered = [0.0] * count
        for a, b in zip(lane.start, lane.end, strict=True):
            first, last = ((x - start) * count / span for x in (a, b))
            for c in range(int(first), min(count, int(last) + 1)):
                covered[c] += max(0.0, min(last, c + 1) - max(first, c))
        full, thin = ("#", ".") if ascii_only else ("█", "▏")
        drawn = "".join(full if part >= 0.5 else thin if part > 0 else " " for part in covered)
        name = set_cell_size(shortened(tidy(lane.label), room), room)
        lines.append(Text(f"{name} {drawn}".rstrip()))
    ends = [value_text(x, spans.x_unit) for x in (start, start + span)]
    lines.append(Text(" " * (room + 1) + ends[0] + ends[1].rjust(count - len(ends[0])), style="dim"))
    if rest := len(spans.lanes) - len(lanes):
        lines.append(Text(f"and {rest:,} more", style="dim"))
    return lines
