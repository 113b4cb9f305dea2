"""Tasks played: the record of lists by Python, that of arrays by machine code."""

from __future__ import annotations

import itertools

from tensortide.play.player import play
from tensortide.play.tasks import FREE, Places, Record, Rules, Tasks

NO_PLACES = Places([], [])
RULES = Rules()


def played(tasks: Tasks, lanes: int, places: Places = NO_PLACES, rules: Rules = RULES) -> Record:
    """Play ``tasks``, in lists, on so many ``lanes``, and return the record.

    Where there is too little room ``totals`` say how much lacks: of a single queue the task takes it all the same, of
    several the queue ends there.
    """
    record = _nothing(tasks, lanes, places)
    play(tasks, places, rules, record)
    return record


def _nothing(t: Tasks, lanes: int, places: Places) -> Record:
    """The record before the first task."""
    count, queues = len(t.kind), len(t.queue_ends) - 1
    releases = [0] * len(places.capacity)
    for kind, place in zip(t.kind, t.place, strict=True):
        if kind == FREE and place >= 0:
            releases[place] += 1
    ends = [*itertools.accumulate(releases, initial=0)]
    return Record(
        issue=[-1] * count,
        start=[-1] * count,
        end=[-1] * count,
        waiting=[-1] * count,
        behind=[-1] * count,
        free=[0] * lanes,
        clock=[0] * queues,
        head=[*t.queue_ends[:-1]],
        seen=[0] * queues,
        needed=[0] * queues,
        since=[-1] * queues,
        asker=[-1] * len(releases),
        granted=[0] * len(releases),
        level=[*places.held],
        peak=[*places.held],
        heap_ends=ends,
        size=[0] * len(releases),
        due=[0] * ends[-1],
        freed=[0] * ends[-1],
        totals=[0, 0, -1, 0],
    )
