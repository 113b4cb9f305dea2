"""Memory over the step as text: blocks of three shades over an axis of phases."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

from rich.text import Text

from tensortide.graph.roles import BANDS, looks
from tensortide.reports.document import Document
from tensortide.reports.series import memory_by_role
from tensortide.units import format_bytes

EIGHTHS = " ▁▂▃▄▅▆▇"
LABEL = 12


def memory_curve(document: Document, width: int, height: int = 10, *, ascii_only: bool = False) -> list[Text]:
    """Lines of at most ``width`` columns: the peak, the curve, its axis with phases, what the shades mean."""
    total = document.ops.resident_bytes
    if not total:
        return [Text("The step has no ops.")]
    columns = max(10, width - LABEL)
    instants = _instants(total, columns)
    series = memory_by_role(document)
    members = [
        [series[role] for role, look in looks().items() if look.band is band and role in series] for band in BANDS
    ]
    bands = [[sum(values[i] for values in member) for i in instants] for member in members]
    most = max(total)
    lines = [_peak(document, instants, width)]
    for row in reversed(range(height)):
        label = format_bytes(most * (row + 1) // height) if row in (height - 1, height // 2 - 1) else ""
        line = Text(f"{label:>{LABEL - 2}} {'|' if ascii_only else '┤' if label else '│'}")
        for column in range(len(instants)):
            line.append(*_cell([band[column] for band in bands], most / height, row, ascii_only))
        line.rstrip()
        lines.append(line)
    phases = [document.ops.phases[document.ops.phase[i]] for i in instants]
    lines += [_axis(phases, ascii_only), _numbers(len(total), len(instants)), _legend(ascii_only)]
    return lines


def _instants(total: Sequence[int], columns: int) -> list[int]:
    """For each column the op with the most memory of those it stands for."""
    count = len(total)
    if count <= columns:
        return [column * count // columns for column in range(columns)]
    edges = [column * count // columns for column in range(columns + 1)]
    return [max(range(a, b), key=total.__getitem__) for a, b in pairwise(edges)]


def _cell(bands: Sequence[int], unit: float, row: int, ascii_only: bool) -> tuple[str, str]:
    """Character and style of one cell: the band at its middle, or the top of the curve in eighths."""
    total, low = sum(bands), row * unit
    if total <= low:
        return " ", ""
    middle = min(low + unit / 2, (low + total) / 2)
    reached = 0
    chosen = BANDS[-1]
    for band, nbytes in zip(BANDS, bands, strict=True):
        reached += nbytes
        if middle < reached:
            chosen = band
            break
    part = int(8 * (total - low) / unit)
    if ascii_only:
        return (chosen.plain, chosen.color) if part >= 4 else (" ", "")
    if part >= 8 or chosen is not BANDS[-1]:
        return (chosen.block, chosen.color) if part >= 4 else (EIGHTHS[part], chosen.color)
    return EIGHTHS[part], chosen.color


def _peak(document: Document, instants: Sequence[int], width: int) -> Text:
    """A line that points at the highest column."""
    view = document.overview
    column = LABEL + next((c for c, i in enumerate(instants) if i == view.peak_op), 0)
    phase = document.ops.phases[document.ops.phase[view.peak_op]]
    words = f"peak {format_bytes(view.peak_bytes)} at op {view.peak_op}, {phase}"
    if column + 2 + len(words) <= width:
        return Text(" " * column + "v " + words, style="bold")
    return Text((words + " v").rjust(column + 1), style="bold")


def _axis(phases: Sequence[str], ascii_only: bool) -> Text:
    """The axis, with the name of each phase where there is room for it."""
    corner, dash, end = ("+", "-", "+") if ascii_only else ("└", "─", "┴")
    line = Text(" " * (LABEL - 1) + corner)
    stretches = [(phase, len(list(run))) for phase, run in groupby(phases)]
    for i, (phase, length) in enumerate(stretches):
        room = length - (i + 1 < len(stretches))
        name = f" {phase} " if room >= len(phase) + 4 else ""
        line.append(name.center(room, dash))
        if room < length:
            line.append(end)
    return line


def _numbers(count: int, columns: int) -> Text:
    if count < 3:
        return Text(" " * LABEL + "op 0")
    last = f"{count - 1}"
    middle = f"{count // 2}".center(columns - len("op 0") - len(last))
    return Text(" " * LABEL + f"op 0{middle}{last}")


def _legend(ascii_only: bool) -> Text:
    line = Text(" " * LABEL)
    for label, block, plain, color in reversed(BANDS):
        line.append(plain if ascii_only else block, color).append(f" {label}   ")
    line.rstrip()
    return line
