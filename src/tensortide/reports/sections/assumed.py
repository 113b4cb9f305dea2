"""Notes on what a capture assumed: all of them in a report, in short elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tensortide.graph import Graph
from tensortide.reports.blocks import Document, Note

_FEW = 2
"""Assumptions that are listed whole wherever the step is shown."""


def notes(texts: Sequence[str]) -> tuple[Note, ...]:
    """Make a note of each assumption."""
    return tuple(Note(text=text, kind="assumption", title="" if at else "Assumptions") for at, text in enumerate(texts))


def brief(*sources: Graph | Sequence[str]) -> tuple[Note, ...]:
    """Notes on the assumptions of steps, or on some: those that ops or sizes depend on first, and where to see the
    rest."""
    texts = dict[str, None]()
    for source in sources:
        every = source.meta.assumptions if isinstance(source, Graph) else source
        first = (*source.meta.decisive, *source.meta.untested) if isinstance(source, Graph) else ()
        texts |= dict.fromkeys((*(text for text in first if text in every), *every))
    few = list(texts)
    return notes(few if len(few) <= _FEW else [f"{few[0]}; {len(few) - 1} more: tensortide report --full lists all"])


def assuming(document: Document, *sources: Graph | Sequence[str]) -> Document:
    """``document`` of results that follow from ``sources``, whose assumptions its first section names in short."""
    first, *others = document.sections
    return replace(document, sections=(replace(first, blocks=(*first.blocks, *brief(*sources))), *others))
