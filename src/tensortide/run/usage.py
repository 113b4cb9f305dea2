"""Usage: totals of the time under a memory budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tensortide.shown import Show, Shown

COUNTED = ("evictions", "recomputations", "base_ns", "recompute_ns", "arguments_ns", "search_ns")
"""Counters of the engine, which are of a Usage too."""


@dataclass(frozen=True, repr=False)
class Usage(Shown):
    """Totals of the time under a budget. A recomputed op has the time of its kernel, as in its first run."""

    SECTION = "run.of_usage"

    peak_bytes: Annotated[int, Show("Peak")]
    ops: Annotated[int, Show("Ops")]
    evictions: Annotated[int, Show("Evictions")]
    recomputations: Annotated[int, Show("Recomputations")]
    base_ns: Annotated[int, Show("ops of the program", level=1)]
    """Time of the ops of the program."""
    recompute_ns: Annotated[int, Show("recomputed ops", level=1)]
    arguments_ns: Annotated[int, Show("assembling their arguments", level=1)]
    """Time of putting together the arguments of recomputed ops."""
    search_ns: Annotated[int, Show("making room", level=1)]
    """Time of choosing what to evict and making room, without recomputation."""
    open_ns: Annotated[int, Show("Time")]
    """Time that the budget was open."""
    followed_steps: Annotated[int, Show("Steps by plan or record")] = 0
    """Steps that followed the plan to their end and recomputed nothing else; without one, the decisions of the best
    step like them."""
    left_steps: int = 0
    """Steps that departed from it, or recomputed more."""
    unfollowed: str = ""
    """The reason why the first of these was not followed, where there is a plan."""
    run_bytes: int | None = None
    """Bytes that a step takes that follows the plan, where one had too little room: enough as a budget."""
    plain_peak_bytes: Annotated[int, Show("without evictions", level=1)] = 0
    """About the peak if nothing had been evicted: under a budget as large nothing is recomputed."""

    @property
    def slow(self) -> bool:
        """True if recomputation took longer than the ops of the program."""
        return self.recomputation_ns > self.base_ns

    @property
    def recomputation_ns(self) -> Annotated[int, Show("recomputation", level=1)]:
        """Time of recomputed ops, with that of their arguments."""
        return self.recompute_ns + self.arguments_ns

    @property
    def overhead_ns(self) -> Annotated[int, Show("between ops", level=1)]:
        """Rest of the time that the budget was open: the program's own work between ops, and bookkeeping."""
        return max(0, self.open_ns - self.base_ns - self.recomputation_ns - self.search_ns)
