"""The rules of the player, over columns of integers.

A queue issues its tasks in list order; issue times never fall. A ``RUN`` is issued when the lane is free, all that it
needs has ended and there is room: it starts at once. A ``MOVE`` is issued when there is room, and starts when the lane
is free and all that it needs has ended. A ``FREE`` gives bytes back when all that it needs has ended, and not before
it is issued; it holds nothing up. At one instant bytes are given back before others are taken; who asks a place for
room that it does not have is served before others that ask later. Time is linear in the number of tasks and needs, but
for the order of releases, and for the choice among queues.
"""

from __future__ import annotations

from tensortide.play.heaps import pop, push
from tensortide.play.tasks import FAILED, FREE, HELD, MAKESPAN, RUN, SHORT, Columns, Places, Record, Rules, Tasks


def nothing(t: Tasks, places: Places, lanes: int, column: Columns) -> Record:
    """The record before the first task, in columns of one kind."""
    count, queues, room = len(t.kind), len(t.queue_ends) - 1, len(places.held)
    ends, head, level, peak = column(room + 1, 0), column(queues, 0), column(room, 0), column(room, 0)
    for queue in range(queues):
        head[queue] = t.queue_ends[queue]
    for task in range(count):
        if t.kind[task] == FREE and t.place[task] >= 0:
            ends[t.place[task] + 1] += 1
    for place in range(room):
        ends[place + 1] += ends[place]
        level[place] = peak[place] = places.held[place]
    totals = column(4, 0)
    totals[FAILED] = -1
    return Record(
        issue=column(count, -1),
        start=column(count, -1),
        end=column(count, -1),
        waiting=column(count, -1),
        behind=column(count, -1),
        free=column(lanes, 0),
        clock=column(queues, 0),
        head=head,
        seen=column(queues, 0),
        needed=column(queues, 0),
        since=column(queues, -1),
        asker=column(room, -1),
        granted=column(room, 0),
        level=level,
        peak=peak,
        heap_ends=ends,
        size=column(room, 0),
        due=column(ends[room], 0),
        freed=column(ends[room], 0),
        totals=totals,
    )


def play(t: Tasks, places: Places, rules: Rules, r: Record) -> None:
    """Play all tasks; ``r`` is a record of nothing yet. Tasks that wait for each other have no end in it."""
    # One queue: list order is the order of play.
    if len(r.head) == 1:
        for task in range(len(t.kind)):
            begin(t, places, rules, r, 0, task)
        return
    queue = next_queue(t, places, rules, r, 0)
    while queue >= 0:
        task = t.order[r.head[queue]]
        if not rules.shared or fits(t, places, r, queue, task):
            begin(t, places, rules, r, queue, task)
            r.head[queue] += 1
            r.seen[queue] = r.needed[queue] = 0
            r.since[queue] = -1
        queue = next_queue(t, places, rules, r, queue)
    for place in range(len(r.asker)):
        queue = r.asker[place]
        if queue >= 0 and r.totals[FAILED] < 0:
            lacks(places, r, place, t.order[r.head[queue]], t.nbytes[t.order[r.head[queue]]])


def next_queue(t: Tasks, places: Places, rules: Rules, r: Record, last: int) -> int:
    """The queue whose next task can be played: from the ``last`` one on, or by time where they share; -1 if none."""
    found, least = -1, 0
    for turn in range(len(r.head)):
        queue = (last + turn) % len(r.head)
        if r.head[queue] == t.queue_ends[queue + 1]:
            continue
        at = earliest(t, places, r, queue, t.order[r.head[queue]])
        if at < 0:
            continue
        if not rules.shared:
            return queue
        if found < 0 or at < least or (at == least and queue < found):
            found, least = queue, at
    return found


def earliest(t: Tasks, places: Places, r: Record, queue: int, task: int) -> int:
    """The time from which the next task of a queue may be issued, as far as is known; -1 if nothing is."""
    at, kind, place = r.clock[queue], t.kind[task], t.place[task]
    if kind == FREE:
        return at
    first, count = t.need_ends[task], t.need_ends[task + 1] - t.need_ends[task]
    while r.seen[queue] < count:
        end = r.end[t.need[first + r.seen[queue]]]
        if end < 0:
            return -1
        r.needed[queue] = max(r.needed[queue], end)
        r.seen[queue] += 1
    if kind == RUN:
        at = max(at, r.needed[queue])
        if t.lane[task] >= 0:
            at = max(at, r.free[t.lane[task]])
    r.since[queue] = at
    if place >= 0:
        at = max(at, r.granted[place])
        # Who lacks room waits for the next release, and the others behind.
        if r.asker[place] >= 0:
            if r.asker[place] != queue:
                return -1
            if r.level[place] + t.nbytes[task] > places.capacity[place]:
                return max(at, r.due[r.heap_ends[place]]) if r.size[place] > 0 else -1
    return at


