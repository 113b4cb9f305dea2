"""Section ``link_sweep``: measured times of transfers over links, and the lines fitted to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table
from tensortide.reports.pictures import Axis, Limit, Points, Scatter
from tensortide.studies.placement.link_sweep import median_ns
from tensortide.units import format_percent

if TYPE_CHECKING:
    from tensortide.run.link_speed import Sample
    from tensortide.studies.placement.link_sweep import LinkFit

__all__ = ["document"]

DOUBTFUL = 0.2
"""Residual above which a line is said not to describe a link."""


def document(fits: Sequence[LinkFit], device: str, nominal_bytes_per_s: float | None = None) -> Document:
    """Show the sweep of ``device``."""
    blocks = (_fits(fits, nominal_bytes_per_s), *_doubts(fits), *_pictures(fits, nominal_bytes_per_s), _sweep(fits))
    subtitle = "memory copies within the host" if device == "cpu" else f"{device}, pinned host memory"
    return Section("links", "Links measured", blocks=blocks).document("Links measured", subtitle)


def _fits(fits: Sequence[LinkFit], nominal: float | None) -> Table:
    columns = [
        Column("link", "Link", "name", tuple(one.link for one in fits)),
        Column("way", "Direction", "name", tuple(one.way for one in fits)),
        Column("bandwidth", "Bandwidth, B/s", "bytes_per_s", tuple(one.bytes_per_s for one in fits)),
        Column("latency", "Latency", "ns", tuple(round(one.latency_ns) for one in fits)),
        Column("residual", "Residual", "share", tuple(one.residual for one in fits)),
        Column("worst", "Worst", "share", tuple(one.worst for one in fits)),
    ]
    if nominal:
        columns.append(Column("nominal", "Of nominal", "share", tuple(one.bytes_per_s / nominal for one in fits)))
    note = (
        "Time = latency + bytes / bandwidth, by least squares of relative errors. Residual: median over sizes of the "
    )
    note += "distance of the line from the median time; worst: the largest. Out: of the device, to the host or drive."
    return Table(key="fits", title="Fitted", columns=tuple(columns), heads=2, note=note)


def _doubts(fits: Sequence[LinkFit]) -> Iterator[AnyBlock]:
    far = [f"{one.link} {one.way} by {format_percent(one.residual)}" for one in fits if one.residual > DOUBTFUL]
    if far:
        text = f"The line misses {', '.join(far)}: bandwidth depends on the size, as where copies stay in caches. Give "
        yield Note(text=text + "sizes like those of your tensors with --sizes.", kind="warning")


def _sweep(fits: Sequence[LinkFit]) -> Table:
    rows = [(fit, sample) for fit in fits for sample in fit.samples]
    medians = [median_ns(sample) for _, sample in rows]
    lines = [fit.time_ns(sample.nbytes) for fit, sample in rows]
    columns = (
        Column("link", "Link", "name", tuple(fit.link for fit, _ in rows)),
        Column("way", "Direction", "name", tuple(fit.way for fit, _ in rows)),
        Column("size_bytes", "Size, B", "amount", tuple(sample.nbytes for _, sample in rows)),
        Column("median", "Median time", "ns", tuple(round(ns) for ns in medians)),
        Column("bandwidth", "Bandwidth, B/s", "bytes_per_s", tuple(_rate(sample) for _, sample in rows)),
        Column("line", "Fitted time", "ns", tuple(round(ns) for ns in lines), at_width=80),
        Column("least", "Fastest", "ns", tuple(min(sample.times_ns) for _, sample in rows), at_width=100),
        Column("repeats", "Repeats", "count", tuple(len(sample.times_ns) for _, sample in rows), at_width=90),
    )
    return Table(key="sweep", title="Every size", columns=columns, heads=3)


def _pictures(fits: Sequence[LinkFit], nominal: float | None) -> Iterator[AnyBlock]:
    """Bandwidth against size, one picture for each link."""
    for link in dict.fromkeys(one.link for one in fits):
        yield Scatter(
            key=f"bandwidth.{link}",
            title=f"Bandwidth of {link} against size",
            x=Axis("size, bytes", "amount", log=True),
            y=Axis("bandwidth", "bytes_per_s", log=True),
            points=tuple(points for one in fits if one.link == link for points in _points(one)),
            across=(Limit("nominal", nominal),) if nominal else (),
        )


def _points(fit: LinkFit) -> tuple[Points, Points]:
    sizes = tuple(sample.nbytes for sample in fit.samples)
    by_line = tuple(size * 1e9 / fit.time_ns(size) for size in sizes)
    measured = tuple(_rate(sample) for sample in fit.samples)
    return Points(fit.way, sizes, measured), Points(f"{fit.way}, fitted", sizes, by_line, joined="line")


def _rate(sample: Sample) -> float:
    return sample.nbytes * 1e9 / median_ns(sample)
