"""What a report shows and the forms it takes: terminal, HTML page, JSON, other tools' formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensortide.cost import Resolver
    from tensortide.graph.model import Graph
    from tensortide.reports.document import Document

__all__ = ["report"]


def report(graph: Graph, *, top: int = 25, strict: bool = False, resolver: Resolver | None = None) -> Document:
    """Everything a report shows about ``graph``; ``top`` bounds the lists of the most expensive ops.

    The loops of a graph that has some are written out: every iteration is there, in costs and in memory over time.

    ``tensortide.reports.terminal.render`` prints the result, ``tensortide.reports.formats.write`` puts it into a file.

    Args:
        strict: an op without a cost rule is an error (UnknownCost).
        resolver: asked for the cost of ops that have no rule; see ``tensortide.cost.count``.
    """
    from tensortide import __version__
    from tensortide.cost import count
    from tensortide.graph import unrolled
    from tensortide.reports.build import build
    from tensortide.timelines import timeline

    graph = unrolled(graph)
    counted = count(graph, strict=strict, resolver=resolver)
    last_use = timeline(graph, lifetimes="last_use")
    return build(graph, counted, timeline(graph), last_use, top=top, version=__version__)
