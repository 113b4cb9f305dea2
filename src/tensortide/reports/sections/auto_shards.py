"""Section ``auto_shards``: the divisions of modules that were tried, what a short search found, which were kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensortide.reports.blocks import Column, Note, Section, Table

if TYPE_CHECKING:
    from tensortide.placements.graphs.auto_shards import AutoSharded

__all__ = ["section"]


def section(found: AutoSharded) -> Section:
    """Make the section."""
    tried = found.tried
    columns = (
        Column("shards", "Modules", "path", tuple(", ".join(map(str, each.shards)) for each in tried), fold=True),
        Column("work", "of the work", "share", tuple(each.share for each in tried)),
        Column(
            "step",
            "Step, short search",
            "ns",
            tuple(None if s is None or s == float("inf") else round(s) for s in (each.step_ns for each in tried)),
        ),
        Column("kept", "Kept", "text", tuple("yes" if each.kept else "no" for each in tried)),
        Column("why", "Why not", "text", tuple(each.why for each in tried), fold=True),
    )
    shards = " ".join(f"--shard '{shard}'" for shard in found.shards)
    text = f"Kept: {shards}" if shards else "No division of a module was found to help."
    table = Table(key="tried", title="Divisions tried", columns=columns)
    return Section("auto_shards", "Modules to divide", blocks=(Note(text=text), *((table,) if tried else ())))
