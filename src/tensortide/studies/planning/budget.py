"""The bytes of a budget for one step."""

from __future__ import annotations

from typing import Literal

from tensortide.errors import PlanError, RequestError, TensortideError
from tensortide.graph import Graph
from tensortide.replays.remat.budgets import AUTO, Budget, budget_or_auto


def budget_bytes(budget: Budget | Literal["auto"], graph: Graph, device: str) -> int:
    """Bytes of a budget; of AUTO those that are free on the device here, less a margin."""
    if isinstance(budget, Budget):
        return budget.of_step(graph, device)
    from tensortide.run.limit import free_bytes

    try:
        return free_bytes(device)
    except TensortideError as error:
        raise RequestError(f"--budget {AUTO}: {error}") from error


def typed_bytes(budget: float | str, graph: Graph, device: str) -> int:
    """Bytes of a budget as it is typed: bytes, ``"8GiB"``, a part of the peak (``"60%"``, 0.6) or of the activations at
    it (``"60%act"``), ``"auto"``. Raises PlanError for anything else."""
    if isinstance(budget, int) and not isinstance(budget, bool):
        return budget
    if isinstance(budget, float) and budget > 1:
        raise PlanError(
            f"a budget of {budget:g} is no share of the peak, up to 1, and bytes are a whole number: an int"
        )
    return budget_bytes(budget_or_auto(str(budget), many="tensortide.frontier"), graph, device)
