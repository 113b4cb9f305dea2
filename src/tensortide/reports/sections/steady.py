"""Section ``steady``: whether the times of repeated steps are stationary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table
from tensortide.reports.pictures import Axis, Limit, Points, Scatter
from tensortide.timing.stationarity import FAR, FINEST

if TYPE_CHECKING:
    from tensortide.studies.timing.steady import Steady
    from tensortide.timing.stationarity import Stationarity

__all__ = ["document", "section"]


def document(found: Steady) -> Document:
    """Show the statistics of the times of steps in a row."""
    return section(found).document(f"Steps of {found.name}", found.where)


def section(found: Steady) -> Section:
    """Make the section of a series of times."""
    return Section("steady", "Stationarity", blocks=tuple(_blocks(found.steps, found.ns, found.without)))


def _blocks(found: Stationarity, ns: Sequence[float], without: Stationarity | None) -> Iterator[AnyBlock]:
    series = [("all steps", found)] + ([("without last batches", without)] if without is not None else [])
    judged = series[-1][1]
    yield Note(text=f"{judged.verdict}.", kind="verdict" if judged.stationary else "failure")
    yield Facts(rows=tuple(_facts(judged)))
    if without is not None:
        yield _compared(series)
    yield _steps(found, judged, ns)
    yield _outliers(judged, ns)
    yield _picture(found, judged)


def _facts(found: Stationarity) -> Iterator[Fact]:
    yield Fact("stationary", "Stationary", found.stationary, "flag")
    yield Fact("steps", "Steps", len(found.steps), "count")
    yield Fact("median", "Median", round(found.median_ns), "ns")
    yield Fact("deviation", "Standard deviation", found.deviation, "share", "by the median absolute deviation")
    yield Fact("drift", "Drift", found.drift, "change", "from first to last step, by the median slope")
    yield Fact("p", "Probability by chance", found.p, "ratio", "of such a trend, by Mann and Kendall")
    limit = f"of neighbours; chance stays below {found.autocorrelation_limit:.2f}"
    yield Fact("autocorrelation", "Autocorrelation", found.autocorrelation, "ratio", limit)
    yield Fact("outliers", "Outliers", len(found.outliers), "count", f"over {FAR:g} standard deviations away")


def _compared(series: Sequence[tuple[str, Stationarity]]) -> Table:
    """Put the series with and without last batches beside each other."""
    found = [one for _, one in series]
    columns = (
        Column("series", "Series", "text", tuple(name for name, _ in series)),
        Column("stationary", "Stationary", "flag", tuple(one.stationary for one in found)),
        Column("steps", "Steps", "count", tuple(len(one.steps) for one in found)),
        Column("median", "Median", "ns", tuple(round(one.median_ns) for one in found)),
        Column("drift", "Drift", "change", tuple(one.drift for one in found)),
        Column("p", "p", "ratio", tuple(one.p for one in found)),
        Column("autocorrelation", "Autocorrelation", "ratio", tuple(one.autocorrelation for one in found)),
        Column("outliers", "Outliers", "count", tuple(len(one.outliers) for one in found)),
    )
    return Table(key="series", title="With and without last batches", columns=columns)


def _steps(found: Stationarity, judged: Stationarity, ns: Sequence[float]) -> Table:
    """List every step, for files."""
    outliers, kept = {one.step for one in judged.outliers}, set(judged.steps)
    columns = (
        Column("step", "Step", "count", found.steps),
        Column("time", "Time", "ns", tuple(round(ns[step]) for step in found.steps)),
        Column("residual", "Off the median", "number", _against(found, judged)),
        Column("outlier", "Outlier", "flag", tuple(step in outliers for step in found.steps)),
        Column("dropped", "Last batch", "flag", tuple(step not in kept for step in found.steps)),
    )
    return Table(key="steps", title="Every step", columns=columns, top=0)


def _outliers(judged: Stationarity, ns: Sequence[float]) -> Table:
    rows = sorted(judged.outliers, key=lambda one: abs(one.deviations), reverse=True)
    columns = (
        Column("step", "Step", "count", tuple(one.step for one in rows)),
        Column("time", "Time", "ns", tuple(round(ns[one.step]) for one in rows)),
        Column("residual", "Off the median", "change", tuple(one.residual for one in rows)),
        Column("deviations", "Standard deviations", "number", tuple(round(one.deviations, 1) for one in rows)),
    )
    return Table(key="outliers", title="Outliers, farthest first", columns=columns, top=10)


def _against(found: Stationarity, judged: Stationarity) -> tuple[float, ...]:
    """Residuals of all steps against the median of those that are judged."""
    return tuple((1 + residual) * found.median_ns / judged.median_ns - 1 for residual in found.residuals)


def _picture(found: Stationarity, judged: Stationarity) -> Scatter:
    """Draw residuals against the step, outliers and last batches apart."""
    outliers, kept = {one.step for one in judged.outliers}, set(judged.steps)
    groups: dict[str, list[tuple[int, float]]] = {"steps": [], "outliers": [], "last batches": []}
    for step, residual in zip(found.steps, _against(found, judged), strict=True):
        name = "outliers" if step in outliers else "steps" if step in kept else "last batches"
        groups[name].append((step, 100 * residual))
    away = 100 * FAR * max(judged.deviation, FINEST)
    return Scatter(
        key="residuals",
        title="Time of each step, off the median",
        x=Axis("step", "count"),
        y=Axis("off the median, %", "number"),
        points=tuple(
            Points(name, tuple(step for step, _ in some), tuple(off for _, off in some))
            for name, some in groups.items()
            if some
        ),
        across=(Limit("outliers above", away), *([Limit("outliers below", -away)] if away < 100 else [])),
    )
