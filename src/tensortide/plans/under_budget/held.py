"""A planning instance with what a program that follows a plan has resident, whatever the plan says.

A program may refer to a storage that no op touches any more: to gradients until ``zero_grad``, to a loss until it is
assigned again. What can be recomputed then may be evicted all the same; what cannot is resident until it is released.
And a program has one version of each storage: what was computed from an older one cannot be recomputed for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

from tensortide.graph.model import Graph
from tensortide.memory.lifetimes import Residence, residences
from tensortide.plans.instance import Instance
from tensortide.plans.model import Plan
from tensortide.plans.under_budget.idle import idle_intervals
from tensortide.plans.under_budget.sequence import Evaluated, evaluate, firsts, sequence_of
from tensortide.plans.under_budget.tables import NONE, Ints, Restorable, Tables, Value, tables


class _InProgram(Restorable):
    """Restorable for a program that releases storages before the ops ``releases``."""

    def __init__(self, instance: Instance, t: Tables, releases: Sequence[int]) -> None:
        super().__init__(instance, t)
        self.releases = releases

    def reach(self, value: Value) -> int:
        return min(self.held(value), max(self.releases[value.storage], self._until[value]))


def with_held(made: Instance, graph: Graph, device: str) -> Instance:
    """``made``, the instance of ``graph`` on ``device``, as a program that follows a plan can execute it: the last op
    before a storage is released reads it blindly in its first run, and what the program cannot recompute is pinned."""
    t = tables(made)
    releases = [len(graph) if storage.death is None else storage.death for storage in graph.storages]
    restorable, final = _InProgram(made, t, releases), made.states[-1]
    storages = [*made.storages]
    for number in _unrestorable(made, t, restorable):
        storages[number] = msgspec.structs.replace(storages[number], pinned=True)
    holds: dict[int, list[int]] = defaultdict(list)
    for number, (storage, residence) in enumerate(zip(graph.storages, residences(graph), strict=True)):
        release = releases[number]
        if storage.device != device or not storage.nbytes or not release:
            continue
        if residence is Residence.NEVER:  # a gradient of the step before
            storages[number] = msgspec.structs.replace(storages[number], nbytes=int(storage.nbytes))
        elif residence is not Residence.LOCAL or graph.index.users[number][-1] == release - 1:
            continue  # it is not held any longer
        elif storage.death is not None and restorable.until(Value(number, final[number])) >= release:
            continue  # it can be recomputed for the program
        holds[release - 1].append(number)
    ops = list(made.ops)
    for at, held in holds.items():
        reads, blind = sorted({*ops[at].reads, *held}), sorted({*ops[at].blind, *held})
        ops[at] = msgspec.structs.replace(ops[at], reads=tuple(reads), blind=tuple(blind))
    return msgspec.structs.replace(made, ops=tuple(ops), storages=tuple(storages))


def followed(held: Instance, t: Tables, plan: Plan) -> Evaluated:
    """Play ``plan``, which moves nothing, as a program of the instance ``held`` runs it."""
    return evaluate(held, t, _as_run(t, np.array(sequence_of(plan.lanes[0].steps), np.int64)))


def _as_run(t: Tables, sequence: Ints) -> Ints:
    """``sequence`` without recomputations of what is resident still."""
    first, need = firsts(t, sequence), t.final.tolist()
    kept: list[int] = []
    for place in range(len(sequence) - 1, -1, -1):
        op = int(sequence[place])
        again = int(first[op]) != place
        made = [s for s in t.made[t.make_ends[op] : t.make_ends[op + 1]].tolist() if not (again and t.pinned[s])]
        at = range(int(t.touch_ends[op]), int(t.touch_ends[op + 1]))
        touched = [(int(t.touched[k]), k) for k in at if not (again and t.blind[k])]
        if again and not any(need[s] == op for s in (*made, *(s for s, k in touched if t.writes[k]))):
            continue
        kept.append(op)
        for s in made:
            need[s] = NONE if need[s] == op else need[s]
        for s, k in touched:
            need[s] = int(t.state[k])
    return np.array(kept[::-1], np.int64)


def _unrestorable(made: Instance, t: Tables, restorable: Restorable) -> set[int]:
    """The storages that a plan may evict in some idle interval, and the program can recompute after none."""
    found = idle_intervals(made, t)
    useful = found.until > found.begin
    columns = zip(found.storage[useful].tolist(), found.state[useful].tolist(), found.end[useful].tolist(), strict=True)
    restored = dict.fromkeys(found.storage[useful].tolist(), False)
    for storage, state, end in columns:
        restored[storage] = restored[storage] or restorable.until(Value(storage, state)) >= end
    return {storage for storage, can in restored.items() if not can}