def fits(t: Tasks, places: Places, r: Record, queue: int, task: int) -> bool:
    """Tell whether there is room for a task at the time from which it may be issued. If not, its queue is to ask
    again."""
    place = t.place[task]
    if place < 0 or t.kind[task] == FREE:
        return True
    at, base = earliest(t, places, r, queue, task), r.heap_ends[place]
    while r.size[place] > 0 and r.due[base] <= at:
        drop(r, place)
    if r.level[place] + t.nbytes[task] > places.capacity[place]:
        r.asker[place] = queue
        return False
    r.clock[queue] = r.granted[place] = at
    if r.asker[place] == queue:
        r.asker[place] = -1
        # The next in line is who asked first of those behind.
        for other in range(len(r.head)):
            behind = other != queue and 0 <= r.since[other] <= at and t.place[t.order[r.head[other]]] == place
            if behind and (r.asker[place] < 0 or r.since[other] < r.since[r.asker[place]]):
                r.asker[place] = other
    return True


def begin(t: Tasks, places: Places, rules: Rules, r: Record, queue: int, task: int) -> None:
    """Play the next task of a queue: all that it needs was played before."""
    kind, lane, place = t.kind[task], t.lane[task], t.place[task]
    at = r.clock[queue]
    if rules.serial:
        at = max(at, r.totals[MAKESPAN])
    if kind == FREE:
        r.clock[queue] = r.issue[task] = at
        release(t, r, task)
        return
    needed = at
    for i in range(t.need_ends[task], t.need_ends[task + 1]):
        needed = max(needed, r.end[t.need[i]])
    if lane >= 0:
        needed = max(needed, r.free[lane])
    if kind == RUN:
        at = needed
    if place >= 0:
        at = take(places, r, place, task, t.nbytes[task], at)
    start = max(at, needed)
    end = start + t.ns[task]
    r.clock[queue] = r.issue[task] = at
    r.start[task], r.end[task] = start, end
    if lane >= 0:
        r.free[lane] = end
    r.totals[MAKESPAN] = max(r.totals[MAKESPAN], end)
    # Releases that waited for this task have their time now.
    waiting = r.waiting[task]
    while waiting >= 0:
        behind = r.behind[waiting]
        release(t, r, waiting)
        waiting = behind


def release(t: Tasks, r: Record, task: int) -> None:
    """Give back the bytes of a ``FREE``; if it needs what was not played yet, once that was."""
    when = r.issue[task]
    for i in range(t.need_ends[task], t.need_ends[task + 1]):
        need = t.need[i]
        if r.end[need] < 0:
            r.behind[task], r.waiting[need] = r.waiting[need], task
            return
        when = max(when, r.end[need])
    r.start[task] = r.end[task] = when
    if t.place[task] >= 0:
        place = t.place[task]
        push(r.due, r.freed, r.heap_ends[place], r.size[place], when, t.nbytes[task])
        r.size[place] += 1


def take(places: Places, r: Record, place: int, task: int, nbytes: int, asked: int) -> int:
    """Take ``nbytes`` at the first time from ``asked`` on at which there is room. Where all releases leave too little
    they are taken all the same, and what lacks is noted."""
    at, most = asked, places.capacity[place] - nbytes
    base = r.heap_ends[place]
    # Releases that are due by then; later ones only as long as there is too little room.
    while r.size[place] > 0:
        when = r.due[base]
        if when > at:
            if r.level[place] <= most:
                break
            at = when
        drop(r, place)
    if r.level[place] > most:
        lacks(places, r, place, task, nbytes)
    r.level[place] += nbytes
    r.peak[place] = max(r.peak[place], r.level[place])
    return at


def drop(r: Record, place: int) -> None:
    """Give back the first release of a place."""
    base = r.heap_ends[place]
    r.level[place] -= r.freed[base]
    pop(r.due, r.freed, base, r.size[place])
    r.size[place] -= 1


def lacks(places: Places, r: Record, place: int, task: int, nbytes: int) -> None:
    """Note that a task found too little room."""
    r.totals[SHORT] += r.level[place] + nbytes - places.capacity[place]
    if r.totals[FAILED] < 0:
        r.totals[FAILED], r.totals[HELD] = task, r.level[place]
