"""The player of events: what its rules promise, by hand and over random tasks, run by Python and as machine code."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from tensortide.play import (
    FREE,
    MOVE,
    NOWHERE,
    RUN,
    UNLIMITED,
    Places,
    Record,
    Rules,
    TaskList,
    Tasks,
    played,
)
from tensortide.play.tasks import FAILED, HELD, MAKESPAN, SHORT
from tests.oracles.event_simulation import Simulation

SHARED = Rules(shared=1)


def drawn(chance: random.Random) -> tuple[Tasks, int, Places]:
    """Tasks of one queue, or of several, which need tasks of their own queue and of queues before it."""
    lanes, places = chance.randint(1, 4), chance.randint(0, 2)
    tasks, needed, taken = TaskList(), list[int](), list[tuple[int, int, int]]()
    alone = chance.random() < 0.3
    for _ in range(1 if alone else chance.randint(2, 4)):
        tasks.new_queue()
        if not alone:
            tasks.add(RUN, ns=chance.randint(1, 10**9))
        for _ in range(chance.randint(0, 12)):
            before = needed
            needs = chance.sample(before, min(len(before), chance.choice((0, 0, 1, 2))))
            if taken and chance.random() < 0.4:
                task, place, nbytes = taken.pop(chance.randrange(len(taken)))
                tasks.add(FREE, NOWHERE, 0, [task, *needs], place, nbytes)
                continue
            place = chance.randrange(places) if places and chance.random() < 0.6 else NOWHERE
            nbytes = chance.randint(0, 9) if place != NOWHERE else 0
            kind = chance.choice((RUN, MOVE))
            # What happens at one instant has no order but that of the queues, so that is seldom drawn of several.
            ns = chance.choice((0, 1, 5, chance.randint(0, 30))) if alone else chance.randint(1, 10**9)
            if alone or kind == RUN:
                # Who waits for a lane that others use, and for room, has asked for neither before: not drawn.
                lane = chance.choice((NOWHERE, *range(lanes))) if alone or place == NOWHERE else NOWHERE
                task = tasks.add(kind, lane, ns, needs, place, nbytes)
            else:
                task = tasks.add(MOVE, place=place, nbytes=nbytes)
            needed.append(task)
            if place != NOWHERE:
                taken.append((task, place, nbytes))
    room = Places([chance.choice((UNLIMITED, 60, 25)) for _ in range(places)], [chance.randint(0, 9)] * places)
    return tasks.tasks, lanes, room


def assert_keeps_the_rules(t: Tasks, lanes: int, places: Places, r: Record) -> None:
    """Check a record by its times alone."""
    if r.totals[SHORT] and len(t.queue_ends) > 2:
        return  # the queue ends that found no room
    assert all(end >= 0 for end in r.end)
    for task, kind in enumerate(t.kind):
        needed = max((r.end[need] for need in t.need[t.need_ends[task] : t.need_ends[task + 1]]), default=0)
        assert r.start[task] >= max(needed, r.issue[task])
        assert r.end[task] == r.start[task] + t.ns[task]
        assert kind != RUN or r.start[task] == r.issue[task]
        assert kind != FREE or r.start[task] == max(needed, r.issue[task])
    for first, last in itertools.pairwise(t.queue_ends):
        issued = [r.issue[task] for task in t.order[first:last]]
        assert issued == sorted(issued)
    for lane in range(lanes):
        spans = sorted((r.start[i], r.end[i]) for i, own in enumerate(t.lane) if own == lane)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    for place, capacity in enumerate(places.capacity):
        own = [i for i, at in enumerate(t.place) if at == place]
        changes = [(r.end[i], 0, -t.nbytes[i]) for i in own if t.kind[i] == FREE]
        changes += [(r.issue[i], 1, t.nbytes[i]) for i in own if t.kind[i] != FREE]
        levels = [*itertools.accumulate((each[-1] for each in sorted(changes)), initial=places.held[place])]
        assert max(levels) <= r.peak[place]
        assert r.totals[SHORT] or max(levels) <= max(capacity, places.held[place])
    assert r.totals[MAKESPAN] == max((r.end[i] for i, kind in enumerate(t.kind) if kind != FREE), default=0)


def assert_plays_right(seed: int) -> bool:
    """Play drawn tasks. Returns True if all of several queues end."""
    tasks, lanes, places = drawn(random.Random(seed))
    found = played(tasks, lanes, places, SHARED)
    assert_keeps_the_rules(tasks, lanes, places, found)
    if len(tasks.queue_ends) == 2:
        return False
    expected = Simulation(tasks, lanes, places)
    if min(expected.end, default=0) < 0:
        assert found.totals[SHORT] > 0
        return False
    if expected.ties:
        return False
    assert (found.issue, found.start, found.end) == (expected.issue, expected.start, expected.end)
    assert found.peak == expected.peak
    return True


def test_random_tasks_are_played_right() -> None:
    assert 40 < sum(assert_plays_right(seed) for seed in range(150)) < 150


@pytest.mark.slow
def test_many_random_tasks_are_played_right() -> None:
    assert 1000 < sum(assert_plays_right(seed) for seed in range(1000, 5000)) < 4000


def listed(*rows: tuple[Any, ...]) -> Tasks:
    """A queue of tasks, each as the arguments of ``TaskList.add``."""
    tasks = TaskList()
    tasks.new_queue()
    for row in rows:
        tasks.add(*row)
    return tasks.tasks


def test_a_move_lets_the_queue_go_on_and_a_run_does_not() -> None:
    tasks = listed((RUN, 0, 10), (MOVE, 1, 30, [0]), (RUN, 0, 5), (RUN, 2, 1, [1]))
    assert played(tasks, 3).start == [0, 10, 10, 40]
    assert played(tasks, 3, rules=Rules(serial=1)).start == [0, 10, 40, 45]


def test_room_is_waited_for_and_what_lacks_is_told() -> None:
    tasks = listed((RUN, 0, 10, [], 0, 6), (FREE, NOWHERE, 0, [0], 0, 6), (RUN, 1, 5, [], 0, 5))
    found = played(tasks, 2, Places([8], [0]))
    assert (found.start, found.peak) == ([0, 10, 10], [6])
    small = played(tasks, 2, Places([4], [0]))
    assert [small.totals[i] for i in (SHORT, FAILED, HELD)] == [2 + 1, 0, 0]


def test_a_place_grants_what_was_asked_for_first() -> None:
    """The second queue asks at 1 for what would fit, and the first has waited for more since 0."""
    tasks = TaskList()
    tasks.new_queue()
    tasks.add(RUN, 0, 20, [], 0, 6)
    tasks.add(FREE, NOWHERE, 0, [0], 0, 6)
    tasks.add(MOVE, NOWHERE, 0, [], 0, 8)
    tasks.new_queue()
    tasks.add(RUN, 1, 1)
    tasks.add(RUN, 1, 1, [], 0, 1)
    found = played(tasks.tasks, 2, Places([10], [0]), SHARED)
    assert (found.issue[2], found.issue[4]) == (20, 20)


def test_who_asked_first_is_next_in_line() -> None:
    """The last queue asks for room at 3, the one before it at 6, the one before that at 9."""
    tasks = TaskList()
    tasks.new_queue()
    tasks.add(RUN, 0, 20, [], 0, 8)
    tasks.add(FREE, NOWHERE, 0, [0], 0, 8)
    asking = []
    for lane, (before, nbytes, ns) in enumerate(((9, 6, 1), (6, 5, 7), (3, 6, 4)), 1):
        tasks.new_queue()
        tasks.add(RUN, lane, before)
        asking.append(tasks.add(RUN, lane, ns, [], 0, nbytes))
        tasks.add(FREE, NOWHERE, 0, asking[-1:], 0, nbytes)
    found = played(tasks.tasks, 4, Places([10], [0]), SHARED)
    assert [found.issue[task] for task in asking] == [31, 24, 20]


def test_tasks_that_wait_for_each_other_have_no_end() -> None:
    tasks = TaskList()
    tasks.new_queue()
    tasks.add(RUN, 0, 1, [1])
    tasks.new_queue()
    tasks.add(RUN, 1, 1, [0])
    assert played(tasks.tasks, 2, rules=SHARED).end == [-1, -1]


def test_a_release_waits_for_what_is_played_later_and_holds_nothing_up() -> None:
    tasks = TaskList()
    tasks.new_queue()
    tasks.add(FREE, NOWHERE, 0, [3], 0, 5)
    tasks.add(RUN, 0, 2)
    tasks.new_queue()
    tasks.add(RUN, 1, 7)
    tasks.add(RUN, 1, 1)
    found = played(tasks.tasks, 2, Places([9], [5]), SHARED)
    assert (found.end[0], found.start[1]) == (8, 0)
