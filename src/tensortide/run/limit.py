"""A memory limit as people write it, and the error for an op that does not fit."""

from __future__ import annotations

import enum
import operator
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from tensortide.errors import BudgetInfeasible, PlanError, RunError
from tensortide.plans.remat.schedule import recorded, schedule
from tensortide.replays.remat.budgets import AUTO, one_budget
from tensortide.replays.remat.simulation import UNLIMITED
from tensortide.replays.remat.simulator import least_bytes
from tensortide.run.device import device_of
from tensortide.units import format_bytes

if TYPE_CHECKING:
    from tensortide.graph.model import Graph
    from tensortide.replays.remat.simulation import Shortage
    from tensortide.run.runtime import Runtime

_MARGIN = 0.1
"""Share of the free memory that ``auto`` leaves alone."""
_GIVE = (
    "give whole bytes, a size such as '8GiB', '60%' of the peak of a captured step, '60%act' of the activations at it, "
    "or 'auto'"
)


class Unevictable(enum.Enum):
    """Reasons for which a storage cannot be evicted, as the error for an op that does not fit states them."""

    GIVEN = "existed before the budget was opened (parameters, optimizer state, inputs)"
    PINNED = "cannot be recomputed: inputs were overwritten, or somebody holds the bytes"
    LOCKED = "are needed by this very op or by what has to be recomputed for it"


def budget_bytes(limit: object, device: torch.device, held_bytes: int = 0, graph: Graph | None = None) -> int:
    """Bytes of ``limit``: a number of bytes, a size, a part of the peak of the step ``graph`` or of the activations at
    it, as planners take it, or ``auto``: the ``held_bytes`` that tensors have already, and what is free besides, less a
    margin.

    Raises RunError for anything else, and for a part without a ``graph``.
    """
    if not isinstance(limit, (str, float)):
        return _whole(limit)
    text = str(limit).strip()
    if text == AUTO:
        free, _ = device_of(device).memory()
        if free <= 0:
            raise RunError(f"no memory of {device} is free: a budget of {AUTO!r} has nothing to give out")
        return held_bytes + int(free * (1 - _MARGIN))
    try:
        asked = one_budget(text, many="tensortide.frontier")
    except PlanError as error:
        raise RunError(f"{error}; or {AUTO!r}, what is free") from error
    if asked.nbytes is not None:
        return _whole(asked.nbytes)
    if graph is None:
        raise RunError(
            f"a budget of {limit!r} is of the peak of a step, and none is given: budget({limit!r}, "
            "graph=tensortide.capture(step)), or give a size such as '8GiB', or 'auto' for what is free"
        )
    try:
        return _whole(asked.of_step(graph, graph.index.main_device))
    except PlanError as error:
        raise RunError(str(error)) from error


def _whole(limit: object) -> int:
    try:
        nbytes = operator.index(limit)  # type: ignore[arg-type]  # it refuses what is none
    except TypeError:
        raise RunError(f"{limit!r} is no budget: {_GIVE}") from None
    if isinstance(limit, bool) or not 0 < nbytes <= UNLIMITED:
        raise RunError(f"a budget of {limit} is no number of bytes above 0, and below 2**62")
    return nbytes


def free_bytes(device: str) -> int:
    """Bytes of ``device`` that a budget of ``auto`` has here. Raises NotHere if the machine has no such device."""
    return budget_bytes("auto", device_of(device).device)


def infeasible(runtime: Runtime, func: Any, shortage: Shortage | None) -> BudgetInfeasible:
    """The error for ``func``, which asked for more than there is."""
    assert shortage is not None
    engine = runtime.engine
    nbytes: Counter[Unevictable] = Counter()
    for storage, memory in enumerate(engine.memories):
        if memory is not None and engine.resident[storage]:
            kind = (
                Unevictable.LOCKED
                if not engine.pinned[storage]
                else Unevictable.GIVEN
                if memory.given
                else Unevictable.PINNED
            )
            nbytes[kind] += engine.storage_bytes[storage]
    lines = ",\n".join(f"  {format_bytes(nbytes[kind])} {kind.value}" for kind in Unevictable)
    would_do = shortage.asked_bytes + shortage.held_bytes
    asked, held, budget = map(format_bytes, (shortage.asked_bytes, shortage.held_bytes, shortage.budget_bytes))
    return BudgetInfeasible(
        f"{func} asks for {asked}, and {held} of the budget of {budget} cannot be evicted:\n"
        f"{lines}.\n"
        f"This op alone needs a budget of {format_bytes(would_do)}; later ops of the step may need more"
        f"{_step(runtime)}. {advice(runtime, shortage.asked_bytes)}"
    )


def thrashing(runtime: Runtime, func: Any) -> BudgetInfeasible:
    """The error for ``func``, whose inputs would be recomputed over and over."""
    engine = runtime.engine
    return BudgetInfeasible(
        f"{func} needs over {engine.most_recomputed:,} ops to be recomputed under a budget of "
        f"{format_bytes(engine.budget)}: raise it or try another policy. {advice(runtime)}"
    )


def advice(runtime: Runtime, asked_bytes: int = 0) -> str:
    """Ways on from a budget that is too small, when an op has asked for ``asked_bytes``: the search for the least
    budget, the largest that makes sense, and smaller batches."""
    engine = runtime.engine
    plain = max(engine.plain_peak, engine.memory + engine.away_bytes + asked_bytes)
    return (
        "`tensortide run TARGET --least` finds the least budget of the whole step, and its time. Without evictions "
        f"about {format_bytes(plain)} would have been resident so far; smaller batches need less."
    )


def _step(runtime: Runtime) -> str:
    """The least that the step can do with, if it was captured."""
    if runtime.graph is None:
        return ""
    made = schedule(recorded(runtime.graph, [0] * len(runtime.graph)))
    return f"; no budget below {format_bytes(least_bytes(made).size_bytes)} is enough for the step"
