"""Tasks, the lanes and places that they need, the rules by which they are played, and the record of a play.

A capability is played by writing it as tasks and by reading the record. All are columns of integers: lists, which
Python plays as they are, or arrays of int64, which the compiled player takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, chain
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]

Column: TypeAlias = "list[int] | Ints"

RUN, MOVE, FREE = 0, 1, 2
"""Kinds of tasks: the queue waits until a ``RUN`` starts; a ``MOVE`` is issued as soon as there is room for it, and
starts later; a ``FREE`` gives bytes back when all that it needs has ended, and ends then. In list order no task needs a
``FREE``: its end may be known only after the task is played. Where what is ready decides any task may."""
NOWHERE = -1
"""No lane, or no place."""
UNLIMITED = 1 << 61
"""Capacity of a place without a limit, in bytes."""
MAKESPAN, SHORT, FAILED, HELD = range(4)
"""Entries of ``Record.totals``; the makespan is the first of all totals."""


class Columns(Protocol):
    """Makes columns, lists or arrays."""

    def __call__(self, count: int, value: int) -> Column:
        """A column of ``count`` times ``value``."""


class Tasks(NamedTuple):
    """Tasks by number.

    ``kind``, ``lane`` and duration ``ns``; the ``nbytes`` that a task takes at ``place`` when it is issued, or that a
    ``FREE`` gives back; it needs the ends of ``need[need_ends[i]:need_ends[i + 1]]``. Queue q issues the tasks of
    ``order[queue_ends[q]:queue_ends[q + 1]]``; a single queue issues all by their numbers, whatever ``order`` is. Where
    what is ready decides (``play/ready.py``) nothing is issued in an order, and all tasks are of a single queue.
    """

    kind: Column
    lane: Column
    ns: Column
    place: Column
    nbytes: Column
    need: Column
    need_ends: Column
    queue_ends: Column
    order: Column


class Places(NamedTuple):
    """Places with room: ``capacity`` and, before all tasks, ``held``, in bytes."""

    capacity: Column
    held: Column


class Rules(NamedTuple):
    """Rules of a play. ``serial``: a task is issued when all before it have ended. ``shared``: queues share lanes or
    places, so that of their next tasks the one that can begin first is played first."""

    serial: int = 0
    shared: int = 0


class Record(NamedTuple):
    """Record of a play.

    By task: ``issue``, ``start`` and ``end`` (-1: it waits for ever); the first FREE ``waiting`` for it to be played,
    and of such a FREE the one ``behind`` it (-1: none).
    By lane: when it is ``free``. By queue: the last issue (``clock``); the place of its next task in the order
    (``head``), how many of the needs of that were ``seen``, when those had ended (``needed``), and ``since`` when it
    may be issued if there is room (-1: not known).
    By place: the queue that lacks room (``asker``, -1: none); when the last request was ``granted``, and the ``level``
    then; the ``peak``; and a heap of ``size`` releases to come, when they are ``due`` and what is ``freed``, from
    ``heap_ends`` on.
    ``totals``: the makespan; the bytes for which there was no room, summed; the first task that found none (-1), and
    what its place held then.
    """

    issue: Column
    start: Column
    end: Column
    waiting: Column
    behind: Column
    free: Column
    clock: Column
    head: Column
    seen: Column
    needed: Column
    since: Column
    asker: Column
    granted: Column
    level: Column
    peak: Column
    heap_ends: Column
    size: Column
    due: Column
    freed: Column
    totals: Column


class TaskList:
    """Tasks written one after the other, numbered from ``first`` on, each in a queue."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self._kind: list[int] = []
        self._lane: list[int] = []
        self._ns: list[int] = []
        self._place: list[int] = []
        self._nbytes: list[int] = []
        self._need: list[int] = []
        self._need_ends = [0]
        self._queues: list[list[int]] = []

    def __len__(self) -> int:
        return len(self._kind)

    def new_queue(self) -> int:
        """Begin a queue. Returns its number."""
        self._queues.append([])
        return len(self._queues) - 1

    def add(
        self,
        kind: int,
        lane: int = NOWHERE,
        ns: int = 0,
        needs: Iterable[int] = (),
        place: int = NOWHERE,
        nbytes: int = 0,
        *,
        queue: int = -1,
    ) -> int:
        """Add a task to a queue (default: the last one). Returns the number of the task."""
        task = self.first + len(self._kind)
        self._kind.append(kind)
        self._lane.append(lane)
        self._ns.append(ns)
        self._place.append(place)
        self._nbytes.append(nbytes)
        self._need.extend(needs)
        self._need_ends.append(len(self._need))
        self._queues[queue].append(task)
        return task

    @property
    def tasks(self) -> Tasks:
        """All tasks."""
        columns = self._kind, self._lane, self._ns, self._place, self._nbytes
        ends = [*accumulate(map(len, self._queues), initial=0)]
        return Tasks(*columns, self._need, self._need_ends, ends, [*chain.from_iterable(self._queues)])

    def followed_by(self, rest: TaskList) -> Tasks:
        """The tasks of both; those of ``rest`` are numbered from the end of these on."""
        own, more = self.tasks, rest.tasks
        ends = [own.need_ends[-1] + end for end in more.need_ends[1:]]
        queues = [own.queue_ends[-1] + end for end in more.queue_ends[1:]]
        kind, lane, ns, place, nbytes, need = ([*a, *b] for a, b in zip(own[:6], more[:6], strict=True))
        order = [*own.order, *more.order]
        return Tasks(kind, lane, ns, place, nbytes, need, [*own.need_ends, *ends], [*own.queue_ends, *queues], order)
