"""Memory before and after as text: what is left, what was saved, the budget, and where time goes into it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich.text import Text

from tensortide.reports.simulation.records import SimulationView
from tensortide.units import format_bytes

EIGHTHS = " ▁▂▃▄▅▆▇█"
LABEL = 12


def curve_text(view: SimulationView, width: int, height: int = 10, *, ascii_only: bool = False) -> list[Text]:
    """Lines of at most ``width`` columns: after in full blocks, before shaded behind it, one column per stretch of
    executed ops; below the axis, how much of each stretch is recomputation."""
    curves = view.curves
    if not curves.op:
        return [Text("Nothing was executed.")]
    edges = _edges(len(curves.op), max(10, min(width, 160) - LABEL))
    after = [max(curves.after_bytes[a:b]) for a, b in edges]
    before = [max(curves.before_bytes[a:b]) for a, b in edges]
    again = [sum(curves.again[a:b]) / (b - a) for a, b in edges]
    budget = view.budget_bytes
    most = max(*before, *after, budget if budget is not None and budget <= 2 * max(before) else 0, 1)
    unit = most / height
    limit = None if budget is None or budget > most else max(0, min(height - 1, round(budget / unit) - 1))
    lines = []
    for row in reversed(range(height)):
        line = Text(_label(row, height, most, limit, budget, ascii_only))
        for now, then in zip(after, before, strict=True):
            line.append(*_cell(now, then, row, unit, row == limit, ascii_only))
        line.rstrip()
        lines.append(line)
    corner, dash = ("+", "-") if ascii_only else ("└", "─")
    lines.append(Text(" " * (LABEL - 1) + corner + dash * len(edges)))
    if any(again):
        lines.append(_marks(again, ascii_only))
    lines += [_numbers(len(curves.op), len(edges)), _legend(any(again), limit is not None, ascii_only)]
    return lines


def _edges(count: int, columns: int) -> list[tuple[int, int]]:
    """The stretches of ``count`` ops that the columns stand for."""
    if count <= columns:
        return [(c * count // columns, c * count // columns + 1) for c in range(columns)]
    return list(pairwise(c * count // columns for c in range(columns + 1)))


def _label(row: int, height: int, most: int, limit: int | None, budget: int | None, ascii_only: bool) -> str:
    text = ""
    if row == limit and budget is not None:
        text = format_bytes(budget)
    elif row in (height - 1, height // 2 - 1) and (limit is None or abs(row - limit) > 1):
        text = format_bytes(most * (row + 1) // height)
    return f"{text:>{LABEL - 2}} {'|' if ascii_only else '┤' if text else '│'}"


def _cell(now: int, then: int, row: int, unit: float, limit: bool, ascii_only: bool) -> tuple[str, str]:
    """Character and style of one cell: the first of memory after, the budget, memory before that reaches it."""
    low = row * unit
    part = max(0, min(8, round(8 * (now - low) / unit)))
    if part == 8 or (part and not limit and then - low < unit / 2):
        return ("#" if part >= 4 else " ", "yellow") if ascii_only else (EIGHTHS[part], "yellow")
    if limit:
        return ("-" if ascii_only else "─", "red")
    if part >= 4:
        return ("#" if ascii_only else EIGHTHS[part], "yellow")
    if then - low >= unit / 2:
        return (".", "blue") if ascii_only else ("░", "blue")
    return " ", ""


def _marks(again: Sequence[float], ascii_only: bool) -> Text:
    """Under each column how much of it is recomputation."""
    line = Text(" " * LABEL)
    for share in again:
        if ascii_only:
            line.append("^" if share else " ", "magenta")
        else:
            line.append(EIGHTHS[max(1, round(8 * share))] if share else " ", "magenta")
    line.rstrip()
    return line


def _numbers(count: int, columns: int) -> Text:
    last = f"{count - 1}"
    if count < 3:
        return Text(" " * LABEL + "executed 0")
    return Text(" " * LABEL + "executed 0" + last.rjust(columns - len("executed 0")))


def _legend(again: bool, limit: bool, ascii_only: bool) -> Text:
    line = Text(" " * LABEL)
    entries = [("#" if ascii_only else "█", "yellow", "after"), ("." if ascii_only else "░", "blue", "before")]
    if limit:
        entries.append(("-" if ascii_only else "─", "red", "budget"))
    if again:
        entries.append(("^" if ascii_only else "▄", "magenta", "computed again"))
    for char, style, name in entries:
        line.append(char, style).append(f" {name}   ")
    line.rstrip()
    return line
