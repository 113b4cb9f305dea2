"""Tokens played by the event rules, compiled: the time of a plan, and how much it lacks where it does not fit.

The rules are those of ``plans.events``, which plays whatever comes of it once more. States are not looked at: whoever
makes the tokens sees to it that ops find what they touch. Releases are those of ``residences.steps_of``: a residence
ends after its last touch, a copy on a tier after its last transfer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensortide.plans.compiled import compiled, entry_making_arrays, making_arrays
from tensortide.plans.transfers.kernels.arrays import BACK, HERE, OUT, RUN, Links, Tokens
from tensortide.plans.under_budget.tables import NONE, Ints, Tables

_NO = -1
ISSUE, COMPUTED, MAKESPAN, SHORT = range(4)


class Releases(NamedTuple):
    """The storages that leave the device after token i: a list of numbers ``e`` that begins at ``head[i]`` and goes on
    at ``behind[e]``, each for the storage ``gone[e]``. The last ``head`` has those that leave before the first token.

    ``drops``: whether the tier forgets what the token moves. ``again``: whether the op of the token ran before.
    """

    head: Ints
    behind: Ints
    gone: Ints
    drops: Ints
    again: Ints


class Play(NamedTuple):
    """The state of a replay. ``now``: the last issue, the end of the last op, of any step, and bytes that lacked.

    Per place (the device, then each tier): bytes held (``level``), what they may be (``most``), and a heap of releases,
    ``due_ns`` and ``freed``, of ``size``. Per storage: ``resident``; when its contents are ``ready``, when the last
    touch (``until``) and the last copy (``copied``) of its residence end. Per tier and storage: ``known``: there is a
    copy; ``tier_ready``, ``tier_until`` likewise. ``engine``: when each is free, outwards and inwards.
    """

    now: Ints
    level: Ints
    most: Ints
    due_ns: Ints
    freed: Ints
    size: Ints
    resident: Ints
    ready: Ints
    until: Ints
    copied: Ints
    known: Ints
    tier_ready: Ints
    tier_until: Ints
    engine: Ints


@entry_making_arrays
def replayed(t: Tables, links: Links, k: Tokens, budget: int, starts: Ints) -> tuple[int, int]:
    """The time of the tokens in nanoseconds, and the bytes that are lacking, summed over all that finds no room.

    ``starts``: the start of every run is put there, then the time of all.
    """
    count, storages, tiers = len(k.kind), len(t.nbytes), len(links.capacity)
    most = storages + len(t.made)
    for i in range(count):
        most += 1 if k.kind[i] != RUN else t.make_ends[k.which[i] + 1] - t.make_ends[k.which[i]]
    r = Releases(
        np.full(count + 1, _NO, np.int64),
        np.full(most, _NO, np.int64),
        np.zeros(most, np.int64),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
    )
    _releases(t, links, k, r)
    p = Play(
        np.zeros(4, np.int64),
        np.zeros(tiers + 1, np.int64),
        np.zeros(tiers + 1, np.int64),
        np.zeros((tiers + 1, most + count), np.int64),
        np.zeros((tiers + 1, most + count), np.int64),
        np.zeros(tiers + 1, np.int64),
        np.zeros(storages, np.int64),
        np.zeros(storages, np.int64),
        np.zeros(storages, np.int64),
        np.zeros(storages, np.int64),
        np.zeros((tiers, storages), np.int64),
        np.zeros((tiers, storages), np.int64),
        np.zeros((tiers, storages), np.int64),
        np.zeros((2, tiers), np.int64),
    )
    p.most[0] = budget
    p.most[1:] = links.capacity
    _begin(t, k, r, p)
    run = 0
    for i in range(count):
        which, link = k.which[i], k.link[i]
        if k.kind[i] == RUN:
            starts[run] = _run(t, p, which, r.again[i])
            run += 1
        elif k.kind[i] == OUT:
            _copy(t, links, p, which, link)
        else:
            _fetch(t, links, p, which, link)
        _release(t, r, p, i)
        if r.drops[i]:
            p.known[link, which] = 0
            _push(p, link + 1, max(p.now[ISSUE], p.tier_until[link, which]), t.nbytes[which])
            p.tier_ready[link, which] = 0
    starts[run] = p.now[MAKESPAN]
    return p.now[MAKESPAN], p.now[SHORT]


@making_arrays
def _releases(t: Tables, links: Links, k: Tokens, r: Releases) -> None:
    """Fill ``r``, from the last token to the first: ``over`` says that no later one touches this residence."""
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
    """Let leave after token i what its op touches and no later one; what it makes begins a residence."""
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
    """Let ``s`` leave after token ``i``, which touches it, if no later one touches this residence."""
    if not over[s]:
        return found
    over[s] = 0
    r.gone[found], r.behind[found] = s, r.head[i]
    r.head[i] = found
    return found + 1


@compiled
def _begin(t: Tables, k: Tokens, r: Releases, p: Play) -> None:
    for s in range(len(t.nbytes)):
        if t.given[s]:
            p.level[k.home[s] + 1] += t.nbytes[s]
            if k.home[s] == HERE:
                p.resident[s] = 1
            else:
                p.known[k.home[s], s] = 1
    for place in range(len(p.level)):
        p.now[SHORT] += max(0, p.level[place] - p.most[place])
    _release(t, r, p, len(k.kind))


@compiled
def _release(t: Tables, r: Releases, p: Play, i: int) -> None:
    e = r.head[i]
    while e != _NO:
        s = r.gone[e]
        p.resident[s] = 0
        _push(p, 0, max(p.now[ISSUE], p.until[s]), t.nbytes[s])
        e = r.behind[e]


@compiled
def _run(t: Tables, p: Play, op: int, again: int) -> int:
    """Play an op; returns its start."""
    at, need = max(p.now[ISSUE], p.now[COMPUTED]), t.workspace[op]
    for j in range(t.touch_ends[op], t.touch_ends[op + 1]):
        at = max(at, p.ready[t.touched[j]])
        if t.writes[j] and not (again and t.blind[j]):
            at = max(at, p.copied[t.touched[j]])
    for j in range(t.make_ends[op], t.make_ends[op + 1]):
        need += t.nbytes[t.made[j]]
    at = _room(p, 0, need, at)
    end = at + t.ns[op]
    _push(p, 0, end, t.workspace[op])
    for j in range(t.touch_ends[op], t.touch_ends[op + 1]):
        s = t.touched[j]
        p.until[s] = max(p.until[s], end)
        if t.writes[j] and not (again and t.blind[j]):
            p.ready[s] = end
    for j in range(t.make_ends[op], t.make_ends[op + 1]):
        s = t.made[j]
        if p.resident[s]:
            _push(p, 0, end, t.nbytes[s])
        else:
            p.resident[s] = 1
            p.ready[s], p.until[s], p.copied[s] = end, end, 0
    p.now[ISSUE], p.now[COMPUTED] = at, end
    p.now[MAKESPAN] = max(p.now[MAKESPAN], end)
    return int(at)


@compiled
def _copy(t: Tables, links: Links, p: Play, s: int, link: int) -> None:
    if not p.known[link, s]:
        p.now[ISSUE] = _room(p, link + 1, t.nbytes[s], p.now[ISSUE])
        p.known[link, s], p.tier_until[link, s] = 1, 0
    begin = max(p.now[ISSUE], p.engine[0, link], p.ready[s], p.tier_until[link, s])
    end = begin + links.out_ns[link, s]
    p.engine[0, link] = p.tier_ready[link, s] = p.tier_until[link, s] = end
    p.until[s], p.copied[s] = max(p.until[s], end), max(p.copied[s], end)
    p.now[MAKESPAN] = max(p.now[MAKESPAN], end)


@compiled
def _fetch(t: Tables, links: Links, p: Play, s: int, link: int) -> None:
    p.now[ISSUE] = _room(p, 0, t.nbytes[s], p.now[ISSUE])
    begin = max(p.now[ISSUE], p.engine[1, link], p.tier_ready[link, s])
    end = begin + links.back_ns[link, s]
    p.engine[1, link] = p.tier_until[link, s] = end
    p.resident[s] = 1
    p.ready[s], p.until[s], p.copied[s] = end, end, 0
    p.now[MAKESPAN] = max(p.now[MAKESPAN], end)


@compiled
def _room(p: Play, place: int, nbytes: int, earliest: int) -> int:
    """Take ``nbytes`` at the earliest time at which there is room; what lacks when all is released is noted."""
    at = earliest
    while p.size[place]:
        when = p.due_ns[place, 0]
        if when > at:
            if p.level[place] + nbytes <= p.most[place]:
                break
            at = when
        p.level[place] -= p.freed[place, 0]
        _pop(p, place)
    p.level[place] += nbytes
    p.now[SHORT] += max(0, p.level[place] - p.most[place])
    return at


@compiled
def _push(p: Play, place: int, when: int, nbytes: int) -> None:
    due, freed = p.due_ns[place], p.freed[place]
    at = p.size[place]
    p.size[place] += 1
    while at and due[(at - 1) // 2] > when:
        due[at], freed[at] = due[(at - 1) // 2], freed[(at - 1) // 2]
        at = (at - 1) // 2
    due[at], freed[at] = when, nbytes


@compiled
def _pop(p: Play, place: int) -> None:
    due, freed = p.due_ns[place], p.freed[place]
    p.size[place] -= 1
    size = p.size[place]
    when, nbytes, at = due[size], freed[size], 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and due[below + 1] < due[below]:
            below += 1
        if due[below] >= when:
            break
        due[at], freed[at] = due[below], freed[below]
        at = below
    due[at], freed[at] = when, nbytes
