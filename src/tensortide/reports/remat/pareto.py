"""Overhead against memory, a panel per step: the figure of sweeps, ablations and deallocations."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tensortide.plans.remat.policies import CELL_ROWS
from tensortide.reports.remat.canvas import Dashes, Look, label, legend, looks, page, ratios
from tensortide.reports.render.figure import check_figure
from tensortide.studies.remat.results import Curve, Experiment, Row, Step

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

__all__ = ["ablation_figures", "ablation_paths", "pareto_figure"]

BANDS = {"constants": "#222222", "one op": "#d4d4d4"}
BESIDE = 0.01
"""At most, between lines that are drawn side by side."""
FAILURES: dict[str, Dashes] = {"oom": ":", "thrash": "--"}


def pareto_figure(experiment: Experiment, path: str | os.PathLike[str], *, only: Sequence[str] | None = None) -> None:
    """Draw overhead against the budget, the curves in ``only`` (default: all).

    A value holds from its budget to the next larger one. Markers: the largest and the smallest budget that was enough.
    Hatched: the range over seeds. Vertical lines: the smallest budget that was enough; dotted, if the next one failed
    for want of memory; dashed, if for its overhead. Black: what constants take; grey: what some op needs beside them.
    """
    names = [curve.name for curve in experiment.studies[0].curves if only is None or curve.name in only]
    styles = looks(names)
    with page(path, len(experiment.studies)) as (figure, axes):
        for axis, study in zip(axes, experiment.studies, strict=True):
            curves = [curve for curve in study.curves if curve.name in names]
            _panel(axis, study.step, curves, styles, experiment.overhead_limit)
        label(axes, "memory budget / peak", "time / step time")
        legend(figure, _entries(names, styles))


def ablation_paths(path: str | os.PathLike[str]) -> list[Path]:
    """The files of ``ablation_figures``, checked: ``ablation.pdf`` becomes ``ablation-e.pdf`` and so on."""
    target = Path(path)
    return [check_figure(target.with_name(f"{target.stem}-{row}{target.suffix}")) for row in CELL_ROWS]


def ablation_figures(experiment: Experiment, path: str | os.PathLike[str]) -> None:
    """Draw the ablation, a file for each kind of work; see ``pareto_figure`` and ``ablation_paths``."""
    names = [curve.name for curve in experiment.studies[0].curves]
    for row, file in zip(CELL_ROWS, ablation_paths(path), strict=True):
        cells = [name for name in names if name.split("-")[0] == row]
        pareto_figure(experiment, file, only=[*cells, *(["random"] if row == "one" else [])])


def _panel(axis: Axes, step: Step, curves: Sequence[Curve], styles: Mapping[str, Look], limit: float) -> None:
    whole = step.baseline_bytes or 1
    constant, needed = step.constant_bytes / whole, (step.constant_bytes + step.bottleneck_bytes) / whole
    axis.axvspan(0, constant, color=BANDS["constants"], lw=0)
    axis.axvspan(constant, needed, color=BANDS["one op"], lw=0)
    axis.axhline(1, color="#444444", linewidth=0.9, linestyle="--")
    for place, curve in enumerate(curves):
        _curve(axis, curve, styles[curve.name], 3 + place / len(curves))
    _ends(axis, curves, styles)
    most = max((row.ratio for curve in curves for row in curve.rows), default=1)
    axis.set_ylim(1 - (limit - 1) / 10, limit)
    axis.set_title(step.name)
    ratios(axis, most)
    axis.set_axisbelow(True)


def _curve(axis: Axes, curve: Curve, look: Look, above: float) -> None:
    """Runs of budgets that were enough, as steps; what failed leaves a gap."""
    rows = sorted(curve.rows, key=lambda row: row.ratio)
    for enough, run in groupby(rows, key=lambda row: row.status == "ok"):
        if enough:
            _steps(axis, list(run), look, above)
    good = [row for row in rows if row.status == "ok"]
    if not good:
        return
    ends = good[:1] + good[-1:]
    axis.plot(
        [row.ratio for row in ends],
        [row.overhead for row in ends],
        look.marker,
        color=look.color,
        markeredgecolor="white",
        markeredgewidth=0.5,
        markersize=look.size,
        zorder=above + 1,
        clip_on=False,
    )


def _ends(axis: Axes, curves: Sequence[Curve], styles: Mapping[str, Look]) -> None:
    """A line at the smallest budget that was enough, if there was a smaller one; side by side where they coincide."""
    ends: dict[float, list[tuple[Look, Dashes]]] = {}
    for curve in curves:
        rows = sorted(curve.rows, key=lambda row: row.ratio)
        first = next((i for i, row in enumerate(rows) if row.status == "ok"), 0)
        if first:
            ends.setdefault(rows[first].ratio, []).append((styles[curve.name], FAILURES[rows[first - 1].status]))
    budgets = sorted({row.ratio for curve in curves for row in curve.rows})
    gap = min((b - a for a, b in pairwise(budgets)), default=1.0)
    for ratio, several in ends.items():
        beside = min(BESIDE, gap / 2 / len(several))
        for i, (look, dashes) in enumerate(several):
            shifted = ratio + (i - (len(several) - 1) / 2) * beside
            axis.axvline(shifted, color=look.color, linestyle=dashes, linewidth=1.0, zorder=2)


def _steps(axis: Axes, rows: Sequence[Row], look: Look, above: float) -> None:
    x = [row.ratio for row in rows]
    axis.step(
        x,
        [row.overhead for row in rows],
        where="post",
        color=look.color,
        linestyle=look.style,
        linewidth=look.width,
        zorder=above,
    )
    if any(len(row.runs) > 1 for row in rows):
        low, high = ([end(row.overheads) for row in rows] for end in (min, max))
        axis.fill_between(
            x, low, high, step="post", facecolor="none", edgecolor=look.color, alpha=0.6, hatch="//////", lw=0, zorder=2
        )


def _entries(names: Sequence[str], styles: Mapping[str, Look]) -> list[tuple[Artist, str]]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[tuple[Artist, str]] = [
        (Line2D([], [], color=look.color, marker=look.marker, linestyle=look.style, linewidth=look.width), name)
        for name, look in ((name, styles[name]) for name in names)
    ]
    entries += [
        (Line2D([], [], color="#444444", linestyle=FAILURES["oom"], linewidth=1.0), "below: oom"),
        (Line2D([], [], color="#444444", linestyle=FAILURES["thrash"], linewidth=1.0), "below: thrash"),
        (Patch(color=BANDS["constants"], lw=0), "constants"),
        (Patch(color=BANDS["one op"], lw=0), "one op"),
    ]
    return entries
