"""Section ``usage``: totals of the time under a memory budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensortide.reports.blocks import Document, Fact, Facts, Section
from tensortide.units import format_bytes

if TYPE_CHECKING:
    from tensortide.run.usage import Usage

__all__ = ["document"]


def document(usage: Usage) -> Document:
    """Show what was done to stay within the budget, and the time that it took."""
    facts = (
        Fact("peak", "Peak memory", usage.peak_bytes, "bytes"),
        Fact("plain_peak", "without evictions", usage.plain_peak_bytes, "bytes", "about", level=1),
        Fact("ops", "Ops", usage.ops, "count"),
        Fact("evictions", "Evictions", usage.evictions, "count"),
        Fact("recomputations", "Recomputations", usage.recomputations, "count"),
        Fact("open", "Time", usage.open_ns, "ns", "that the budget was open"),
        Fact("base", "ops of the program", usage.base_ns, "ns", level=1),
        Fact("recompute", "recomputation", usage.recompute_ns + usage.arguments_ns, "ns", level=1),
        Fact("search", "choosing evictions", usage.search_ns, "ns", level=1),
        Fact("overhead", "rest", usage.overhead_ns, "ns", "the program between ops, and bookkeeping", level=1),
    )
    title = f"{format_bytes(usage.peak_bytes)} at most, {usage.evictions:,} evictions"
    return Section("usage", "Usage", blocks=(Facts(rows=facts),)).document(title)
