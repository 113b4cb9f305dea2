"""Tokens written as tasks and played, compiled: the time of a plan, and how much it lacks where it does not fit.

The tasks are those of ``plans.events.writer``, which writes whatever comes of it once more. States are not looked at:
whoever makes the tokens sees to it that ops find what they touch. Releases are those of ``residences.steps_of``: a
residence ends after its last touch, a copy on a tier after its last transfer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensortide import play as player
from tensortide.compiled import compiled, entry_with, making_arrays
from tensortide.plans.transfers.kernels.arrays import BACK, HERE, OUT, RUN, Links, Tokens
from tensortide.plans.under_budget.tables import NONE, Ints, Tables
from tensortide.play import tasks
from tensortide.play.machine_code import add, need, play, record, room_for, whole
from tensortide.play.tasks import FREE, MAKESPAN, MOVE, NOWHERE, SHORT, Places, Rules, Tasks

_NO = -1


class Releases(NamedTuple):
    """Releases after each token, as linked lists: ``head[i]`` is the first entry of token i, ``behind[e]`` the next one
    of entry e, ``gone[e]`` its storage. The last ``head`` is of releases before the first token.

    ``drops``: whether the tier forgets what the token moves. ``again``: whether the op of the token ran before.
    """

    head: Ints
    behind: Ints
    gone: Ints
    drops: Ints
    again: Ints


class Uses(NamedTuple):
    """Tasks of each storage so far, -1 where there is none. Of its residence: what ``filled`` it, the ``fetched`` part
    of these, the last op that ``used`` it, the last copy out over each link (``copied``). Of its copy on each tier:
    ``kept``, what filled it, and the last transfer (``moved``); ``known``: there is a copy. ``resident``: 1 if it is.
    """

    resident: Ints
    filled: Ints
    fetched: Ints
    used: Ints
    copied: Ints
    known: Ints
    kept: Ints
    moved: Ints


@entry_with(player, makes_arrays=True)
def replayed(t: Tables, links: Links, k: Tokens, budget: int, starts: Ints) -> tuple[int, int]:
    """The time of the tokens in nanoseconds, and the bytes that are lacking, summed over all that finds no room.

    ``starts``: the start of every run is put there, then the time of all.
    """
    capacity = np.zeros(len(links.capacity) + 1, np.int64)
    capacity[0], capacity[1:] = budget, links.capacity
    held = np.zeros(len(capacity), np.int64)
    written = _written(t, links, k, held)
    places = Places(capacity, held)
    r = record(written, places, 1 + 2 * len(links.capacity))
    play(written, places, Rules(0, 0), r)
    for place in range(len(held)):
        r.totals[SHORT] += max(0, held[place] - capacity[place])
    run = 0
    for task in range(len(written.kind)):
        if written.kind[task] == tasks.RUN:
            starts[run] = r.start[task]
            run += 1
    starts[run] = r.totals[MAKESPAN]
    return r.totals[MAKESPAN], r.totals[SHORT]


@making_arrays
def _written(t: Tables, links: Links, k: Tokens, held: Ints) -> Tasks:
    """Write the tokens as tasks; ``held`` is given the bytes of each place before the first."""
    count, storages, tiers = len(k.kind), len(t.nbytes), len(links.capacity)
    gone, touched = storages + len(t.made), 0
    for i in range(count):
        op = k.which[i]
        gone += 1 if k.kind[i] != RUN else 1 + t.make_ends[op + 1] - t.make_ends[op]
        touched += 0 if k.kind[i] != RUN else t.touch_ends[op + 1] - t.touch_ends[op]
    r = Releases(
        np.full(count + 1, _NO, np.int64),
        np.full(gone, _NO, np.int64),
        np.zeros(gone, np.int64),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
    )
    _releases(t, links, k, r)
    w = room_for(2 * count + gone, (touched + gone) * (3 + tiers) + 2 * count)
    u = Uses(
        np.zeros(storages, np.int64),
        np.full(storages, _NO, np.int64),
        np.full(storages, _NO, np.int64),
        np.full(storages, _NO, np.int64),
        np.full((tiers, storages), _NO, np.int64),
        np.zeros((tiers, storages), np.int64),
        np.full((tiers, storages), _NO, np.int64),
        np.full((tiers, storages), _NO, np.int64),
    )
    _write(t, links, k, r, w, u, held)
    found: Tasks = whole(w)
    return found


@making_arrays
def _releases(t: Tables, links: Links, k: Tokens, r: Releases) -> None:
    """Fill ``r``: ``over`` says that no later token touches this residence of a storage."""
    # From the last token to the first, so that the first touch that is met is the last one.
    over, ran = np.zeros(len(t.nbytes), np.int64), np.zeros(len(t.ns), np.int64)
    seen = np.zeros(links.out_ns.shape, np.int64)
    for i in range(len(k.kind)):
        if k.kind[i] == RUN:
            r.again[i] = ran[k.which[i]]
            ran[k.which[i]] = 1
    for s in range(len(over)):
        over[s] = not (links.kept[s] or (t.final[s] != NONE and k.home[s] == HERE))
    found = 0
    for i in range(len(k.kind) - 1, -1, -1):
        which = k.which[i]
        if k.kind[i] != RUN:
            found = _touched(r, over, which, i, found)
            over[which] = over[which] or k.kind[i] == BACK
            link = k.link[i]
            r.drops[i] = not seen[link, which] and k.home[which] != link
            seen[link, which] = 1
            continue
        found = _used(t, r, over, which, i, found)
    for s in range(len(over)):
        if over[s] and t.given[s] and k.home[s] == HERE:
            found = _touched(r, over, s, len(k.kind), found)


@compiled
def _used(t: Tables, r: Releases, over: Ints, op: int, i: int, found: int) -> int:
    """Release after token i the storages of its op that no later token touches; what it makes begins a residence."""
    for j in range(t.make_ends[op], t.make_ends[op + 1]):
        s = t.made[j]
        if not (r.again[i] and t.pinned[s]):
            found = _touched(r, over, s, i, found)
    for j in range(t.touch_ends[op], t.touch_ends[op + 1]):
        if not (r.again[i] and t.blind[j]):
            found = _touched(r, over, t.touched[j], i, found)
    for j in range(t.make_ends[op], t.make_ends[op + 1]):
        s = t.made[j]
        over[s] = over[s] or not (r.again[i] and t.pinned[s])
    return found


@compiled
def _touched(r: Releases, over: Ints, s: int, i: int, found: int) -> int:
    """Release ``s`` after token ``i``, which touches it, unless a later token touches this residence."""
    if not over[s]:
        return found
    over[s] = 0
    r.gone[found], r.behind[found] = s, r.head[i]
    r.head[i] = found
    return found + 1


@compiled
def _write(t: Tables, links: Links, k: Tokens, r: Releases, w: Tasks, u: Uses, held: Ints) -> None:
    for s in range(len(t.nbytes)):
        if t.given[s]:
            held[k.home[s] + 1] += t.nbytes[s]
            if k.home[s] == HERE:
                u.resident[s] = 1
            else:
                u.known[k.home[s], s] = 1
    _release(t, r, w, u, len(k.kind))
    for i in range(len(k.kind)):
        which, link = k.which[i], k.link[i]
        if k.kind[i] == RUN:
            _run(t, w, u, which, r.again[i])
        elif k.kind[i] == OUT:
            _copy(t, links, w, u, which, link)
        else:
            _fetch(t, links, w, u, which, link)
        _release(t, r, w, u, i)
        if r.drops[i]:
            u.known[link, which] = 0
            need(w, u.moved[link, which])
            add(w, FREE, NOWHERE, 0, link + 1, t.nbytes[which])
            u.kept[link, which] = _NO


@compiled
def _resides(u: Uses, s: int, task: int, fetched: int) -> None:
    """A residence begins with ``task``."""
    u.resident[s] = 1
    u.filled[s] = u.used[s] = task
    u.fetched[s] = fetched
    u.copied[:, s] = _NO


@compiled
def _release(t: Tables, r: Releases, w: Tasks, u: Uses, i: int) -> None:
    """Add the releases that follow token ``i``."""
    e = r.head[i]
    while e != _NO:
        s = r.gone[e]
        u.resident[s] = 0
        need(w, u.filled[s])
        need(w, u.used[s])
        for link in range(len(u.copied)):
            need(w, u.copied[link, s])
        add(w, FREE, NOWHERE, 0, 0, t.nbytes[s])
        e = r.behind[e]


@compiled
def _run(t: Tables, w: Tasks, u: Uses, op: int, again: int) -> None:
    nbytes = t.workspace[op]
    for j in range(t.make_ends[op], t.make_ends[op + 1]):
        nbytes += t.nbytes[t.made[j]]
    for j in range(t.touch_ends[op], t.touch_ends[op + 1]):
        s = t.touched[j]
        need(w, u.fetched[s])
        if t.writes[j] and not (again and t.blind[j]):
            for link in range(len(u.copied)):
                need(w, u.copied[link, s])
    task = add(w, tasks.RUN, 0, t.ns[op], 0, nbytes)
    for j in range(t.touch_ends[op], t.touch_ends[op + 1]):
        s = t.touched[j]
        u.used[s] = task
        if t.writes[j] and not (again and t.blind[j]):
            u.filled[s], u.fetched[s] = task, _NO
    need(w, task)
    add(w, FREE, NOWHERE, 0, 0, t.workspace[op])
    for j in range(t.make_ends[op], t.make_ends[op + 1]):
        s = t.made[j]
        if u.resident[s]:
            need(w, task)
            add(w, FREE, NOWHERE, 0, 0, t.nbytes[s])
        else:
            _resides(u, s, task, _NO)


@compiled
def _copy(t: Tables, links: Links, w: Tasks, u: Uses, s: int, link: int) -> None:
    need(w, u.filled[s])
    if u.known[link, s]:
        need(w, u.moved[link, s])
    place = NOWHERE if u.known[link, s] else link + 1
    task = add(w, MOVE, 1 + 2 * link, links.out_ns[link, s], place, t.nbytes[s])
    u.known[link, s] = 1
    u.kept[link, s] = u.moved[link, s] = u.copied[link, s] = task


@compiled
def _fetch(t: Tables, links: Links, w: Tasks, u: Uses, s: int, link: int) -> None:
    need(w, u.kept[link, s])
    task = add(w, MOVE, 2 + 2 * link, links.back_ns[link, s], 0, t.nbytes[s])
    u.moved[link, s] = task
    _resides(u, s, task, task)
