"""Section ``placement_algorithms``: the searches for placements and their options."""

from __future__ import annotations

import dataclasses

from tensortide.reports.blocks import Column, Document, Section, Table

__all__ = ["document", "section"]


def document() -> Document:
    """List the algorithms."""
    return section().document("Searches for placements")


def section() -> Section:
    """Make the section."""
    from tensortide.placements.search import ALGORITHMS

    options = [", ".join(_shown(field) for field in dataclasses.fields(kind)) or "-" for kind in ALGORITHMS.values()]
    columns = (
        Column("algorithm", "Algorithm", "code", tuple(ALGORITHMS)),
        Column("about", "Search", "text", tuple(kind.about for kind in ALGORITHMS.values()), fold=True),
        Column("options", "Options", "code", tuple(options), fold=True),
    )
    return Section("algorithms", "Algorithms", blocks=(Table(key="algorithms", columns=columns),))


def _shown(field: dataclasses.Field[object]) -> str:
    """The option with its default; one that only Python can give by its name."""
    simple = isinstance(field.default, int | float | str | tuple)
    shown = f"{field.default:.4g}" if isinstance(field.default, float) else field.default
    return f"{field.name}={shown}" if simple else field.name
