"""A planning instance as flat arrays, and which contents of storages recomputation can restore, until when.

A *sequence* is a list of ops in which each stands at least once: an op's first place is its first run, each further one
a recomputation. It says all there is to say about a plan without transfers, because residences follow from it
(``kernels.profile``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensortide.plans.instance import BEFORE, Instance

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
NONE = -2
"""No state: the contents of the storage are not needed."""


class Tables(NamedTuple):
    """An instance as arrays of int64, which compiled functions take.

    Per op: ``ns``, ``workspace``, ``once``. Op i touches ``touched[touch_ends[i]:touch_ends[i + 1]]``, each in the
    recorded ``state`` (the op that last wrote it), ``writes`` it or does not, and leaves it alone when it runs again
    if ``blind``; it makes ``made[make_ends[i]:make_ends[i + 1]]``. Per storage: ``nbytes``; ``final``: the state in
    which the step leaves it behind (``NONE``: it does not); ``given``, ``pinned``; ``writers[write_ends[i]:...]``: the
    ops that make it and write to it, ascending.
    """

    ns: Ints
    workspace: Ints
    once: Ints
    touch_ends: Ints
    touched: Ints
    state: Ints
    writes: Ints
    blind: Ints
    make_ends: Ints
    made: Ints
    nbytes: Ints
    final: Ints
    given: Ints
    pinned: Ints
    write_ends: Ints
    writers: Ints


def tables(instance: Instance) -> Tables:
    """``instance`` as arrays; links and tiers take no part. Raises PlanError if it contradicts itself."""
    ops, storages = instance.ops, instance.storages
    *found, last = instance.states
    touched = [(op, storage, state) for op, states in zip(ops, found, strict=True) for storage, state in states.items()]
    writers: list[list[int]] = [[] for _ in storages]
    for number, op in enumerate(ops):
        for storage in (*op.writes, *op.makes):
            writers[storage].append(number)
    return Tables(
        ns=_ints(op.ns for op in ops),
        workspace=_ints(op.workspace for op in ops),
        once=_ints(op.once for op in ops),
        touch_ends=_ends(found),
        touched=_ints(storage for _, storage, _ in touched),
        state=_ints(state for _, _, state in touched),
        writes=_ints(storage in op.writes for op, storage, _ in touched),
        blind=_ints(storage in op.blind for op, storage, _ in touched),
        make_ends=_ends([op.makes for op in ops]),
        made=_ints(storage for op in ops for storage in op.makes),
        nbytes=_ints(storage.nbytes for storage in storages),
        final=_ints(last.get(i, NONE) if storage.stays else NONE for i, storage in enumerate(storages)),
        given=_ints(storage.given for storage in storages),
        pinned=_ints(storage.pinned for storage in storages),
        write_ends=_ends(writers),
        writers=_ints(op for group in writers for op in group),
    )


def _ints(numbers: Iterable[int]) -> Ints:
    return np.fromiter(numbers, np.int64)


def _ends(groups: Sequence[Sequence[int] | dict[int, int]]) -> Ints:
    return _ints(accumulate(map(len, groups), initial=0))


class Value(NamedTuple):
    """Contents of a storage: those that op ``state`` wrote."""

    storage: int
    state: int


class Restorable:
    """Until the first run of which op the contents of a storage can be restored, and by which ops."""

    def __init__(self, instance: Instance, t: Tables) -> None:
        self.instance = instance
        self.writers = [t.writers[a:b].tolist() for a, b in zip(t.write_ends, t.write_ends[1:], strict=False)]
        self._until: dict[Value, int] = {}

    def makers(self, value: Value) -> list[int]:
        """The ops that restore ``value``: the one that makes the storage, then all that wrote to it by then."""
        return [op for op in self.writers[value.storage] if op <= value.state]

    def held(self, value: Value) -> int:
        """The op whose first run changes ``value``: until then it can stay resident; the number of ops if none does."""
        later = (op for op in self.writers[value.storage] if op > value.state)
        return next(later, len(self.instance.ops))

    def until(self, value: Value) -> int:
        """The last op before whose first run ``value`` can be restored; -1 if it never can.

        An op can run again as long as everything that it touches can be present as it was: not yet changed, or
        restored in turn.
        """
        if value not in self._until:
            waiting = [value]
            while waiting:
                asked = [v for v in self._inputs(waiting[-1]) if v not in self._until]
                if asked:
                    waiting += asked
                else:
                    last = waiting.pop()
                    self._until[last] = self._last(last)
        return self._until[value]

    def _inputs(self, value: Value) -> Iterator[Value]:
        if not self.is_fixed(value):
            for op in self.makers(value):
                yield from (v for v in self.reads[op] if v.storage != value.storage)

    def _last(self, value: Value) -> int:
        if self.is_fixed(value):
            return -1
        return min(map(self.reach, self._inputs(value)), default=len(self.instance.ops))

    def reach(self, value: Value) -> int:
        """The last op before whose first run ``value``, known to ``until``, can be an input of another restoration."""
        return max(self.held(value), self._until[value])

    def is_fixed(self, value: Value) -> bool:
        storage = self.instance.storages[value.storage]
        if storage.given or storage.pinned or value.state == BEFORE:
            return True
        return any(self.instance.ops[op].once for op in self.makers(value))

    @functools.cached_property
    def reads(self) -> list[list[Value]]:
        """For each op what it touches when it runs again, in the state it needs."""
        pairs = zip(self.instance.ops, self.instance.states, strict=False)
        return [[Value(s, state) for s, state in states.items() if s not in op.blind] for op, states in pairs]
