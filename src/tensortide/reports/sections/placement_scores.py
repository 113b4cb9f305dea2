"""Section ``placement_scores``: given placements of one net on one cluster, with their times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tensortide.reports.blocks import Column, Document, Note, Section, Table

if TYPE_CHECKING:
    from tensortide.studies.placement.placed_net import NetSubject
    from tensortide.studies.placement.scores import Scored

__all__ = ["document", "section"]

NS = 1e6


def document(subject: NetSubject, scores: Sequence[Scored], *, by_time: bool = True) -> Document:
    """Show ``scores`` of placements of ``subject``, the fastest that fits first, or by name."""
    settings, net = subject.settings, subject.net
    subtitle = f"{len(net.order)} layers on {subject.cluster.name}, {settings.mode.name} mode"
    given = {"batch": net.batch(settings.batch_size), "batches": settings.batches}
    return section(scores, by_time=by_time).document(net.name, subtitle, settings=given)


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
    return Section("scores", "Placements", blocks=(Table(key="scores", columns=columns, heads=1), *_partial(shown)))


def _partial(shown: Sequence[Scored]) -> Iterator[Note]:
    """Say which placements lack layers, and which name layers that the net does not have."""
    missing = [f"{one.path.name} lacks {one.missing} of {len(one.run.net.order)}" for one in shown if one.missing]
    if missing:
        text = f"Layers that a placement lacks keep the device of the net, or else 0: {_listed(missing)}."
        yield Note(text=text, kind="warning")
    extra = [f"{one.path.name} has {one.extra}" for one in shown if one.extra]
    if extra:
        yield Note(text=f"Names that are no layer of the net are ignored: {_listed(extra)}.", kind="warning")


def _listed(parts: Sequence[str], most: int = 5) -> str:
    more = [f"and {len(parts) - most} more"] if len(parts) > most else []
    return ", ".join([*parts[:most], *more])
