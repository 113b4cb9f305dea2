"""Sections of what was measured on this machine: whether repeated steps are stationary (``steady``), transfers over
links and the lines fitted to them (``links``), ceilings and the constants of families (``calibration``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Note, Section, Table
from tensortide.reports.of_records import column, fact, facts, fields, table
from tensortide.reports.pictures import Axis, Limit, Points, Scatter
from tensortide.shown import Show
from tensortide.studies.placement.link_sweep import LinkFit, SizeFit
from tensortide.studies.timing.steady import Steady, TimedStep
from tensortide.timing.calibration import DRIFT, Calibration
from tensortide.timing.families import VIEW
from tensortide.timing.models.constants import ANY, NAMES
from tensortide.timing.models.saturating import PRODUCTS
from tensortide.timing.stationarity import FAR, FINEST, Stationarity
from tensortide.timing.store import told
from tensortide.units import format_percent

DOUBTFUL = 0.2
"""Residual above which a line is said not to describe a link."""
_NOTE = (
    "Time = latency + bytes / bandwidth, by least squares of relative errors. Residual: median over sizes of the "
    "distance of the line from the median time; worst: the largest. Out: of the device, to the host or drive."
)
_DOUBT = (
    "bandwidth depends on the size, as where copies stay in caches. Give sizes like those of your tensors with --sizes."
)
NOISY = 0.1
"""Share by which equal products differ from their fastest, above which the machine is taken to be busy."""


def of_steady(found: Steady) -> Document:
    """Show the statistics of the times of steps in a row, with and without last batches, and every step."""
    judged, rows = found.judged, found.timed
    limit = f"of neighbours; chance stays below {judged.autocorrelation_limit:.2f}"
    trend = ("deviation_share", "drift_change", "p", fact(judged, "autocorrelation", limit), "outliers")
    blocks: list[AnyBlock] = [Note(text=f"{judged.verdict}.", kind="verdict" if judged.stationary else "failure")]
    blocks.append(facts(judged, "stationary", "steps", "median_ns", *trend))
    if found.without is not None:
        both = (found.steps, found.without)
        names = Column("series", "Series", "text", ("all steps", "without last batches"))
        figures = ("stationary", "steps", "median_ns", "drift_change", column(Stationarity, both, "p", label="p"))
        title = "With and without last batches"
        more = ("autocorrelation", "outliers")
        blocks.append(table(Stationarity, both, names, *figures, *more, key="series", title=title))
    every, off = ("step", "time_ns", "residual_change"), "Outliers, farthest first"
    far = sorted((row for row in rows if row.outlier), key=lambda row: -abs(row.residual_change))
    blocks.append(table(TimedStep, rows, *every, "outlier", "dropped", key="steps", title="Every step", top=0))
    blocks.append(table(TimedStep, far, *every, "deviations", key="outliers", title=off, top=10))
    made = Section("steady", "Stationarity", blocks=(*blocks, _residuals(found)))
    return made.document(f"Steps of {found.name}", found.where)


def _residuals(found: Steady) -> Scatter:
    """Draw residuals against the step, outliers and last batches apart."""
    groups: dict[str, list[TimedStep]] = {"steps": [], "outliers": [], "last batches": []}
    for row in found.timed:
        groups["outliers" if row.outlier else "last batches" if row.dropped else "steps"].append(row)
    away = 100 * FAR * max(found.judged.deviation_share, FINEST)
    return Scatter(
        key="residuals",
        title="Time of each step, off the median",
        x=Axis("step", "count"),
        y=Axis("off the median, %", "number"),
        points=tuple(
            Points(name, tuple(row.step for row in some), tuple(100 * row.residual_change for row in some))
            for name, some in groups.items()
            if some
        ),
        across=(Limit("outliers above", away), *([Limit("outliers below", -away)] if away < 100 else [])),
    )


def of_links(fits: Sequence[LinkFit], device: str, nominal_bytes_per_s: float | None = None) -> Document:
    """Show the sweep of ``device``."""
    nominal, sizes = nominal_bytes_per_s, [one for fit in fits for one in fit.sizes]
    shares = tuple(fit.bytes_per_s / nominal for fit in fits) if nominal else ()
    doubted = [fit for fit in fits if fit.residual_share > DOUBTFUL]
    far = ", ".join(f"{fit.link} {fit.way} by {format_percent(fit.residual_share)}" for fit in doubted)
    of_nominal = (Column("nominal_share", "Of nominal", "share", shares),) if nominal else ()
    blocks = (
        table(LinkFit, fits, *fields(LinkFit), *of_nominal, key="fits", title="Fitted", heads=2, note=_NOTE),
        *([Note(text=f"The line misses {far}: {_DOUBT}", kind="warning")] if far else []),
        *_bandwidths(fits, nominal),
        table(SizeFit, sizes, key="sweep", title="Every size", heads=3),
    )
    subtitle = "memory copies within the host" if device == "cpu" else f"{device}, pinned host memory"
    return Section("links", "Links measured", blocks=blocks).document("Links measured", subtitle)


def _bandwidths(fits: Sequence[LinkFit], nominal: float | None) -> Iterator[AnyBlock]:
    """Bandwidth against size, one picture for each link."""
    for link in dict.fromkeys(one.link for one in fits):
        yield Scatter(
            key=f"bandwidth.{link}",
            title=f"Bandwidth of {link} against size",
            x=Axis("size, bytes", "amount", log=True),
            y=Axis("bandwidth", "bytes_per_s", log=True),
            points=tuple(points for one in fits if one.link == link for points in _sizes(one.way, one.sizes)),
            across=(Limit("nominal", nominal),) if nominal else (),
        )


def _sizes(way: str, rows: Sequence[SizeFit]) -> tuple[Points, Points]:
    sizes, measured = tuple(row.size_bytes for row in rows), tuple(row.bytes_per_s for row in rows)
    by_line = tuple(row.size_bytes * 1e9 / row.line_ns for row in rows)
    return Points(way, sizes, measured), Points(f"{way}, fitted", sizes, by_line, joined="line")


def of_calibration(found: Calibration) -> Document:
    """Show ``found`` by itself."""
    rates = found.rates
    products = [
        Fact(f"{dtype}_flops_per_s", f"Products, {dtype}", rate, "flops_per_s", level=int(dtype != "float32"))
        for dtype, rate in rates.flops_per_s.items()
    ]
    links = [
        Fact(f"{name.replace(' ', '_')}_bytes_per_s", name.capitalize(), rate, "bytes_per_s", level=1)
        for name, rate in rates.links.items()
    ]
    others = (
        fact(found, "rates.noise_share", "median of equal products, above the fastest"),
        fact(found, "drift_share", "largest change of a ceiling from start to end"),
        fact(found, "between_ns", "work of the host after each"),
        fact(found, "step_share", "half-width of a step's 80 % interval, from steps held out"),
    )
    figures = facts(found, *products, "rates.bytes_per_s", *links, *others, "when", "machine.name as machine")
    remarks = (Note(text=text) for text in _remarks(found))
    made = Section("calibration", "Calibration", blocks=(figures, _families(found), *remarks))
    steps = f"{len(found.steps)} steps, {found.clock} time, with {told(found.machine)}"
    return made.document(f"Calibration of {found.machine.name}", steps)


class _Family(msgspec.Struct, frozen=True):
    """The constants of a family that samples identify (a view has no rates), and by what predictions miss."""

    family: Annotated[str, Show("Family")]
    ops: Annotated[int, Show("Ops")]
    compute_share: Annotated[float | None, Show("Of the FLOP/s")]
    memory_share: Annotated[float | None, Show("Of the bytes/s")]
    launch_ns: Annotated[float | None, Show("Least time")]
    below_share: float | None
    above_share: float | None


def _families(found: Calibration) -> Table:
    rows = []
    for name, row in sorted(found.model.families.items()):
        if name not in (ANY, PRODUCTS):
            known = (one for one in NAMES if row.identified(one) and (name != VIEW or one == "launch_ns"))
            pool = found.pools.get(name)
            missed = (pool.all.below, pool.all.above) if pool else (None, None)
            constants = {one: getattr(row, one) for one in known}
            rows.append(_Family(name, row.count, *map(constants.get, NAMES), *missed))
    return table(_Family, rows, key="families", title="Families of ops", heads=1)


def _remarks(found: Calibration) -> Iterator[str]:
    yield "Shares are of the ceilings above: operands in a cache move faster than memory does."
    if not all(row.identified(constant) for row in found.model.families.values() for constant in NAMES):
        yield "Blank: too few ops say it. Ops that rest on it are predicted near the others, and are extrapolated."
    if found.drift_share > DRIFT:
        moved = format_percent(found.drift_share, 1)
        yield f"Ceilings moved by {moved} while steps were measured, which intervals include: measure an idle machine."
    if found.rates.noise_share > NOISY:
        yield "Equal products took unequal times: other work disturbs the machine; --clock thread counts its own alone."
