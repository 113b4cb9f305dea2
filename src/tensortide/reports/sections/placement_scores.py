"""Section ``placement_scores``: given placements of one net on one cluster, with their times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensortide.reports.blocks import Column, Document, Section, Table

if TYPE_CHECKING:
    from tensortide.studies.placement.placing import Asked
    from tensortide.studies.placement.scores import Scored

__all__ = ["document", "section"]

NS = 1e6


def document(asked: Asked, scores: Sequence[Scored], *, by_time: bool = True) -> Document:
    """Show ``scores`` of placements of ``asked``, the fastest that fits first, or by name."""
    subtitle = f"{len(asked.net.order)} layers on {asked.cluster.name}, {asked.settings.mode.name} mode"
    return section(scores, by_time=by_time).document(asked.net.name, subtitle)


def section(scores: Sequence[Scored], *, by_time: bool = True) -> Section:
    """Make the section of ``scores``."""
    shown = sorted(scores, key=lambda one: (not one.run.fits, one.run.makespan)) if by_time else [*scores]
    columns = (
        Column("placement", "Placement", "path", tuple(str(one.path) for one in shown), fold=True),
        Column("time", "Time", "ns", tuple(round(one.run.makespan * NS) for one in shown)),
        Column("fits", "Fits", "flag", tuple(one.run.fits for one in shown)),
        Column("over", "Over memory", "bytes", tuple(round(sum(one.run.over_use)) for one in shown), zero="-"),
        Column("devices", "Devices", "count", tuple(len(set(one.run.placement)) for one in shown)),
        Column("jumps", "Edges across", "count", tuple(one.run.jumps for one in shown)),
        Column("extra", "Unknown names", "count", tuple(one.extra for one in shown), zero="-", at_width=110),
        Column("missing", "Missing layers", "count", tuple(one.missing for one in shown), zero="-", at_width=110),
    )
    return Section("scores", "Placements", blocks=(Table(key="scores", columns=columns, heads=1),))
