"""Section ``placement_examples``: files to try placement on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensortide.reports.blocks import Column, Document, Section, Table

if TYPE_CHECKING:
    from tensortide.studies.placement.examples import Example

__all__ = ["document"]


def document(files: Sequence[Example]) -> Document:
    """List ``files``."""
    columns = (
        Column("file", "File", "path", tuple(one.name for one in files)),
        Column("holds", "Holds", "text", tuple(one.holds for one in files), fold=True),
        Column("command", "Try", "code", tuple(one.command for one in files), fold=True),
    )
    table = Table(key="files", columns=columns)
    return Section("placement_examples", "Files", blocks=(table,)).document("Files to try place on")
