"""Idle intervals, in which the contents of a storage wait for their next use; and bytes that no plan can do without.

All of it holds for plans without transfers in which ops run for the first time in recorded order, and may run again
anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np

from tensortide.plans.instance import BEFORE, Instance
from tensortide.plans.under_budget.tables import Ints, Restorable, Tables, Value


@dataclass(frozen=True, slots=True, eq=False)
class IdleIntervals:
    """Per interval its ``storage`` and ``state``, idle during the first runs of the ops ``begin`` to ``end - 1``.

    It may be away during those up to ``until - 1``: what is away then can still be restored in time. ``makers``: the
    ops that run again if it is away. ``need``: per op, bytes resident during its first run if nothing is away.
    """

    storage: Ints
    state: Ints
    begin: Ints
    end: Ints
    until: Ints
    makers: tuple[tuple[int, ...], ...]
    need: Ints

    def __len__(self) -> int:
        return len(self.storage)


class Least(msgspec.Struct, frozen=True):
    """Bytes that every plan of a class needs at op ``op`` (-1: before the first): ``workspace_bytes`` and the storages
    ``residents``, which the op touches, or which nothing can restore."""

    nbytes: int
    op: int
    residents: tuple[int, ...]
    workspace_bytes: int = 0


def idle_intervals(instance: Instance, t: Tables) -> IdleIntervals:
    """List the idle intervals of ``instance`` that hold any bytes, by storage."""
    restorable, count = Restorable(instance, t), len(instance.ops)
    change = np.zeros(count + 2, np.int64)
    need = t.workspace.copy()
    rows: list[tuple[int, int, int, int, int]] = []
    makers: list[tuple[int, ...]] = []
    for storage, (nbytes, uses) in enumerate(zip(t.nbytes.tolist(), _uses(instance), strict=True)):
        if not nbytes or not uses:
            continue
        change[max(uses[0][0], 0)] += nbytes
        change[count if instance.storages[storage].stays else uses[-1][0] + 1] -= nbytes
        for (before, _), (after, state) in pairwise(uses):
            if after > before + 1:
                value = Value(storage, state)
                until = min(after, restorable.until(value) + 1)
                rows.append((storage, state, before + 1, after, max(until, before + 1)))
                makers.append(tuple(restorable.makers(value)) if until > before + 1 else ())
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    need += np.cumsum(change)[:count]
    return IdleIntervals(columns[0], columns[1], columns[2], columns[3], columns[4], tuple(makers), need)


def _uses(instance: Instance) -> list[list[tuple[int, int]]]:
    """For each storage the ops that touch it, each with the state that it needs; -1 and the number of ops stand for the
    start and the end of the step."""
    *states, final = instance.states
    found: list[list[tuple[int, int]]] = [[] for _ in instance.storages]
    for storage, record in enumerate(instance.storages):
        if record.given and (record.stays or any(storage in needed for needed in states)):
            found[storage].append((-1, BEFORE))
    for number, (op, needed) in enumerate(zip(instance.ops, states, strict=True)):
        for storage in op.makes:
            found[storage].append((number, number))
        for storage, state in needed.items():
            found[storage].append((number, state))
    for storage, record in enumerate(instance.storages):
        if record.stays and storage in final:
            found[storage].append((len(instance.ops), final[storage]))
    return found


def least(instance: Instance, t: Tables, found: IdleIntervals) -> Least:
    """Bytes that every plan needs at some op: those of what the op touches and of what nothing can restore later."""
    count = len(instance.ops)
    away = np.zeros(count + 2, np.int64)
    np.add.at(away, found.begin, t.nbytes[found.storage])
    np.add.at(away, found.until, -t.nbytes[found.storage])
    level = found.need - np.cumsum(away)[:count]
    if not count:
        return Least(0, -1, ())
    op = int(level.argmax())
    return Least(int(level[op]), op, tuple(_present(instance, found, op)), instance.ops[op].workspace)


def _present(instance: Instance, found: IdleIntervals, op: int) -> Iterator[int]:
    """The storages that are resident while ``op`` runs, less those that may be away."""
    inside = (found.begin <= op) & (op < found.until)
    away = set(found.storage[inside].tolist())
    for storage, (record, uses) in enumerate(zip(instance.storages, _uses(instance), strict=True)):
        if record.nbytes and uses and uses[0][0] <= op <= uses[-1][0] and storage not in away:
            yield storage
