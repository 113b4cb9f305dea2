"""What follows from a Schedule, compiled: what each storage is made of, and what is made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from tensortide.replay.remat.fast.state import Ints, Small


@njit(cache=True)
def ops_of(output_ends: Ints) -> Small:
    """The op that makes each value."""
    made = np.empty(output_ends[-1], np.int32)
    for op in range(len(output_ends) - 1):
        made[output_ends[op] : output_ends[op + 1]] = op
    return made


@njit(cache=True)
def rings(storage: Ints, storages: int) -> Small:
    """For each value the next one of the same storage; for the last one the first."""
    following = np.empty(len(storage), np.int32)
    newest = np.full(storages, -1, np.int32)
    for value in range(len(storage)):
        before = newest[storage[value]]
        following[value] = value
        if before >= 0:
            following[value] = following[before]
            following[before] = value
        newest[storage[value]] = value
    return following


@njit(cache=True)
def neighbours(
    inputs: Ints, input_ends: Ints, storage: Ints, root: Ints, made: Small, following: Small
) -> tuple[Small, Small, Small, Small]:
    """How many storages each value is the first of its storage to be made of; and the neighbours of all storages in one
    array, first those that they are made of, then those that are made of them, both in the order of the ops; with where
    they begin for each."""
    storages = len(root)
    added = np.zeros(len(storage), np.int32)
    up, down = np.zeros(storages, np.int32), np.zeros(storages, np.int32)
    seen = np.full(storages, -1, np.int32)
    near = np.empty(0, np.int32)
    for filling in (False, True):
        end = 0
        seen[:] = -1
        for at in range(storages):
            up[at] = end
            value = root[at]
            while True:
                op = made[value]
                for i in range(input_ends[op], input_ends[op + 1]):
                    source = storage[inputs[i]]
                    if source == at or seen[source] == at:
                        continue
                    seen[source] = at
                    if filling:
                        near[end] = source
                    else:
                        added[value] += 1
                        down[source] += 1
                    end += 1
                value = following[value]
                if value == root[at]:
                    break
        if not filling:
            near = np.empty(2 * end, np.int32)
    for at in range(storages):
        end += down[at]
        down[at] = end - down[at]
    next_up, next_down = up.copy(), down.copy()
    for value in range(len(storage)):
        at = storage[value]
        for _ in range(added[value]):
            source = near[next_up[at]]
            near[next_down[source]] = at
            next_up[at] += 1
            next_down[source] += 1
    return added, near, up, down
