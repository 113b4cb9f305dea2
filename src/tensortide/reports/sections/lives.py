"""Section ``lives``: when each storage, or tensor, is live, and how often it lies idle."""

from __future__ import annotations

from tensortide.reports.blocks import Column, Document, Section, Table
from tensortide.timelines.intervals import Lives

__all__ = ["document"]

_TOP = 15


def document(lives: Lives) -> Document:
    """Show every life, the largest first."""
    rows = sorted(lives, key=lambda life: -life.nbytes)
    idle = sum(len(life.intervals) for life in rows)
    table = Table(
        key="lives",
        columns=(
            Column("storage", "Storage", "count", tuple(life.index for life in rows)),
            Column("bytes", "Bytes", "bytes", tuple(life.nbytes for life in rows), bar=60),
            Column("start", "from op", "op", tuple(life.start if life.stop else None for life in rows)),
            Column("end", "to op", "op", tuple(life.stop - 1 if life.stop else None for life in rows)),
            Column("persistent", "Persistent", "flag", tuple(life.persistent for life in rows)),
            Column("uses", "Uses", "count", tuple(len(life.uses) for life in rows)),
            Column("intervals", "idle", "count", tuple(len(life.intervals) for life in rows)),
        ),
        top=_TOP,
    )
    return Section("lives", "Lives", blocks=(table,)).document(
        f"{len(rows):,} lives", f"{idle:,} idle intervals, in which no op touches a storage"
    )
