"""Curves, scatters and spans as panels of a figure with one style of axes. Needs matplotlib (the extra ``plots``)."""

from __future__ import annotations

import io
import math
import os
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, cycle, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensortide.errors import MissingExtra, OutputError
from tensortide.graph.roles import looks
from tensortide.reports.blocks import Document
from tensortide.reports.pictures import Axis, Curve, Mark, Points, Scatter, Spans
from tensortide.reports.render.arrangement import Panel, align, inches, on_one_clock, rows_of, share_legend
from tensortide.reports.render.labels import Label, place_labels
from tensortide.reports.render.series import ENDS, LOOKS, MANY, REASONS, width
from tensortide.reports.render.ticks import log_ticks, round_ticks, spaced, tick_text
from tensortide.reports.render.values import shortened, tidy
from tensortide.write import check_writable, write_file, write_files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = tuple(look.light for look in LOOKS)
ROLE_COLORS = {name: look.light for name, look in looks().items()} | {
    "forward": "#009e73",
    "backward": "#0072b2",
    "optimizer": "#cc79a7",
    "transfer": "#e69f00",
    "exchange": "#d55e00",
    "other": "#b9c0c8",
    "idle": "#d7dce2",
    "in use": "#1b1f24",
    "pinned": "#35558f",
    "in_use": "#54b7a8",
    "evictable": "#eb9b3b",
    "resident": "#9fc3e0",
    "computed": "#0072b2",
    "recomputed": "#d55e00",
}
"""As in the HTML page."""
STYLE: Any = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "font.size": 9,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    "svg.hashsalt": "tensortide",
}
SHADES = ("#8f8f8f", "#d4d4d4", "#ececec")
"""Of ranges, the first the darkest."""
FORMATS = (".png", ".svg", ".pdf")
PANEL = (5.2, 3.0)
"""Inches; panels beside each other are smaller."""
STACKED = (5.8, 2.0)
"""Inches of panels below each other on one x axis."""
HATCHED: Any = {"facecolor": "#00000018", "edgecolor": "#22222290", "hatch": "/////", "lw": 0}
MARK = 7.5
"""Points from one mark to the next above it."""
TICK = 0.62
"""Inches that a label below an axis takes."""
MOST_LANES = 400
NAMED_LANES = 24
"""Lanes with a name at most; of more, every n-th is named."""
LANE_NAME = 40
"""Letters of the name of a lane."""


def check_figure(path: str | os.PathLike[str], *, folders: bool = False) -> Path:
    """Return ``path`` if a figure can be written there; ``folders``: those of ``path`` may be missing. Raises
    OutputError, and MissingExtra without matplotlib."""
    target = check_writable(path, folders=folders)
    if target.suffix.lower() not in FORMATS:
        raise OutputError(f"cannot write {target}: a figure is a file that ends in {', '.join(FORMATS)}.")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtra("figures need matplotlib: pip install 'tensortide[plots]'.") from None
    return target


def render_figure(document: Document, path: str | os.PathLike[str], keys: Sequence[str] = ()) -> Path:
    """Write the panels of ``document`` to ``path``: all, or the blocks called ``keys``.

    Raises:
        OutputError: there is nothing to draw, or ``path`` cannot be written.
    """
    target = check_figure(path)
    return write_file(target, _rendered(document, target.suffix.lower()[1:], keys))


def render_each(document: Document, folder: Path, keys: Sequence[str] = ()) -> None:
    """Write each panel of ``document`` to ``folder`` as PNG and SVG: all, or the blocks called ``keys``."""
    panels = _panels(document, keys)
    check_figure(folder / "figure.png", folders=True)
    pairs = [*product((panel.key for panel in panels), ("png", "svg"))]
    write_files({folder / f"{key}.{kind}": _rendered(document, kind, (key,)) for key, kind in pairs})


