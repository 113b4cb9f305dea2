"""Ops as a reader knows them."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from tensortide.reports.simulation.records import Place

if TYPE_CHECKING:
    from tensortide.graph.model import Graph


def place(graph: Graph, op: int) -> Place:
    """Op ``op`` of ``graph``, for a reader; -1 is what exists before the step."""
    if op < 0:
        return Place(op=op, name="what exists before the step", module="", source="")
    view = graph[op]
    source = f"{PurePath(view.source.file).name}:{view.source.line}" if view.source else ""
    return Place(op=op, name=view.name, module=view.module, source=source)
