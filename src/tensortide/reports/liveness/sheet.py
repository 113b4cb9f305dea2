"""Liveness as CSV: one row per storage (or tensor)."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from tensortide.timelines import offloads, recomputations

if TYPE_CHECKING:
    from tensortide.reports.liveness.study import LivenessStudy

__all__ = ["sheet"]

HEADER = (
    "index",
    "name",
    "role",
    "tensor",
    "nbytes",
    "module",
    "op",
    "op_name",
    "source",
    "persistent",
    "birth",
    "death",
    "uses",
    "active_ns",
    "idle_ns",
    "unused_ns",
    "periods",
    "longest_ns",
    "hideable_periods",
    "hideable_ns",
    "transfer_ns",
    "recompute_ops",
    "recompute_ns",
    "recompute_random",
)


def sheet(study: LivenessStudy) -> str:
    """The rows in the order of the graph's table. Empty: there is none (``birth`` and ``death`` of what is persistent;
    ``recompute_*`` of what cannot be computed again). ``death`` is -1 for what is never read."""
    idle, link = study.idle, study.link
    moved = {row.index: row for row in offloads(idle, link)}
    again = {row.index: row for row in recomputations(idle)}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    for life in idle.lives:
        stored, spent = study.names(life.index), idle.memory_time(life)
        move, more = moved.get(life.index), again.get(life.index)
        n = max(1, life.nbytes)
        writer.writerow(
            [
                *(getattr(stored, name) for name in HEADER[:9]),
                int(life.persistent),
                life.birth,
                life.death,
                len(life.uses),
                *(part // n for part in (spent.active_byte_ns, spent.idle_byte_ns, spent.unused_byte_ns)),
                len(life.periods),
                max((period.time or 0 for period in life.periods), default=0),
                move.periods if move else 0,
                move.hideable_ns if move else 0,
                link.transfer_ns(life.nbytes),
                len(more.ops) if more else None,
                more.cost_ns if more else None,
                len(more.random) if more else None,
            ]
        )
    return out.getvalue()
