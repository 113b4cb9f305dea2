"""Errors of a live run: for ops whose writes it cannot follow, before they run, and for ops that do not fit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tensortide.errors import BudgetInfeasible
from tensortide.units import format_bytes

if TYPE_CHECKING:
    from tensortide.replays.remat.simulation import Shortage
    from tensortide.run.runtime import Runtime

_KNOWN = frozenset(
    {
        *("aten", "prim", "prims", "inductor_prims", "debugprims", "rngprims", "profiler"),
        *("quantized", "_quantized", "quantized_decomposed", "sparse"),
        *("mkl", "mkldnn", "mkldnn_prepacked", "onednn", "prepacked", "xnnpack"),
    }
)
"""Namespaces whose schemas say truly what an op writes, and whose ops are done when they return."""
_COMMUNICATION = frozenset(
    {"c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor", "symm_mem"}
)
_SYNCHRONIZATION = frozenset({"c10d::barrier", "c10d::monitored_barrier_"})
_INSTEAD = "call it outside of `with tensortide.budget(...)`"


def refusal(func: Any) -> str:
    """Reason why the op overload ``func`` must not run under a budget, on one line; empty if it may.

    Communication goes on after its op has returned, and its schemas declare no writes.
    """
    schema = func._schema
    namespace = schema.name.partition("::")[0]
    if namespace in _KNOWN or schema.name in _SYNCHRONIZATION:
        return ""
    if namespace in _COMMUNICATION:
        return (
            f"{func} communicates: a memory budget cannot follow what it reads and writes, and results could be wrong; "
            f"{_INSTEAD}"
        )
    if _writes(schema):
        return (
            f"{func} writes memory: a memory budget cannot follow the writes of ops of {namespace!r}, and results "
            f"could be wrong; let it return new tensors, or {_INSTEAD}"
        )
    return ""


def _writes(schema: Any) -> bool:
    """True if the schema declares a write or, inferred from a signature, hides one: such an op ends in an underscore
    or returns nothing."""
    if schema.is_mutable:
        return True
    takes = any("Tensor" in str(argument.type) for argument in schema.arguments)
    return takes and (not schema.returns or schema.name.endswith("_"))


def infeasible(runtime: Runtime, func: Any, shortage: Shortage | None) -> BudgetInfeasible:
    """The error for ``func``, which asked for more than there is."""
    assert shortage is not None
    engine = runtime.engine
    nbytes: Counter[str] = Counter()
    for storage, memory in enumerate(engine.memories):
        if memory is not None and engine.resident[storage]:
            kind = "locked" if not engine.pinned[storage] else "given" if memory.given else "made"
            nbytes[kind] += engine.storage_bytes[storage]
    given, made, locked = (format_bytes(nbytes[kind]) for kind in ("given", "made", "locked"))
    would_do = shortage.asked_bytes + shortage.held_bytes
    asked, held, budget = map(format_bytes, (shortage.asked_bytes, shortage.held_bytes, shortage.budget_bytes))
    return BudgetInfeasible(
        f"{func} asks for {asked}, and {held} of the budget of {budget} cannot be evicted:\n"
        f"  {given} existed before the budget was opened (parameters, optimizer state, inputs),\n"
        f"  {made} cannot be recomputed: inputs were overwritten, or somebody holds the bytes,\n"
        f"  {locked} are needed by this very op or by what has to be recomputed for it.\n"
        f"A budget of {format_bytes(would_do)} gets past this op. Or make the batch smaller."
    )
