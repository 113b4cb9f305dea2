"""Neighbours of storages in a Schedule, compiled: those each is computed from, and those computed from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from tensortide.replays.remat.fast.state import Ints, Records, Small


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
) -> tuple[Small, Small]:
    """Count the storages that each value is the first of its storage to be made of, and list the neighbours of all
    storages in one array: first what each is made of, then what is made of each, both in the order of the ops."""
    added = np.zeros(len(storage), np.int32)
    _sources(inputs, input_ends, storage, root, made, following, added, np.empty(0, np.int32))
    near = np.empty(2 * added.sum(), np.int32)
    _sources(inputs, input_ends, storage, root, made, following, added, near)
    _turn(storage, len(root), added, near)
    return added, near


@njit(cache=True)
def _sources(
    inputs: Ints,
    input_ends: Ints,
    storage: Ints,
    root: Ints,
    made: Small,
    following: Small,
    added: Small,
    near: Small,
) -> None:
    """Write what each storage is made of into ``near``, or if that is empty how many it is into ``added``."""
    seen = np.full(len(root), -1, np.int32)
    end = 0
    for at in range(len(root)):
        value = root[at]
        while True:
            for i in range(input_ends[made[value]], input_ends[made[value] + 1]):
                source = storage[inputs[i]]
                if source != at and seen[source] != at:
                    seen[source] = at
                    if len(near):
                        near[end] = source
                        end += 1
                    else:
                        added[value] += 1
            value = following[value]
            if value == root[at]:
                break


@njit(cache=True)
def _turn(storage: Ints, storages: int, added: Small, near: Small) -> None:
    """Write what is made of each storage into the second half of ``near``."""
    up, down = np.zeros(storages + 1, np.int32), np.zeros(storages + 1, np.int32)
    for value in range(len(storage)):
        up[storage[value] + 1] += added[value]
    middle = len(near) // 2
    for edge in range(middle):
        down[near[edge] + 1] += 1
    down[0] = middle
    for at in range(storages):
        up[at + 1] += up[at]
        down[at + 1] += down[at]
    for value in range(len(storage)):
        at = storage[value]
        for _ in range(added[value]):
            source = near[up[at]]
            near[down[source]] = at
            up[at] += 1
            down[source] += 1


@njit(cache=True)
def begin(storages: Records, storage: Ints, added: Small, near: Small) -> None:
    """Tell each record where in ``near`` its neighbours begin."""
    for value in range(len(storage)):
        storages[storage[value]].up_end += added[value]
    middle = len(near) // 2
    for edge in range(middle):
        storages[near[edge]].down_end += 1
    up, down = 0, middle
    for at in range(len(storages)):
        ups, downs = storages[at].up_end, storages[at].down_end
        storages[at].up = storages[at].up_end = up
        storages[at].down = storages[at].down_end = down
        up += ups
        down += downs
