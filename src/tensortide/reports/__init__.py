"""Contents and forms of a report: blocks, their sections, and a renderer for each medium."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensortide.cost import Resolver
    from tensortide.graph.model import Graph
    from tensortide.reports.blocks import Document
    from tensortide.timing import Durations

__all__ = ["report"]


def report(
    graph: Graph,
    *,
    durations: Durations | None = None,
    top: int = 15,
    depth: int = 3,
    strict: bool = False,
    resolver: Resolver | None = None,
) -> Document:
    """Report what the step ``graph`` costs: every section that has something to show about it.

    The loops of a graph that has some are written out: every iteration counts, in costs and in memory over time. The
    Document prints itself with rich and shows itself in a notebook; ``tensortide.reports.render`` has its other forms.

    Args:
        durations: of the ops; without them the axis of curves is the number of the op.
        top: rows that text shows of each list.
        depth: levels of modules that text shows.
        strict: an op without a cost rule is an error (UnknownCost).
        resolver: asked for the cost of ops that have no rule; see ``tensortide.cost.count``.
    """
    from tensortide.graph import unrolled
    from tensortide.reports.sections import Step, sections_of

    step = Step(unrolled(graph), durations, resolver, strict, top, depth)
    return step.document(*sections_of(step))
