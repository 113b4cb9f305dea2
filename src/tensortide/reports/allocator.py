"""A step replayed on an allocator: its peaks, and the counters that they predict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from rich.console import RenderableType

from tensortide.memory import allocator, reserve
from tensortide.reports.layout import Column, columns_table, heading
from tensortide.units import format_bytes

if TYPE_CHECKING:
    from tensortide.graph.model import Graph


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """Peaks of an allocator over a step: bytes of blocks handed out, and bytes taken from the device.

    Each op is the first at which the peak is reached (-1: the step has no ops).
    """

    name: str
    peak_allocated_bytes: int
    peak_allocated_op: int
    peak_reserved_bytes: int
    peak_reserved_op: int


def replayed(graph: Graph, name: str) -> Replayed:
    """The step of ``graph`` on the allocator ``name``, fresh, on any device the step was captured on."""
    seen = reserve(graph, name)
    return Replayed(
        name=name,
        peak_allocated_bytes=seen.peak_allocated,
        peak_allocated_op=int(seen.allocated.argmax()) if len(graph) else -1,
        peak_reserved_bytes=seen.peak_reserved,
        peak_reserved_op=int(seen.reserved.argmax()) if len(graph) else -1,
    )


def allocator_view(view: Replayed) -> Iterator[RenderableType]:
    """The peaks as text."""
    row = allocator(view.name)
    yield heading(row.title, row.caveat)
    rows = [
        ("allocated", format_bytes(view.peak_allocated_bytes), f"op {view.peak_allocated_op}", row.counters[0]),
        ("reserved", format_bytes(view.peak_reserved_bytes), f"op {view.peak_reserved_op}", row.counters[1]),
    ]
    columns = [Column("Bytes"), Column("peak", right=True), Column("at", right=True)]
    columns += [Column("predicts")] if any(row.counters) else []
    yield columns_table(columns, [cells[: len(columns)] for cells in rows], first=False)
