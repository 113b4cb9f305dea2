"""Notes on what a capture assumed: all of them in a report, in short elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tensortide.graph import Graph
from tensortide.reports.blocks import Document, Note

__all__ = ["assuming", "brief", "notes"]

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
    return tuple(notes(_few(_ordered(graph))))


def assuming(document: Document, *sources: Graph | Sequence[str]) -> Document:
    """``document`` of results that follow from ``sources`` (steps, or the assumptions of some), which its first section
    names."""
    texts = [text for source in sources for text in (_ordered(source) if isinstance(source, Graph) else source)]
    if not texts:
        return document
    first, *others = document.sections
    first = replace(first, blocks=(*first.blocks, *notes(_few(list(dict.fromkeys(texts))))))
    return replace(document, sections=(first, *others))


def _ordered(graph: Graph) -> list[str]:
    meta = graph.meta
    first = [text for text in (*meta.decisive, *meta.untested) if text in meta.assumptions]
    return [*first, *(text for text in meta.assumptions if text not in first)]


def _few(texts: list[str]) -> list[str]:
    return [f"{texts[0]}; {len(texts) - 1} more: tensortide report lists all"] if len(texts) > _FEW else texts
