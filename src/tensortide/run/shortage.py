"""The error for an op that does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensortide.errors import BudgetInfeasible
from tensortide.units import format_bytes

if TYPE_CHECKING:
    from tensortide.replays.remat.outcome import Shortage
    from tensortide.run.runtime import Runtime


def infeasible(runtime: Runtime, func: Any, shortage: Shortage | None) -> BudgetInfeasible:
    """The error for ``func``, which asked for more than there is."""
    assert shortage is not None
    engine = runtime.engine
    given = made = locked = 0
    for storage, memory in enumerate(engine.memories):
        nbytes = engine.storage_bytes[storage]
        if memory is None or not engine.resident[storage]:
            continue
        if not engine.pinned[storage]:
            locked += nbytes
        elif memory.given:
            given += nbytes
        else:
            made += nbytes
    would_do = shortage.asked_bytes + shortage.held_bytes
    asked, held, budget = map(format_bytes, (shortage.asked_bytes, shortage.held_bytes, shortage.budget_bytes))
    return BudgetInfeasible(
        f"{func} asks for {asked}, and {held} of the budget of {budget} cannot be evicted:\n"
        f"  {format_bytes(given)} existed before the budget was opened (parameters, optimizer state, inputs),\n"
        f"  {format_bytes(made)} cannot be recomputed: inputs were overwritten, or somebody holds the bytes,\n"
        f"  {format_bytes(locked)} are needed by this very op or by what has to be recomputed for it.\n"
        f"A budget of {format_bytes(would_do)} gets past this op. Or make the batch smaller."
    )
