"""What a caching allocator makes of a step: more than the bytes of its tensors, and what it keeps of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from rich.console import RenderableType

from tensortide.reports.layout import Column, columns_table, heading
from tensortide.units import format_bytes

if TYPE_CHECKING:
    from tensortide.graph.model import Graph


class Allocator(msgspec.Struct, frozen=True, kw_only=True):
    """PyTorch's caching allocator on CUDA, replayed: bytes of blocks handed out and of segments taken from the device.

    ``peak_allocated_bytes`` predicts ``torch.cuda.max_memory_allocated``, ``peak_reserved_bytes`` estimates
    ``torch.cuda.max_memory_reserved``; each op is the first at which the peak is reached (-1: the step has no ops).
    """

    name: str
    peak_allocated_bytes: int
    peak_allocated_op: int
    peak_reserved_bytes: int
    peak_reserved_op: int


def cuda(graph: Graph) -> Allocator:
    """The step of ``graph`` on a fresh allocator, wherever it was captured."""
    from tensortide.memory import reserve

    seen = reserve(graph)
    return Allocator(
        name="cuda",
        peak_allocated_bytes=seen.peak_allocated,
        peak_allocated_op=int(seen.allocated.argmax()) if len(graph) else -1,
        peak_reserved_bytes=seen.peak_reserved,
        peak_reserved_op=int(seen.reserved.argmax()) if len(graph) else -1,
    )


def allocator_view(view: Allocator) -> Iterator[RenderableType]:
    """The peaks as text."""
    yield heading("CUDA caching allocator", "replayed; contexts, libraries' workspaces and other streams come on top")
    rows = [
        ("allocated", format_bytes(view.peak_allocated_bytes), f"op {view.peak_allocated_op}", "max_memory_allocated"),
        ("reserved", format_bytes(view.peak_reserved_bytes), f"op {view.peak_reserved_op}", "max_memory_reserved"),
    ]
    columns = [Column("Bytes"), Column("peak", right=True), Column("at", right=True), Column("predicts torch.cuda.")]
    yield columns_table(columns, rows, first=False)
