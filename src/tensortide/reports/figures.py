"""Figures of formulas: sweeps, intensity against batch, projections. Needs matplotlib (the extra ``plots``)."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tensortide.errors import ExpressionError
from tensortide.formulas.formulas import Formulas
from tensortide.formulas.projection import Projection, Requirement
from tensortide.formulas.sweep import Sweep, geometric
from tensortide.reports.formulas import TITLES
from tensortide.reports.render.figure import COLORS, STYLE, check_figure
from tensortide.timing.machine import Roof
from tensortide.write import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["intensity_figure", "projection_figure", "sweep_figure"]

WIDE = 20
"""An axis that spans more than this factor is logarithmic."""


@contextmanager
def _figure(path: str | os.PathLike[str], panels: int) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure of panels, written when the body is done."""
    target = check_figure(path)
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows, columns = (2, 2) if panels == 4 else (1, panels)
    with rc_context(STYLE):
        figure = Figure(figsize=(3.5 * columns if columns > 1 else 5.0, 2.8 * rows + 0.4), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure, list(figure.subplots(rows, columns, squeeze=False).flat)
        out, kind = io.BytesIO(), target.suffix.lower()[1:]
        figure.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else None)
    write_file(target, out.getvalue())


def _scale(axis: Any, values: Iterable[float], unit: str = "", *, whole: bool = False) -> None:
    """Logarithmic where values span far; numbers with a decimal prefix, or as they are if they are ``whole``."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    known = [value for value in values if value > 0]
    span = max(known) / min(known) if known else 1
    if span > WIDE:
        base = 2 if whole and span <= 4096 else 10
        axis._set_axes_scale("log", base=base)
        axis.set_major_locator(LogLocator(base=base, subs=(1, 2, 5) if base == 10 and span < 100 else (1,), numticks=8))
        axis.set_minor_formatter(NullFormatter())
    elif whole:
        axis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}") if whole else EngFormatter(unit=unit, sep=" "))


# -- sweep ------------------------------------------------------------------------------------------

PANELS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Parameters", "", ("parameters",)),
    ("FLOPs of a step", "", ("flops",)),
    ("Bytes accessed", "B", ("bytes",)),
    (
        "Memory",
        "B",
        ("peak_bytes", "footprint_bytes", "minimal_footprint_lower_bytes", "minimal_footprint_upper_bytes"),
    ),
)


def sweep_figure(sweep: Sweep, path: str | os.PathLike[str]) -> None:
    """Draw the totals against the first swept symbol, with a line for every combination of the others."""
    panels = [
        (title, unit, found)
        for title, unit, names in PANELS
        if (found := [name for name in names if len({*_column(sweep, name)} - {None}) > 1])
    ]
    if not panels:
        raise ExpressionError("there is nothing to draw: no total changes over the sweep, where the formulas hold")
    series = sorted({point.at[1:] for point in sweep.points})
    if len(series) > len(COLORS):
        raise ExpressionError(f"{len(series)} lines are too many to tell apart: sweep the other symbols less densely")
    with _figure(path, len(panels)) as (figure, axes):
        for axis, (title, unit, names) in zip(axes, panels, strict=True):
            _sweep_panel(axis, sweep, names[: 1 if len(series) > 1 else 3], series)
            _scale(axis.xaxis, (point.at[0] for point in sweep.points), whole=True)
            _scale(axis.yaxis, (v for name in names for v in _column(sweep, name) if v is not None), unit)
            axis.set(title=title, xlabel=sweep.over[0])
        if len(series) > 1:
            axes[0].legend(title=", ".join(sweep.over[1:]))
        figure.suptitle(_caption(sweep.workload, sweep.fixed), fontsize=9, x=0.01, ha="left")


def _sweep_panel(axis: Axes, sweep: Sweep, names: Sequence[str], series: Sequence[tuple[int, ...]]) -> None:
    for name in names:
        column = _column(sweep, name)
        for others in series:
            points = [
                (point.at[0], value)
                for point, value in zip(sweep.points, column, strict=True)
                if point.at[1:] == others and value is not None
            ]
            label = ", ".join(f"{value:,}" for value in others) if len(series) > 1 else TITLES.get(name, name)
            color = COLORS[series.index(others) if len(series) > 1 else names.index(name)]
            marker = "o" if len(points) <= 24 else ""
            axis.plot([x for x, _ in points], [y for _, y in points], marker=marker, color=color, label=label)
    if len(names) > 1 and len(series) == 1:
        axis.legend()


def _column(sweep: Sweep, name: str) -> list[int | None]:
    return sweep.column(name) if name in sweep.totals else []


def _caption(workload: str, setting: dict[str, int]) -> str:
    return "   ".join([workload, *(f"{name}={value}" for name, value in setting.items())]).strip()


# -- intensity --------------------------------------------------------------------------------------


def intensity_figure(
    formulas: Formulas, growth: str, batch: str, roof: Roof, path: str | os.PathLike[str], *, largest: int = 4096
) -> None:
    """Draw FLOPs per byte accessed against the batch, for models of growing size, with the ridge of ``roof``."""
    for name in ("flops", "bytes"):
        formulas.check(name, formulas.totals, "total")
    for name in (growth, batch):
        formulas.check(name, formulas.symbols, "symbol")
    base = formulas.defaults[growth]
    with _figure(path, 1) as (figure, (axis,)):
        everything: list[float] = [roof.ridge]
        for color, size in zip(COLORS, (base, 4 * base, 16 * base), strict=False):
            batches, values = _intensities(formulas, {growth: size}, batch, largest)
            axis.plot(batches, values, color=color, label=f"{growth} = {size:,}")
            everything += values
        axis.axhline(roof.ridge, color="#444444", linewidth=1.0, linestyle="--")
        axis.annotate(
            f"ridge of {roof.name}: {roof.ridge:.1f} FLOP/B",
            (largest, roof.ridge),
            xytext=(0, -4),
            textcoords="offset points",
            color="#444444",
            fontsize=8,
            ha="right",
            va="top",
        )
        _scale(axis.xaxis, (1, largest), whole=True)
        _scale(axis.yaxis, everything, whole=False)
        axis.set(title="FLOPs per byte accessed", xlabel=batch)
        axis.legend()
        others = {name: v for name, v in formulas.defaults.items() if name not in (growth, batch)}
        figure.suptitle(_caption(formulas.workload, others), fontsize=8, x=0.01, ha="left")


def _intensities(
    formulas: Formulas, setting: dict[str, int], batch: str, largest: int
) -> tuple[list[int], list[float]]:
    batches: list[int] = []
    values: list[float] = []
    for value in geometric(1, largest, 2**0.25):
        try:
            totals = formulas.evaluate(**setting, **{batch: value})
        except ExpressionError:
            continue
        batches.append(value)
        values.append(totals["flops"] / totals["bytes"])
    return batches, values


# -- projection -------------------------------------------------------------------------------------


def projection_figure(projection: Projection, path: str | os.PathLike[str]) -> None:
    """Draw the learning curve from today to the target, and what a step takes on the way there."""
    rows = {row.label: row for row in projection.requirements}
    with _figure(path, 2) as (figure, (left, right)):
        _learning_curve(left, projection, rows)
        models = sorted(projection.requirements, key=lambda row: row.totals["parameters"])
        x = [row.totals["parameters"] for row in models]
        right.plot(x, [row.compute_s for row in models], marker="o", color=COLORS[0], label="compute")
        right.plot(x, [row.memory_s for row in models], marker="o", color=COLORS[1], label="memory")
        sure = (rows["low"].totals["parameters"], rows["high"].totals["parameters"])
        right.axvspan(*sure, color="#999999", alpha=0.15, lw=0, label="left open by rounding")
        _scale(right.xaxis, x)
        _scale(right.yaxis, [t for row in models for t in (row.compute_s, row.memory_s)], "s")
        right.set(title=f"Time of a step, {projection.roof.name}", xlabel="parameters")
        right.legend(loc="upper left")
        figure.suptitle(f"{projection.workload}   {projection.domain.model}".strip(), fontsize=9, x=0.01, ha="left")


def _learning_curve(axis: Axes, projection: Projection, rows: dict[str, Requirement]) -> None:
    domain, today, target = projection.domain, rows["today"].samples, rows["target"].samples
    grid = [today * (1.2 * projection.samples.high / today) ** (i / 60) for i in range(61)]
    axis.plot(grid, [domain.error_at(m) for m in grid], color=COLORS[0])
    for samples, name, align in ((today, "today", "left"), (target, "target", "right")):
        axis.plot([samples], [domain.error_at(samples)], "o", color=COLORS[1], markersize=6)
        axis.annotate(
            name,
            (samples, domain.error_at(samples)),
            xytext=(8 if align == "left" else -8, 0),
            textcoords="offset points",
            ha=align,
            va="center",
        )
    axis.axvspan(projection.samples.low, projection.samples.high, color="#999999", alpha=0.15, lw=0)
    axis.set_xscale("log")
    axis.set_yscale("log")
    _scale(axis.xaxis, grid)
    axis.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axis.yaxis.set_minor_formatter(lambda y, _: f"{y:g}")
    axis.set(title=f"Error in {domain.metric}", xlabel=domain.unit)
