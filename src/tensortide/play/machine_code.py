"""The player compiled, for functions that write tasks into arrays: ``room_for`` them, ``need``, ``add``, ``whole``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tensortide.compiled import compiled, making_arrays
from tensortide.play import player
from tensortide.play.tasks import FREE, Record, Tasks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]

# Compiled here and not by decorators in player.py: whoever plays lists need not import Numba.
for _part in (*player.PARTS, player.play):
    compiled(_part)

play = player.play


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
def record(t: Tasks, held: Ints, lanes: int) -> Record:
    """The record of tasks of one queue before the first."""
    count, ends = len(t.kind), np.zeros(len(held) + 1, np.int64)
    for task in range(count):
        if t.kind[task] == FREE:
            ends[t.place[task] + 1] += 1
    for place in range(len(held)):
        ends[place + 1] += ends[place]
    return Record(
        issue=np.full(count, -1, np.int64),
        start=np.full(count, -1, np.int64),
        end=np.full(count, -1, np.int64),
        waiting=np.full(count, -1, np.int64),
        behind=np.full(count, -1, np.int64),
        free=np.zeros(lanes, np.int64),
        clock=np.zeros(1, np.int64),
        head=np.zeros(1, np.int64),
        seen=np.zeros(1, np.int64),
        needed=np.zeros(1, np.int64),
        since=np.full(1, -1, np.int64),
        asker=np.full(len(held), -1, np.int64),
        granted=np.zeros(len(held), np.int64),
        level=held.copy(),
        peak=held.copy(),
        heap_ends=ends,
        size=np.zeros(len(held), np.int64),
        due=np.zeros(ends[-1], np.int64),
        freed=np.zeros(ends[-1], np.int64),
        totals=np.array([0, 0, -1, 0], np.int64),
    )