def _rendered(document: Document, kind: str, keys: Sequence[str]) -> bytes:
    """Draw the panels as the content of a file of this ``kind``, which is its suffix."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        out = io.BytesIO()
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        draw(document, keys).savefig(out, format=kind, metadata=metadata)
    return out.getvalue()


def _panels(document: Document, keys: Sequence[str]) -> list[Panel]:
    every = [block for section in document.sections for block in section.blocks]
    panels = [b for b in every if isinstance(b, Panel) and (not keys or b.key in keys)]
    if not panels:
        raise OutputError("there is nothing to draw.")
    return sorted(panels, key=lambda panel: keys.index(panel.key)) if keys else panels


def draw(document: Document, keys: Sequence[str] = ()) -> Figure:
    """Draw the panels of ``document`` that ``keys`` name (default: all) under its title."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = _panels(document, keys)
    stacked = on_one_clock(panels)
    rows = rows_of(panels, stacked)
    all_stacked, columns = len(stacked) == len(panels) > 1, max(map(len, rows))
    size = STACKED if all_stacked else PANEL if columns == 1 else (0.8 * PANEL[0], 0.9 * PANEL[1])
    heights = [STACKED[1] if row[0] in stacked else size[1] for row in rows]
    wide = PANEL[0] if columns == 1 and not all_stacked else size[0] * columns
    figure = Figure(figsize=(wide + 1.6, sum(heights) + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(len(rows), columns, height_ratios=heights)
    places = [grid[n, :] if len(row) == 1 else grid[n, i] for n, row in enumerate(rows) for i in range(len(row))]
    axes = [figure.add_subplot(place) for place in places]
    of = {id(block): section.title for section in document.sections for block in section.blocks}
    for axis, number in zip(axes, chain.from_iterable(rows), strict=True):
        block = panels[number]
        _PANELS[type(block)](axis, block)
        variant = block.variant.lower() if isinstance(block, Curve) else ""
        title = block.title or ", ".join(filter(None, (of[id(block)], variant)))
        axis.set_title(_literal(title, 60), wrap=True)
    if stacked:
        align(figure, axes[stacked[0] : stacked[-1] + 1], share=all_stacked)
    else:
        share_legend(figure, axes)
    caption = "   ".join([document.title, *(f"{k}={v}" for k, v in document.settings.items())])
    figure.suptitle(textwrap.fill(_literal(caption), 80 if columns == 1 else 120), fontsize=9, x=0.01, ha="left")
    for axis, block in zip(axes, panels, strict=True):
        _write_labels(axis, block)
    return figure


def _literal(text: str, most: int = 200) -> str:
    """Escape what matplotlib would take for a formula, and cut ``text`` after ``most`` characters."""
    text = tidy(text)
    return (text if len(text) <= most else f"{text[: most - 3]}...").replace("$", r"\$")


def _label(text: str) -> str:
    """Break ``text`` into lines of a legend."""
    return textwrap.fill(_literal(text, 96), 32)


def _curve(axis: Axes, curve: Curve) -> None:
    if not len(curve):
        return
    edges, levels = list(curve.x), [0.0] * len(curve)
    for number, one in enumerate(curve.stack):
        below, levels = levels, [level + value for level, value in zip(levels, one.values, strict=True)]
        color = _color(one.key, number)
        _stairs(axis, levels, edges, baseline=below, fill=True, facecolor=color, lw=0, label=_label(one.label))
        if number:
            _stairs(axis, below, edges, edgecolor="white", lw=0.4)  # bands of one grey stay apart
    if curve.stack:
        peak = max(range(len(levels)), key=levels.__getitem__)
        top = max((number for number, one in enumerate(curve.stack) if one.values[peak]), default=0)
        color = _color(curve.stack[top].key, top)
        _stairs(axis, levels, edges, edgecolor=color, lw=0.6)  # the narrowest peak is seen, too
    for number, shade in enumerate(curve.shades):
        label = "_" if number else _label(shade.label)
        axis.axvspan(edges[shade.start], edges[shade.end], label=label, **HATCHED)
    for number, one in enumerate(curve.lines):
        color = ("#222222", *COLORS)[number % (1 + len(COLORS))]
        _stairs(axis, [*one.values], edges, edgecolor=color, lw=1.1, label=_label(one.label))
    highest = max([*levels, *(value for one in curve.lines for value in one.values)])
    axis.set_ylim(0, 1.12 * highest or 1)  # a limit far above is not drawn
    for mark in curve.marks:
        if mark.at < len(curve):
            axis.plot([_middle(curve, mark)], [levels[mark.at]], "o", color="#222222", ms=3.5)
    for limit in curve.limits:
        if limit.value <= axis.get_ylim()[1]:
            axis.axhline(limit.value, color=COLORS[1], linestyle="--", lw=1.2, label=_label(limit.label))
    if edges[0] < edges[-1]:
        axis.set_xlim(edges[0], edges[-1])
    _axis(axis, "x", Axis("time" if curve.x_unit == "ns" else "op", curve.x_unit))
    _axis(axis, "y", Axis("", curve.unit))
    _legend(axis)


def _stairs(axis: Axes, levels: Sequence[float], edges: Sequence[float], **style: Any) -> None:
    """Draw as ``Axes.stairs`` does, but do not look for the limits of each part, which takes longer than to draw it."""
    from matplotlib.patches import StepPatch

    axis.add_artist(StepPatch(levels, edges, **{"baseline": None, "fill": False, **style}))


def _middle(curve: Curve, mark: Mark) -> float:
    return (curve.x[mark.at] + curve.x[mark.at + 1]) / 2


def _write_labels(axis: Axes, block: Panel) -> None:
    """Write what stands beside points: marks of a curve, names of tagged points."""
    if isinstance(block, Curve):
        totals = block.totals()
        marks = [mark for mark in block.marks if mark.at < len(block)]
        labels = [Label(_literal(mark.label), _middle(block, mark), totals[mark.at]) for mark in marks]
        place_labels(axis, labels, ())
    elif isinstance(block, Scatter):
        points = [(x, y) for one in block.points for x, y in zip(one.x, one.y, strict=True) if y is not None]
        tagged = [one for one in block.points if one.tagged]
        labels = [
            Label(_literal(name, 40), x, y, bold=one is tagged[0])
            for one in tagged
            for name, x, y in zip(one.names, one.x, one.y, strict=True)
            if name and y is not None
        ]
        place_labels(axis, labels, points)


def _scatter(axis: Axes, scatter: Scatter) -> None:
    for shade, color in zip(scatter.ranges, SHADES, strict=False):
        axis.axvspan(shade.start, shade.end, color=color, lw=0, label=_label(shade.label))
    for number, points in enumerate(scatter.points):
        _points(axis, points, number if points.look is None else points.look, scatter.y.log)
    for reason in sorted({one.end.reason for one in scatter.points if one.end}):
        axis.plot([], [], ENDS[reason], color="#555555", mew=1.6, label=REASONS[reason])
    for limits, line in ((scatter.across, axis.axhline), (scatter.down, axis.axvline)):
        for limit in limits:
            line(limit.value, color="#444444", lw=1.0, linestyle="--", label=_label(limit.label))
    corners = [*product(scatter.x.covers, scatter.y.covers)]
    if corners:
        axis.update_datalim(corners)
        axis.autoscale_view()
    _axis(axis, "x", scatter.x, chain.from_iterable(one.x for one in scatter.points))
    _axis(axis, "y", scatter.y, chain.from_iterable(one.y for one in scatter.points))
    if scatter.x.whole:
        _shares(axis, scatter.x)
    if len(scatter.points) + len(scatter.across) + len(scatter.down) + len(scatter.ranges) > 1:
        _legend(axis)


def _points(axis: Axes, points: Points, number: int, log: bool) -> None:
    from matplotlib.transforms import offset_copy

    y = [math.nan if value is None or (log and value <= 0) else value for value in points.y]
    series, color = LOOKS[number % len(LOOKS)], _color(points.label, number)
    label = _label(points.label.replace("_", " ") if points.label in ROLE_COLORS else points.label)
    style: Any = {"marker": series.marker, "linestyle": "none", "zorder": 3 - number / 100}
    if points.joined:  # later ones above, and thinner and smaller: both are seen where they coincide
        style |= {
            "linestyle": (0, series.dashes) if series.dashes else "-",
            "lw": width(number),
            "zorder": 2 + number / 100,
        }
        style |= {"ms": max(3.0, 6.5 - number / 2), "marker": series.marker if len(y) <= MANY else ""}
        style["drawstyle"] = "steps-post" if points.joined == "step" else "default"
    axis.plot(points.x, y, color=color, label=label, **style)
    if end := points.end:
        axis.plot([end.x, end.start], [end.y, end.y], ":", color=color, lw=0.8, zorder=style["zorder"])
        above = offset_copy(axis.transData, axis.get_figure(root=True), y=MARK * end.below, units="points")
        mark: Any = {"color": color, "ms": 6, "mew": 1.6, "zorder": style["zorder"], "transform": above}
        mark["clip_on"] = not end.below  # of many, the last may be above the panel
        axis.plot([end.x], [end.y], ENDS[end.reason], **mark)
    if points.low and points.high:
        low, high = ([math.nan if value is None else value for value in part] for part in (points.low, points.high))
        step: Any = "post" if points.joined == "step" else None
        look: Any = {"facecolor": f"{color}14", "edgecolor": f"{color}59", "hatch": "////", "lw": 0}
        axis.fill_between(points.x, low, high, step=step, label=_label(points.between) or f"{label}, range", **look)


def _spans(axis: Axes, spans: Spans) -> None:
    lanes = spans.lanes[:MOST_LANES]
    kinds = sorted({kind for lane in lanes for kind in lane.kinds})  # the same colours in panels of the same kinds
    free = [color for color in COLORS if color not in {ROLE_COLORS.get(kind) for kind in kinds}] or COLORS
    others = [kind for kind in kinds if kind not in ROLE_COLORS]
    shades = {kind: _color(kind, 0) for kind in kinds} | dict(zip(others, cycle(free), strict=False))
    for row, lane in enumerate(lanes):
        intervals = [(start, end - start) for start, end in zip(lane.start, lane.end, strict=True)]
        colors = [shades[kind] for kind in lane.kinds] or COLORS[0]
        axis.broken_barh(intervals, (row - 0.4, 0.8), color=colors, lw=0.5)  # the shortest are seen, too
    for kind in kinds if len(kinds) <= 8 else ():
        axis.broken_barh([], (0, 0), color=shades[kind], label=_label(kind.replace("_", " ")))
    if len(kinds) > 1:
        _legend(axis)
    each = max(1, math.ceil(len(lanes) / NAMED_LANES))
    room = 72 * inches(axis, "y") * each / max(1, len(lanes))  # points from a name to the next: none is higher
    names = [_literal(shortened(lane.label, LANE_NAME)) for lane in lanes[::each]]
    axis.set_yticks(range(0, len(lanes), each), names, fontsize=min(7, 0.8 * room))
    axis.set_ylim(max(1, len(lanes)) - 0.5, -0.5)
    axis.grid(axis="y", visible=False)
    if spans.x_unit == "ns":
        axis.axvline(0, lw=0)  # time begins at 0
    _axis(axis, "x", Axis("time" if spans.x_unit == "ns" else "op", spans.x_unit))


def _color(key: str, number: int) -> str:
    return ROLE_COLORS.get(key) or COLORS[number % len(COLORS)]


def _legend(axis: Axes) -> None:
    """Name what is drawn beside the panel, the top of a stack first."""
    handles, labels = axis.get_legend_handles_labels()
    if handles:
        axis.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.2)


def _axis(axis: Axes, name: str, wanted: Axis, values: Iterable[float | None] = ()) -> None:
    """Put few enough ticks that their labels do not meet, at values that are round in their unit."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    if wanted.log and any(value is not None and value > 0 for value in values):
        axis.set(**{f"{name}scale": "log"})
    axis.set(**{f"{name}label": _literal(wanted.label, 60)})
    unit = wanted.unit
    which = axis.xaxis if name == "x" else axis.yaxis
    most = max(2, int(inches(axis, name) / (TICK if name == "x" else 0.21)))
    if wanted.from_zero:
        axis.set(**{f"{name}lim": (0, 1.05 * max(which.get_view_interval()))})
    low, high = sorted(which.get_view_interval())
    log = which.get_scale() == "log"
    chosen: Sequence[float] = wanted.ticks
    if chosen:
        place = math.log if log else float
        inch = (place(high) - place(low)) / inches(axis, name)
        chosen = spaced(chosen, lambda value: place(value) / inch, unit)
        which.set_minor_locator(NullLocator())
    elif log:
        chosen = log_ticks(low, high, most, unit)
        if unit in ("bytes", "s", "ns"):
            which.set_minor_locator(NullLocator())
        which.set_minor_formatter(NullFormatter())
    which.set_major_locator(FixedLocator([*chosen]) if chosen else round_ticks(low, high, most, unit))
    which.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value, unit)))


def _shares(axis: Axes, wanted: Axis) -> None:
    """Put a scale of shares of the whole on top."""
    from matplotlib.ticker import FuncFormatter

    def share(value: Any) -> Any:
        return value / wanted.whole

    def amount(value: Any) -> Any:
        return value * wanted.whole

    top = axis.secondary_xaxis("top", functions=(share, amount))
    top.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    top.set_xlabel("of the peak without a budget", fontsize=8)
    top.tick_params(labelsize=8)


_PANELS: dict[type, Callable[[Axes, Any], None]] = {Curve: _curve, Scatter: _scatter, Spans: _spans}
