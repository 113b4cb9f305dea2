"""Lower bounds on the time of every plan that recomputes, with proofs that anyone can check without a solver.

*Idle cover.* While an op runs for the first time, what it touches and its workspace is resident, so of the idle
intervals that cover it enough bytes are away. What was away in an interval was restored in it: its makers ran once
more, each of which serves as many intervals as it makes or writes storages. So with ``x`` for the intervals that are
away, and a weight w >= 0 for every op:

    time - base >= sum of cost(g) x(g) >= sum of w(v) excess(v) - sum of max(0, bytes(g) w(g) - cost(g))

where excess(v) is what is over the budget at v if nothing is away, and w(g) the sum of w over the ops that g covers.
Any weights prove a bound; those of the dual of the linear program prove the best.

*Closures.* A maker may read a storage that is dead when the interval begins: no first run touches it any more. Then
that one was restored too, or it was resident wherever the storage of the interval was away. If it is no smaller, the
plan can be counted as one in which the storage of the interval is resident instead. So its makers are part of the cost
of the interval, and of the others of the same storage, which are stretches of time of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, TypeAlias

import msgspec
import numpy as np

from tensortide.plans.instance import Instance
from tensortide.plans.linear_program import solved
from tensortide.plans.under_budget.idle import IdleIntervals, idle_intervals
from tensortide.plans.under_budget.tables import Floats, Ints, Restorable, Tables, Value, tables
from tensortide.search_limit import Look, SearchLimit, no_look

SCALE = 1 << 40
"""Weights are integers: nanoseconds per byte, times this."""


class EachOnce(msgspec.Struct, frozen=True, tag="each once"):
    """Every op runs at least once."""


class IdleCover(msgspec.Struct, frozen=True, tag="idle cover"):
    """Weights of ops at which ``budget_bytes`` is exceeded if nothing is recomputed: ``(op, weight * SCALE)``."""

    budget_bytes: int
    weights: tuple[tuple[int, int], ...]


class Moments(msgspec.Struct, frozen=True, tag="moments"):
    """Weights of the inequalities over ``moments``, which are ops: ``(number of the inequality, weight * SCALE)``."""

    budget_bytes: int
    moments: tuple[int, ...]
    weights: tuple[tuple[int, int], ...]


class Exhausted(msgspec.Struct, frozen=True, tag="exhausted"):
    """Every plan within ``budget_bytes`` that takes less than ``bound_ns`` was searched for (None: every plan at all),
    with first runs in recorded order or in any (``free``), and there is none."""

    budget_bytes: int
    free: bool
    bound_ns: int | None


RecomputeProof: TypeAlias = EachOnce | IdleCover | Moments | Exhausted
"""A proof about plans that recompute; ``plans.proofs`` has all kinds."""


def verify_idle_cover(instance: Instance, proof: IdleCover) -> int:
    """The time that no plan undercuts that recomputes, without transfers, and has first runs in recorded order."""
    t = tables(instance)
    found = idle_intervals(instance, t)
    return instance.base_ns + _proved(t, found, costs(instance, t, found), proof)


def idle_cover(
    instance: Instance,
    t: Tables,
    found: IdleIntervals,
    budget_bytes: int,
    limit: SearchLimit | None = None,
    look: Look = no_look,
) -> tuple[int, IdleCover]:
    """The best bound that idle cover proves, in nanoseconds, and its proof.

    The weights are those of the dual of the linear program where SciPy is installed, else of an ascent along
    subgradients, which comes close and is taken at the end of ``limit``, too, of which an iteration of the solver
    spends the number of ops. ``look`` is called now and then; it may raise.
    """
    exact = costs(instance, t, found)
    cost = np.array([float(x) for x in exact])
    over = found.need - budget_bytes
    if over.max(initial=0) <= 0:
        return instance.base_ns, IdleCover(budget_bytes, ())
    weights = _dual(t, found, cost, over, limit or SearchLimit(), look)
    scaled = np.floor(np.maximum(weights, 0) * SCALE).astype(np.int64)
    ops = scaled.nonzero()[0]
    proof = IdleCover(budget_bytes, tuple(zip(ops.tolist(), scaled[ops].tolist(), strict=True)))
    return instance.base_ns + _proved(t, found, exact, proof), proof


def costs(instance: Instance, t: Tables, found: IdleIntervals) -> list[Fraction]:
    """For each idle interval the time that it takes at least to restore what is away.

    An op that serves several storages is shared among them in proportion to their bytes.
    """
    closures = _closures(instance, t, found)
    restorable = Restorable(instance, t)
    users = [(int(found.storage[g]), makers) for g, makers in enumerate(found.makers)]
    dead = [(value.storage, restorable.makers(value)) for values in closures for value in values]
    nbytes = t.nbytes.tolist()
    served: list[set[int]] = [set() for _ in instance.ops]
    for storage, makers in (*users, *dead):
        for op in makers:
            served[op].add(storage)
    among = [sum(nbytes[storage] for storage in storages) for storages in served]

    def cost(storage: int, makers: Iterable[int]) -> Fraction:
        return sum((Fraction(instance.ops[op].ns * nbytes[storage], among[op]) for op in makers), Fraction())

    return [
        cost(storage, makers) + sum((cost(v.storage, restorable.makers(v)) for v in values), Fraction())
        for (storage, makers), values in zip(users, closures, strict=True)
    ]


def _closures(instance: Instance, t: Tables, found: IdleIntervals) -> list[list[Value]]:
    """For each interval the values that are dead when it begins, no smaller than it, and restored with it.

    A dead storage stands with the intervals of one other, the largest: it is resident in the stead of that one only,
    and a run that makes it falls into one of them at most."""
    restorable = Restorable(instance, t)
    last = [-1] * len(t.nbytes)
    for op, record in enumerate(instance.ops):
        for storage in record.touches:
            last[storage] = op
    closures: list[list[Value]] = [[] for _ in range(len(found))]
    owner: dict[int, int] = {}
    for g in np.argsort(-t.nbytes[found.storage], kind="stable").tolist():
        mine, begin = int(found.storage[g]), int(found.begin[g])
        waiting, seen = list(found.makers[g]), {mine}
        while waiting:
            for value in restorable.reads[waiting.pop()]:
                storage = instance.storages[value.storage]
                is_dead = last[value.storage] < begin and not (storage.stays or storage.given)
                is_free = value.storage not in seen and owner.get(value.storage, mine) == mine
                if is_dead and is_free and t.nbytes[value.storage] >= t.nbytes[mine]:
                    seen.add(value.storage)
                    owner[value.storage] = mine
                    closures[g].append(value)
                    waiting += restorable.makers(value)
    return closures


def _dual(t: Tables, found: IdleIntervals, cost: Floats, over: Ints, limit: SearchLimit, look: Look) -> Floats:
    """Weights of ops, in nanoseconds per byte."""
    useful = (found.until > found.begin) & (t.nbytes[found.storage] > 0)
    nbytes = t.nbytes[found.storage][useful].astype(float)
    begin, until, cost = found.begin[useful], found.until[useful], cost[useful]
    try:
        from scipy.sparse import coo_array
    except ImportError:
        return _ascent(nbytes, begin, until, cost, over, look)
    ops, count = len(over), len(nbytes)
    unit = float(nbytes.max(initial=1.0))
    # the running sum of bytes that are away: away[v] - away[v - 1] = what begins at v less what ends there
    rows = np.concatenate([begin, until[until < ops], np.arange(ops), np.arange(1, ops)])
    columns = np.concatenate(
        [np.arange(count), np.flatnonzero(until < ops), count + np.arange(ops), count + np.arange(ops - 1)]
    )
    entries = np.concatenate([nbytes / unit, -nbytes[until < ops] / unit, -np.ones(ops), np.ones(ops - 1)])
    matrix: Any = coo_array((entries, (rows, columns)), shape=(ops, count + ops)).tocsc()
    scale = float(cost.max(initial=1.0)) or 1.0
    objective = np.concatenate([cost / scale, np.zeros(ops)])
    upper = np.concatenate([np.ones(count), np.full(ops, np.inf)])
    lower = np.concatenate([np.zeros(count), np.maximum(over, 0) / unit])
    optimum = solved(
        objective,
        limit=limit,
        iteration=ops,
        look=look,
        A_eq=matrix,
        b_eq=np.zeros(ops),
        bounds=np.column_stack([lower, upper]),
    )
    if optimum is None:
        return _ascent(nbytes, begin, until, cost, over, look)
    dual: Floats = np.maximum(optimum.lower.marginals[count:], 0) * (over > 0) * (scale / unit)
    return dual


_ASCENTS = 3000
"""Steps of the ascent."""


def _ascent(nbytes: Floats, begin: Ints, until: Ints, cost: Floats, over: Ints, look: Look) -> Floats:
    """Weights that come close to the best, without a solver."""
    ops = len(over)
    excess = over.astype(float)
    weights = np.zeros(ops)
    best, kept = 0.0, weights
    step = float(np.median(cost / np.maximum(nbytes * (until - begin), 1.0))) if len(cost) else 0.0
    for turn in range(_ASCENTS):
        look()
        sums = np.concatenate([[0.0], np.cumsum(weights)])
        gain = nbytes * (sums[until] - sums[begin]) - cost
        away = gain > 0
        value = float(weights @ excess - gain[away].sum())
        if value > best:
            best, kept = value, weights.copy()
        change = np.zeros(ops + 1)
        np.add.at(change, begin[away], nbytes[away])
        np.add.at(change, until[away], -nbytes[away])
        slope = excess - np.cumsum(change)[:ops]
        norm = float(np.abs(slope[(over > 0)]).max(initial=0.0))
        if norm == 0:
            break
        weights = np.maximum(0, weights + step * 20 / (1 + turn / 30) * slope / norm) * (over > 0)
    return kept


def _proved(t: Tables, found: IdleIntervals, cost: list[Fraction], proof: IdleCover) -> int:
    weight = [0] * (len(t.ns) + 1)
    total = 0
    need = found.need.tolist()
    for op, scaled in proof.weights:
        weight[op + 1] += max(0, scaled)
        total += max(0, scaled) * (need[op] - proof.budget_bytes)
    for op in range(len(t.ns)):
        weight[op + 1] += weight[op]
    columns = zip(found.storage.tolist(), found.begin.tolist(), found.until.tolist(), cost, strict=True)
    lost = Fraction()
    for storage, begin, until, least in columns:
        if until > begin:
            lost += max(Fraction(), int(t.nbytes[storage]) * (weight[until] - weight[begin]) - least * SCALE)
    return max(0, -((lost - total) // SCALE))
