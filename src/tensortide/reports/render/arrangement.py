"""Places of the panels of a figure: those of one clock below each other, the rest side by side; their legends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

from tensortide.reports.pictures import Curve, Scatter, Spans
from tensortide.reports.render.series import LOOKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panel: TypeAlias = Curve | Scatter | Spans


def on_one_clock(panels: Sequence[Panel]) -> list[int]:
    """Numbers of the panels, in a row, that have one x axis: they stand below each other. Few are not."""
    clocks = ["" if isinstance(panel, Scatter) else panel.clock for panel in panels]
    first = next((n for n, (a, b) in enumerate(pairwise(clocks)) if a and a == b), None)
    if first is None:
        return []
    return [first + n for n, _ in enumerate(takewhile(lambda clock: clock == clocks[first], clocks[first:]))]


def rows_of(panels: Sequence[Panel], stacked: Sequence[int]) -> list[list[int]]:
    """Numbers of the panels of each row: one on a clock, or lanes among many panels; two of all others."""
    alone = {n for n, panel in enumerate(panels) if n in stacked or (isinstance(panel, Spans) and len(panels) > 2)}
    rows: list[list[int]] = []
    for number in range(len(panels)):
        if rows and len(rows[-1]) == 1 and not {number, number - 1} & alone:
            rows[-1].append(number)
        else:
            rows.append([number])
    return rows


def align(figure: Figure, axes: Sequence[Axes], *, share: bool) -> None:
    """Give panels below each other one x axis, which the last one names. To ``share`` is to have one legend, unless a
    color means one thing in one of them and another in the next."""
    ends = [axis.get_xlim() for axis in axes]
    entries: dict[str, Any] = {}
    shared = share and not _ambiguous(axes)
    for axis in axes:
        axis.set_xlim(min(low for low, _ in ends), max(high for _, high in ends))
        entries |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
        if shared and (legend := axis.get_legend()) is not None:
            legend.remove()
        if axis is not axes[-1]:
            axis.set_xlabel("")
            axis.tick_params(labelbottom=False)
    if shared:
        figure.legend(list(entries.values())[::-1], list(entries)[::-1], loc="outside right center", handlelength=1.2)


def _ambiguous(axes: Sequence[Axes]) -> bool:
    """Tell whether panels fill areas of different names with one color."""
    from matplotlib.colors import to_rgba_array

    pairs = [pair for axis in axes for pair in zip(*axis.get_legend_handles_labels(), strict=True)]
    areas = [(area, label) for area, label in pairs if hasattr(area, "get_facecolor")]
    filled = {(to_rgba_array(area.get_facecolor()).tobytes(), label) for area, label in areas}
    return len({color for color, _ in filled}) < len(filled)


def share_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Put one legend below panels if each of its series looks the same wherever it is drawn, and like no other."""
    pairs = [pair for axis in axes for pair in zip(*axis.get_legend_handles_labels(), strict=True)]
    entries = {label: handle for handle, label in reversed(pairs)}
    series = {(label, look) for handle, label in pairs if (look := _look(handle))}
    if len(axes) == 1 or not entries or not len(series) == len({look for _, look in series}) == len(dict(series)):
        return
    labels = list(dict.fromkeys(label for _, label in pairs))
    for axis in axes:
        if (legend := axis.get_legend()) is not None:
            legend.remove()
    handles = [entries[label] for label in labels]
    figure.legend(handles, labels, loc="outside lower center", ncols=4, handlelength=1.8)


def _look(handle: Any) -> tuple[str, ...]:
    """Colour, marker and dashes of a series; nothing of what is no series, such as a limit."""
    if not hasattr(handle, "get_marker") or handle.get_color() not in {look.light for look in LOOKS}:
        return ()
    return handle.get_color(), str(handle.get_marker()), str(handle.get_linestyle())


def inches(axis: Axes, name: str) -> float:
    """Estimate the length of an axis."""
    box = axis.get_subplotspec()
    assert box is not None
    grid = box.get_gridspec()
    width, height = axis.get_figure(root=True).get_size_inches()  # type: ignore[union-attr]
    if name == "x":
        return float((width - 1.6) * len(box.colspan) / grid.ncols * 0.7)
    ratios: Any = grid.get_height_ratios()
    return float(height * sum(ratios[row] for row in box.rowspan) / sum(ratios) * 0.7)
