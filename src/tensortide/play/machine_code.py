"""The player compiled, for functions that write tasks into arrays: ``room_for`` them, ``need``, ``add``, ``whole``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tensortide.compiled import compiled, making_arrays
from tensortide.play import heaps, player
from tensortide.play.tasks import Places, Record, Tasks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]

# Compiled here and not by decorators in player.py: whoever plays lists need not import Numba.
for _part in (heaps.push, heaps.pop, *player.PARTS, player.play):
    compiled(_part)

play, push, pop = player.play, heaps.push, heaps.pop
_nothing = making_arrays(player.nothing)


@making_arrays
def room_for(tasks: int, needs: int) -> Tasks:
    """Room for so many ``tasks`` of one queue with so many ``needs``, none of them written."""
    return Tasks(
        kind=np.zeros(tasks, np.int64),
        lane=np.zeros(tasks, np.int64),
        ns=np.zeros(tasks, np.int64),
        place=np.zeros(tasks, np.int64),
        nbytes=np.zeros(tasks, np.int64),
        need=np.zeros(needs, np.int64),
        need_ends=np.zeros(tasks + 2, np.int64),
        queue_ends=np.zeros(2, np.int64),
        order=np.zeros(0, np.int64),
    )


@compiled
def need(t: Tasks, task: int) -> None:
    """Let the task that is added next need ``task``; nothing if that is -1."""
    if task >= 0:
        end = t.queue_ends[1] + 1
        t.need[t.need_ends[end]] = task
        t.need_ends[end] += 1


@compiled
def add(t: Tasks, kind: int, lane: int, ns: int, place: int, nbytes: int) -> int:
    """Add a task, with the needs that were named since the last. Returns its number."""
    task = t.queue_ends[1]
    t.kind[task], t.lane[task], t.ns[task], t.place[task], t.nbytes[task] = kind, lane, ns, place, nbytes
    t.queue_ends[1] = task + 1
    t.need_ends[task + 2] = t.need_ends[task + 1]
    return task


@making_arrays
def whole(t: Tasks) -> Tasks:
    """The tasks that were written, without the room that is left."""
    n = t.queue_ends[1]
    needs, ends = t.need[: t.need_ends[n]], t.need_ends[: n + 1]
    return Tasks(t.kind[:n], t.lane[:n], t.ns[:n], t.place[:n], t.nbytes[:n], needs, ends, t.queue_ends, t.order)


@making_arrays
def _column(count: int, value: int) -> Ints:
    return np.full(count, value, np.int64)


@making_arrays
def record(t: Tasks, places: Places, lanes: int) -> Record:
    """The record of tasks before the first."""
    found: Record = _nothing(t, places, lanes, _column)
    return found
