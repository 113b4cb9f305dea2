"""Functions that write tasks into arrays, compiled: ``need`` and ``add``; and the heaps of the player."""

from __future__ import annotations

from tensortide.compiled import compiled
from tensortide.play import heaps
from tensortide.play.tasks import Tasks

# Compiled here and not by decorators in heaps.py: whoever plays lists need not import Numba.
push, pop = compiled(heaps.push), compiled(heaps.pop)


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
