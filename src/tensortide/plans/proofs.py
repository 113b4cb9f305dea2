"""Proofs of bounds on the time of plans, of every kind, and their check, which takes no solver."""

from __future__ import annotations

from typing import TypeAlias

from tensortide.errors import PlanError
from tensortide.plans.instance import Instance
from tensortide.plans.transfers.bound import Waits, verify_waits
from tensortide.plans.transfers.windows import Windows, verify_windows
from tensortide.plans.under_budget.bound import EachOnce, Exhausted, IdleCover, Moments, verify_idle_cover
from tensortide.plans.under_budget.exhaustive import optimum
from tensortide.plans.under_budget.moments import verify_moments

Proof: TypeAlias = EachOnce | IdleCover | Moments | Exhausted | Waits | Windows
NAMES: dict[type[Proof], str] = {
    EachOnce: "every op once",
    IdleCover: "idle cover",
    Moments: "linear program over moments",
    Exhausted: "exhaustive search",
    Waits: "waits at an op",
    Windows: "linear program over windows",
}


def verify(instance: Instance, proof: Proof) -> int | None:
    """The time in nanoseconds that no plan of the class undercuts, computed from ``proof`` in exact integers; None if
    it proves that there is no plan.

    The class: recomputation, no transfers, and first runs in recorded order; in any order for ``EachOnce`` and a search
    that is ``free``; with transfers for ``EachOnce``, ``Waits`` and ``Windows``. Raises PlanError for a proof that
    does not hold.
    """
    match proof:
        case EachOnce():
            return instance.base_ns
        case IdleCover():
            return verify_idle_cover(instance, proof)
        case Moments():
            return verify_moments(instance, proof)
        case Waits():
            return verify_waits(instance, proof)
        case Windows():
            return verify_windows(instance, proof)
        case Exhausted():
            searched = optimum(instance, proof.budget_bytes, free=proof.free, below_ns=proof.bound_ns)
            if searched.sequence is not None or searched.bound_ns != proof.bound_ns:
                raise PlanError(f"the search for a plan below {proof.bound_ns} ns was not exhaustive")
            return proof.bound_ns
