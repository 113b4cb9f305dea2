"""The rules of the player where what is ready decides, compiled for arrays.

A task is ready when all that it needs has ended. A lane runs one at a time: of the ``RUN`` that are ready the one of
the lowest rank, of the ``MOVE`` the one that was ready first. Each takes its bytes when it starts,
whatever room there is. A ``FREE`` gives bytes back, and ends, as soon as it is ready. All that ends at one instant ends
before anything starts, whatever the numbers of the lanes are. Lanes may have a host that issues their tasks, and share
rates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tensortide.compiled import compiled
from tensortide.play.machine_code import pop, push
from tensortide.play.rates import Shares, share
from tensortide.play.tasks import FREE, MAKESPAN, RUN, Tasks

if TYPE_CHECKING:
    from tensortide.play.tasks import Ints

ENDED, TURNS = MAKESPAN + 1, MAKESPAN + 2
"""Entries of ``Ready.totals`` after the makespan."""


class Ready(NamedTuple):
    """A play by ranks.

    Given, by task:
        rank: Of a ``RUN``: the least of those that are ready starts first.
        tie: Of a task with a lane: the least of those that end at one instant ends first.
        aside: One more place that has its bytes from its start to its end; -1: none.
    Given, by place:
        level: The bytes there before the first task; then those after the last.
    Played, by task:
        start, end: -1: it waits for ever.
        turn: Its number in the order in which tasks were ready.
    Played, by place:
        peak: The most bytes there.
    Played:
        totals: The makespan, the number of tasks that ended, and of turns.
    Scratch, by task:
        pending: The number of ends that it still needs.
        after: The tasks that need it, bounded by ``after_ends``.
        freed: First a task that ends, then every ``FREE`` that ends with it.
    Scratch, by lane:
        until: When what runs ends, or what waits for its host starts; -1: nothing does.
        busy: The task that runs; of one that waits for its host -1 less the task.
        size: The number of tasks on its heap, of ``keys`` and ``items`` from ``heap_ends`` on.

    ``tie`` is given and ``turn`` is found: the tie settles which of several ends counts as the first, the ends in that
    order make others ready, and the order in which they are ready is the order in which a lane takes each ``MOVE``.
    """

    rank: Ints
    tie: Ints
    aside: Ints
    start: Ints
    end: Ints
    turn: Ints
    level: Ints
    peak: Ints
    totals: Ints
    pending: Ints
    after: Ints
    after_ends: Ints
    freed: Ints
    until: Ints
    busy: Ints
    size: Ints
    keys: Ints
    items: Ints
    heap_ends: Ints


class Hosts(NamedTuple):
    """Hosts of the first ``lanes``, which issue their tasks in the order in which they run, ahead of the lane.

    Given, by task of such a lane: the time that the host works ``after`` it, and whether it ``waits`` for its end; by
    lane: ``launch``, the time before its first task and after each that it waits for.
    Played, by task: when it was issued (``issued``) and what that took (``issuing``, given without launches). Scratch,
    by lane: the ``clock`` of the host, the launch that is ``due``, and until when the host keeps the lane (``kept``).
    """

    lanes: int
    launch: Ints
    issuing: Ints
    after: Ints
    waits: Ints
    issued: Ints
    clock: Ints
    due: Ints
    kept: Ints


@compiled
def play_ready(t: Tasks, r: Ready, h: Hosts, s: Shares) -> None:
    """Play all tasks; as many are written as ``t.queue_ends[1]`` says."""
    _prepare(t, r, h, s)
    for task in range(t.queue_ends[1]):
        if r.pending[task] == 0 and r.turn[task] < 0:
            _ready(t, r, task)
            if t.kind[task] == FREE:
                _end(t, r, task, 0)
    now = 0
    while now >= 0:
        r.totals[MAKESPAN] = now
        now = _start(t, r, h, s, now)
        lane = _ending(r, now)
        while lane >= 0:
            task = r.busy[lane]
            r.until[lane] = -1
            if s.lanes > 0:
                s.part[lane] = s.whole[lane] = 1
            if lane < h.lanes:
                h.kept[lane] = max(h.kept[lane], now + h.after[task])
                if h.waits[task]:
                    h.clock[lane], h.due[lane] = now, h.launch[lane]
            _end(t, r, task, now)
            lane = _ending(r, now)
    for lane in range(h.lanes):
        r.totals[MAKESPAN] = max(r.totals[MAKESPAN], h.kept[lane])


@compiled
def _prepare(t: Tasks, r: Ready, h: Hosts, s: Shares) -> None:
    """Count what each task waits for, list what waits for it, and give each lane room for a heap."""
    count, lanes = t.queue_ends[1], len(r.until)
    r.totals[:] = r.size[:] = r.heap_ends[:] = 0
    r.until[:] = -1
    for place in range(len(r.peak)):
        r.peak[place] = r.level[place]
    s.part[:] = s.whole[:] = 1
    for lane in range(h.lanes):
        h.clock[lane], h.due[lane], h.kept[lane] = 0, h.launch[lane], 0
    for task in range(count):
        r.after_ends[task] = 0
        r.start[task] = r.end[task] = r.turn[task] = -1
        r.pending[task] = t.need_ends[task + 1] - t.need_ends[task]
        if t.lane[task] >= 0:
            r.heap_ends[t.lane[task] + 1] += 1
    for lane in range(lanes):
        r.heap_ends[lane + 1] += r.heap_ends[lane]
    # The lists are filled from their ends, by the tasks in descending order, so that they ascend: of the transfers that
    # one end makes ready, the one that was written first goes first.
    for i in range(t.need_ends[count]):
        r.after_ends[t.need[i]] += 1
    for task in range(1, count):
        r.after_ends[task] += r.after_ends[task - 1]
    r.after_ends[count] = t.need_ends[count]
    for task in range(count - 1, -1, -1):
        for i in range(t.need_ends[task], t.need_ends[task + 1]):
            r.after_ends[t.need[i]] -= 1
            r.after[r.after_ends[t.need[i]]] = task


@compiled
def _ready(t: Tasks, r: Ready, task: int) -> None:
    """Let a task take its turn; it waits for its lane, if it has one."""
    r.turn[task] = r.totals[TURNS]
    r.totals[TURNS] += 1
    lane = t.lane[task]
    if lane >= 0:
        key = r.rank[task] if t.kind[task] == RUN else r.turn[task]
        push(r.keys, r.items, r.heap_ends[lane], r.size[lane], key, task)
        r.size[lane] += 1


@compiled
def _start(t: Tasks, r: Ready, h: Hosts, s: Shares, now: int) -> int:
    """Start a task on every lane that is free and has one. Returns when the next of what runs ends; -1 if nothing
    runs."""
    for lane in range(len(r.until)):
        if r.until[lane] < 0:
            if r.size[lane] > 0:
                task = r.items[r.heap_ends[lane]]
                pop(r.keys, r.items, r.heap_ends[lane], r.size[lane])
                r.size[lane] -= 1
                start = _issue(h, lane, task, now) if lane < h.lanes else now
                if start == now:
                    _begin(t, r, lane, task, now)
                else:
                    r.until[lane], r.busy[lane] = start, -1 - task
        elif r.until[lane] == now:  # its host has issued it
            _begin(t, r, lane, -1 - r.busy[lane], now)
    if s.lanes > 0:
        share(r.until, r.busy, s, now)
    found = -1
    for lane in range(len(r.until)):
        if r.until[lane] >= 0 and (found < 0 or r.until[lane] < found):
            found = r.until[lane]
    return found


@compiled
def _issue(h: Hosts, lane: int, task: int, now: int) -> int:
    """Issue a task. Returns when it starts."""
    h.issuing[task] += h.due[lane]
    h.due[lane] = 0
    h.clock[lane] += h.issuing[task]
    h.issued[task] = h.clock[lane]
    start: int = max(now, h.clock[lane], h.kept[lane])
    return start


@compiled
def _begin(t: Tasks, r: Ready, lane: int, task: int, now: int) -> None:
    """Start a task on a lane."""
    for place in (t.place[task], r.aside[task]):
        if place >= 0:
            r.level[place] += t.nbytes[task]
            r.peak[place] = max(r.peak[place], r.level[place])
    r.start[task] = now
    r.until[lane], r.busy[lane] = now + t.ns[task], task


@compiled
def _ending(r: Ready, now: int) -> int:
    """The lane whose task ends now, of these that of the least tie; -1 if there is none."""
    found, least = -1, 0
    if now >= 0:
        for lane in range(len(r.until)):
            if r.until[lane] == now and r.busy[lane] >= 0 and (found < 0 or r.tie[r.busy[lane]] < least):
                found, least = lane, r.tie[r.busy[lane]]
    return found


@compiled
def _end(t: Tasks, r: Ready, task: int, now: int) -> None:
    """End a task, and every ``FREE`` that is ready with it."""
    r.freed[0], turn, last = task, 0, 1
    while turn < last:
        task = r.freed[turn]
        turn += 1
        r.end[task] = now
        r.totals[ENDED] += 1
        place = t.place[task] if t.kind[task] == FREE else r.aside[task]
        if place >= 0:
            r.level[place] -= t.nbytes[task]
        for i in range(r.after_ends[task], r.after_ends[task + 1]):
            later = r.after[i]
            r.pending[later] -= 1
            if r.pending[later] == 0:
                if t.kind[later] == FREE:
                    r.turn[later], r.freed[last] = r.totals[TURNS], later
                    last += 1
                else:
                    _ready(t, r, later)
