"""Usage: totals of the time under a memory budget."""

from __future__ import annotations

from dataclasses import dataclass

from tensortide.shown import Shown

COUNTED = ("evictions", "recomputations", "base_ns", "recompute_ns", "arguments_ns", "search_ns")
"""Counters of the engine, which are of a Usage too."""


@dataclass(frozen=True, repr=False)
class Usage(Shown):
    """Totals of the time under a budget. A recomputed op has the time of its kernel, as in its first run."""

    SECTION = "usage"

    peak_bytes: int
    ops: int
    evictions: int
    recomputations: int
    base_ns: int
    """Time of the ops of the program."""
    recompute_ns: int
    arguments_ns: int
    """Time of putting together the arguments of recomputed ops."""
    search_ns: int
    """Time of choosing what to evict and making room, without recomputation."""
    open_ns: int
    """Time that the budget was open."""
    followed_steps: int = 0
    """Steps that followed the plan to their end; without one, the decisions of the best step like them."""
    left_steps: int = 0
    """Steps that departed from it."""
    plain_peak_bytes: int = 0
    """About the peak if nothing had been evicted: under a budget as large nothing is recomputed."""

    @property
    def slow(self) -> bool:
        """True if recomputation took longer than the ops of the program."""
        return self.recompute_ns + self.arguments_ns > self.base_ns

    @property
    def overhead_ns(self) -> int:
        """Rest of the time that the budget was open: the program's own work between ops, and bookkeeping."""
        return max(0, self.open_ns - self.base_ns - self.recompute_ns - self.arguments_ns - self.search_ns)
