"""Idle intervals, in which the contents of a storage wait for their next use; and bytes that no plan can do without.

Ops run for the first time in recorded order, and may run again anywhere; nothing moves, unless it is said.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from tensortide.plans.instance import Instance
from tensortide.plans.under_budget.tables import Ints, Restorable, Tables, Value, tables
from tensortide.plans.under_budget.touches import touches_of


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
    restorable, x = Restorable(instance, t), touches_of(t, np.arange(len(instance.ops)))
    inside = np.flatnonzero((x.stays > 0) & (x.behind > x.place + 1) & (t.nbytes[x.storage] > 0))
    storage, state, begin, end = x.storage[inside], x.state[inside], x.place[inside] + 1, x.behind[inside]
    values = [Value(*pair) for pair in zip(storage.tolist(), state.tolist(), strict=True)]
    until = np.maximum(begin, np.minimum(end, 1 + np.array([restorable.until(value) for value in values], np.int64)))
    restored = zip(values, (until > begin).tolist(), strict=True)
    makers = tuple([tuple(restorable.makers(value)) if can else () for value, can in restored])
    return IdleIntervals(storage, state, begin, end, until, makers, x.level)


def least(instance: Instance, t: Tables, found: IdleIntervals) -> Least:
    """Bytes that every plan needs at some op: those of what the op touches and of what nothing can restore later."""
    count = len(instance.ops)
    away = np.zeros(count + 2, np.int64)
    np.add.at(away, found.begin, t.nbytes[found.storage])
    np.add.at(away, found.until, -t.nbytes[found.storage])
    level = found.need - np.cumsum(away)[:count]
    if not count:
        return Least(0, -1, ())
    op, x = int(level.argmax()), touches_of(t, np.arange(count))
    resident = (x.place == op) | ((x.stays > 0) & (x.place < op) & (op < x.behind))
    absent = found.storage[(found.begin <= op) & (op < found.until)]
    present = sorted({s for s in x.storage[resident].tolist() if t.nbytes[s]}.difference(absent.tolist()))
    return Least(int(level[op]), op, tuple(present), instance.ops[op].workspace)


def least_of_one_op(instance: Instance) -> Least:
    """The most that any op needs by itself, for what it touches and its workspace: as much in a plan of any class."""
    best = Least(0, -1, ())
    for number, op in enumerate(instance.ops):
        resident = tuple(s for s in sorted(op.touches) if instance.storages[s].nbytes)
        nbytes = op.workspace + sum(instance.storages[s].nbytes for s in resident)
        if nbytes > best.nbytes:
            best = Least(nbytes, number, resident, op.workspace)
    return best


def least_in_any_order(instance: Instance) -> Least:
    """Bytes that every plan without transfers needs, in any order: what exists before the step and after it, and is
    overwritten by no op that does not read it, cannot be restored, so it stays."""
    renewed = {s for op in instance.ops for s in (*op.blind, *op.makes)}
    storages = tuple(
        msgspec.structs.replace(each, pinned=each.pinned or (each.given and each.stays and number not in renewed))
        for number, each in enumerate(instance.storages)
    )
    return least_with_transfers(msgspec.structs.replace(instance, storages=storages), recorded=False)


def least_with_transfers(instance: Instance, *, recorded: bool) -> Least:
    """The most that any op needs at the least, or what is on the device before the step, or after it (op -1).

    ``recorded``: ops run for the first time in recorded order, so what is pinned stays from its first touch to its
    last one; in any order, only what exists before and after the step.
    """
    count = len(instance.ops)
    pinned: list[set[int]] = [set() for _ in range(count)]
    found = touches_of(tables(instance), np.arange(count))
    until = np.where(found.stays, found.behind, found.place + 1)
    for s, place, end in zip(found.storage.tolist(), found.place.tolist(), until.tolist(), strict=True):
        storage = instance.storages[s]
        if storage.pinned and storage.nbytes and (recorded or (storage.given and storage.stays)):
            for at in range(max(place, 0), min(end, count)):
                pinned[at].add(s)
    size = [storage.nbytes for storage in instance.storages]
    before = tuple(s for s, x in enumerate(instance.storages) if x.given and size[s] and _is_fixed(instance, s))
    after = tuple(s for s, x in enumerate(instance.storages) if x.stays and size[s] and _is_fixed(instance, s))
    best = max((Least(sum(size[s] for s in group), -1, group) for group in (before, after)), key=lambda x: x.nbytes)
    for number, op in enumerate(instance.ops):
        resident = tuple(s for s in sorted(pinned[number].union(op.touches)) if size[s])
        nbytes = op.workspace + sum(size[s] for s in resident)
        if nbytes > best.nbytes:
            best = Least(nbytes, number, resident, op.workspace)
    return best


def _is_fixed(instance: Instance, s: int) -> bool:
    """Tell whether a storage that exists before or after the step is on the device then, whatever the plan."""
    storage = instance.storages[s]
    at_home = s in instance.home and not storage.kept
    return not at_home and (storage.kept or storage.pinned or not storage.persistent)
