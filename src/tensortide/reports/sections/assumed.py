"""Notes on what a capture assumed: all of them in a report, in short elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensortide.graph import Graph
from tensortide.reports.blocks import Note

__all__ = ["brief", "notes"]

_FEW = 2
"""Assumptions that are listed whole wherever the step is shown."""


def notes(texts: Sequence[str]) -> Iterator[Note]:
    """Yield a note for each assumption."""
    title = "Assumptions"
    for text in texts:
        yield Note(text=text, kind="assumption", title=title)
        title = ""


def brief(graph: Graph) -> tuple[Note, ...]:
    """Notes on the assumptions of ``graph``: those that ops or sizes depend on first, and where to see the rest."""
    meta = graph.meta
    first = [text for text in (*meta.decisive, *meta.untested) if text in meta.assumptions]
    texts = [*first, *(text for text in meta.assumptions if text not in first)]
    if len(texts) > _FEW:
        texts = [f"{texts[0]}; {len(texts) - 1} more: tensortide report lists all"]
    return tuple(notes(texts))
