"""Lower bounds on the time of every plan that recomputes, with proofs that anyone can check without a solver.

*Gap cover.* While an op runs for the first time, what it touches and its workspace is resident, so of the gaps that
cover it enough bytes are away. What was away in a gap was restored in that gap: its makers ran once more, each of which
serves as many gaps as it makes or writes storages. So with ``x`` for the gaps that are away, and a weight w >= 0 for
every op:

    time - base >= sum of cost(g) x(g) >= sum of w(v) excess(v) - sum of max(0, bytes(g) w(g) - cost(g))

where excess(v) is what is over the budget at v if nothing is away, and w(g) the sum of w over the ops that g covers.
Any weights prove a bound; those of the dual of the linear program prove the best.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

import msgspec
import numpy as np

from tensortide.plans.instance import Instance
from tensortide.plans.under_budget.gaps import Gaps, gaps
from tensortide.plans.under_budget.tables import Ints, Tables, tables

SCALE = 1 << 40
"""Weights are integers: nanoseconds per byte, times this."""


class EachOnce(msgspec.Struct, frozen=True, tag="each once"):
    """Every op runs at least once."""


class GapCover(msgspec.Struct, frozen=True, tag="gap cover"):
    """Weights of ops, each of which is over ``budget_bytes`` if nothing is recomputed: ``(op, weight * SCALE)``."""

    budget_bytes: int
    weights: tuple[tuple[int, int], ...]


Proof: TypeAlias = EachOnce | GapCover


def verify(instance: Instance, proof: Proof) -> int:
    """The time in nanoseconds that no plan of the class undercuts, computed from ``proof`` in exact integers.

    The class: first runs in recorded order unless the proof is ``EachOnce``; recomputation anywhere; no transfers.
    """
    if isinstance(proof, EachOnce):
        return instance.base_ns
    t = tables(instance)
    return instance.base_ns + _proved(t, gaps(instance, t), proof)


def costs(t: Tables, found: Gaps) -> list[Fraction]:
    """For each gap the time that it takes at least to restore what is away."""
    serves = (np.diff(t.make_ends) + np.bincount(_op_of(t), t.writes, len(t.ns)).astype(np.int64)).tolist()
    ns = t.ns.tolist()
    return [sum((Fraction(ns[op], serves[op]) for op in makers), Fraction()) for makers in found.makers]


def _op_of(t: Tables) -> Ints:
    return np.repeat(np.arange(len(t.ns)), np.diff(t.touch_ends))


def _proved(t: Tables, found: Gaps, proof: GapCover) -> int:
    weight = [0] * (len(t.ns) + 1)
    total = 0
    need = found.need.tolist()
    for op, scaled in proof.weights:
        weight[op + 1] += max(0, scaled)
        total += max(0, scaled) * (need[op] - proof.budget_bytes)
    for op in range(len(t.ns)):
        weight[op + 1] += weight[op]
    columns = zip(found.storage.tolist(), found.begin.tolist(), found.until.tolist(), costs(t, found), strict=True)
    lost = Fraction()
    for storage, begin, until, cost in columns:
        if until > begin:
            lost += max(Fraction(), int(t.nbytes[storage]) * (weight[until] - weight[begin]) - cost * SCALE)
    return max(0, -((lost - total) // SCALE))
