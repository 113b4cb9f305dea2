"""Section ``device_map``: what of a placed step its device map cannot say."""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.reports.blocks import Note, Section

__all__ = ["section"]


def section(notes: Sequence[str]) -> Section:
    """Make the section of ``notes`` (``placements.graphs.exports.map_notes``)."""
    return Section("device_map", "Device map", blocks=tuple(Note(text=text, kind="warning") for text in notes))
