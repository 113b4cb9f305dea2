"""A choice of idle intervals to move, placed on the engines and played at once; compiled.

A *choice* has the link of each idle interval that moves, and ``HERE`` for those that stay. Copies start right after the
last use, or before it where the engine has nothing to do; fetches in the order of what needs them, each as early as a
ledger of bytes by place allows: nothing that runs until then lacks room for it, the engine is about to be free, and the
next op waits for none that it does not need.

What is on the device while the op at a place runs is the ``level`` of that place and the *pending* bytes: sources of
copies that are under way although their last use is over.
"""

from __future__ import annotations

from tensortide.compiled import compiled, entry_making_arrays
from tensortide.plans.transfers.kernels.arrays import BACK, HERE, OUT, RUN, Links, Tokens
from tensortide.plans.transfers.kernels.idles import Idles
from tensortide.plans.transfers.kernels.placing import (
    ENDED,
    ISSUED,
    LATEST,
    NEVER,
    NO,
    SHORT,
    TOKENS,
    Line,
    State,
    begin,
    linger,
    wait,
)
from tensortide.plans.under_budget.tables import Ints, Tables


@entry_making_arrays
def placed(
    t: Tables, links: Links, v: Idles, x: Line, choice: Ints, budget: int, home: Ints
) -> tuple[int, int, Tokens]:
    """The time of a choice, NEVER if it does not fit, the bytes that it lacks, and its tokens. ``home``: of storages
    whose home is not chosen."""
    z = begin(t, links, v, x, choice, budget)
    homes = home.copy()
    for i in range(len(choice)):
        if choice[i] != HERE and v.wraps[i]:
            homes[v.storage[i]] = choice[i]
    time_ns = NEVER if z.register[SHORT] else play(t, links, v, x, choice, budget, NEVER, z)
    n = z.register[TOKENS]
    return time_ns, z.register[SHORT], Tokens(z.kind[:n].copy(), z.which[:n].copy(), z.link[:n].copy(), homes)


@entry_making_arrays
def waits(t: Tables, links: Links, v: Idles, x: Line, choice: Ints, budget: int) -> Ints:
    """The nanoseconds that each op waits for chosen moves, and that transfers go on after the last op; zeros where the
    choice does not fit."""
    z: State = begin(t, links, v, x, choice, budget)
    if not z.register[SHORT]:
        play(t, links, v, x, choice, budget, NEVER, z)
    return z.stall


@compiled
def play(t: Tables, links: Links, v: Idles, x: Line, choice: Ints, budget: int, most_stall: int, z: State) -> int:
    """Place the steps one after the other; returns the time of all. NEVER if they do not fit, or if ops wait for more
    than ``most_stall`` in all."""
    count, register, waited = len(x.sequence), z.register, 0
    _leave(t, links, v, choice, z, -1, 0)
    _copy_early(t, links, v, x, choice, z, -1)
    for place in range(count + 1):
        if not _fetches(t, links, v, x, choice, budget, z, place):
            return NEVER
        start = max(register[ISSUED], register[ENDED], z.arrival[place])
        if place == count:
            register[LATEST] = max(register[LATEST], start)
            z.stall[place] = register[LATEST] - register[ENDED]
            break
        start = _room(z, start, budget - z.level[place], place)
        z.stall[place] = start - register[ENDED]
        waited += z.stall[place]
        if waited > most_stall:
            return NEVER
        op = x.sequence[place]
        _write(z, RUN, op, HERE)
        register[ISSUED], register[ENDED] = start, start + t.ns[op]
        while z.span[0] < z.span[1] and z.pending[0, z.span[0]] <= start:
            z.span[0] += 1
        _leave(t, links, v, choice, z, place, register[ENDED])
        _copy_early(t, links, v, x, choice, z, place)
    return int(register[LATEST])


@compiled
def _room(z: State, since: int, allowed: int, place: int) -> int:
    """The earliest time from ``since`` on at which no more than ``allowed`` bytes are pending of what began before
    ``place``, NEVER if there is none."""
    if allowed < 0:
        return NEVER
    total = 0
    for k in range(z.span[1] - 1, z.span[0] - 1, -1):
        if z.pending[0, k] <= since:
            break
        total += z.pending[1, k] if z.pending[2, k] < place else 0
        if total > allowed:
            return int(z.pending[0, k])
    return since


@compiled
def _write(z: State, kind: int, which: int, link: int) -> None:
    n = z.register[TOKENS]
    z.kind[n], z.which[n], z.link[n] = kind, which, link
    z.register[TOKENS] = n + 1


@compiled
def _leave(t: Tables, links: Links, v: Idles, choice: Ints, z: State, place: int, end: int) -> None:
    """Copy what leaves behind ``place``, whose op ends at ``end``."""
    i = z.leaving[place + 1]
    while i != NO:
        s, link = v.storage[i], choice[i]
        if z.copied[s] != v.state[i]:
            _copy(links, v, z, i, link, end if v.since[i] == place else 0)
        z.ready[i] = z.complete[s]
        if z.complete[s] > end:
            _pend(z, z.complete[s], t.nbytes[s], place)
        if not v.wraps[i]:
            wait(v, z, i, link)
        i = z.then[i]


@compiled
def _copy(links: Links, v: Idles, z: State, i: int, link: int, since: int) -> None:
    """Copy what idles in an interval, complete ``since`` then, to its tier."""
    s = v.storage[i]
    start = max(z.register[ISSUED], z.free[2 * link], since, z.complete[s])
    z.free[2 * link] = z.complete[s] = start + links.out_ns[link, s]
    z.copied[s] = v.state[i]
    z.register[LATEST] = max(z.register[LATEST], z.complete[s])
    _write(z, OUT, s, link)


@compiled
def _copy_early(t: Tables, links: Links, v: Idles, x: Line, choice: Ints, z: State, place: int) -> None:
    """Copy what is not used for the last time yet over links that have nothing else to do."""
    i = z.written[place + 1]
    while i != NO:
        row, k = z.idle[choice[i]], z.depth[choice[i]]
        z.depth[choice[i]] = k + 1
        while k > 0 and v.before[row[k - 1]] < v.before[i]:
            row[k] = row[k - 1]
            k -= 1
        row[k] = i
        i = z.next[i]
    for link in range(len(z.depth)):
        while z.depth[link] > 0 and z.free[2 * link] <= z.register[ISSUED]:
            z.depth[link] -= 1
            i = z.idle[link, z.depth[link]]
            if v.before[i] > place and z.copied[v.storage[i]] != v.state[i]:
                since = z.register[ENDED] if v.since[i] == place else 0
                _copy(links, v, z, i, link, since)
                linger(t, links, v, x, z, i, link, -t.nbytes[v.storage[i]])


@compiled
def _pend(z: State, end: int, nbytes: int, place: int) -> None:
    k = z.span[1]
    z.span[1] = k + 1
    while k > z.span[0] and z.pending[0, k - 1] > end:
        for row in range(3):
            z.pending[row, k] = z.pending[row, k - 1]
        k -= 1
    z.pending[0, k], z.pending[1, k], z.pending[2, k] = end, nbytes, place


@compiled
def _fetches(t: Tables, links: Links, v: Idles, x: Line, choice: Ints, budget: int, z: State, place: int) -> bool:
    """Fetch what the op at ``place`` needs, then what may be early; False if there is no room."""
    rest, i = 0, z.needing[place]
    while i != NO:
        rest += 0 if z.fetched[i] else t.nbytes[v.storage[i]]
        i = z.later[i]
    i, gap = z.needing[place], 0
    while i != NO:
        if not z.fetched[i]:
            nbytes = t.nbytes[v.storage[i]]
            between = z.level[place] - x.own[place] - rest
            time_ns = _issue(z, nbytes, gap, between, place, budget)
            if time_ns == NEVER:
                z.register[SHORT] += nbytes
                return False
            _fetch(t, links, v, z, i, choice[i], time_ns)
            rest, gap = rest - nbytes, gap + nbytes
        i = z.later[i]
    if place == len(x.sequence):
        return True
    base = max(z.register[ISSUED], z.register[ENDED], z.arrival[place])
    base = max(base, _room(z, base, budget - z.level[place], place))
    for link in range(len(links.capacity)):
        gap = _early(t, links, v, x, budget, z, place, link, base, gap)
    return True


@compiled
def _early(
    t: Tables, links: Links, v: Idles, x: Line, budget: int, z: State, place: int, link: int, base: int, gap: int
) -> int:
    """Fetch over ``link`` what may be early, so that the op at ``place`` still starts at ``base``; returns the bytes
    fetched before it."""
    row = z.waiting[link]
    while z.height[link] > 0:
        i = row[z.height[link] - 1]
        if z.fetched[i]:
            z.height[link] -= 1
            continue
        nbytes = t.nbytes[v.storage[i]]
        if z.free[2 * link + 1] > base + t.ns[x.sequence[place]] or _is_full(v, z, place, link, i, budget - nbytes):
            break
        between = z.level[place] - x.own[place]
        time_ns = _issue(z, nbytes, gap, between, place, budget)
        if time_ns > base or _room(z, base, budget - z.level[place] - nbytes, place) > base:
            break
        _fetch(t, links, v, z, i, link, time_ns)
        gap += nbytes
        for later in range(place, v.after[i]):
            z.level[later] += nbytes
    return gap


@compiled
def _is_full(v: Idles, z: State, place: int, link: int, i: int, limit: int) -> bool:
    """Tell whether more than ``limit`` bytes are held somewhere before what needs interval i, with what will be pending
    at places to come: a fetch that takes its room makes an op wait for a copy."""
    known = z.full[link]
    if place < known < v.after[i] and z.level[known] + z.lingers[known] > limit:
        return True
    for later in range(place, v.after[i]):
        if z.level[later] + (z.lingers[later] if later > place else 0) > limit:
            z.full[link] = later
            return True
    return False


@compiled
def _issue(z: State, nbytes: int, gap: int, between: int, place: int, budget: int) -> int:
    """The earliest time at which there is room for a fetch: while the op before runs, or after it."""
    now, ended = z.register[ISSUED], z.register[ENDED]
    if place > 0 and now < ended:
        found = _room(z, now, budget - nbytes - gap - z.level[place - 1], place - 1)
        if found < ended:
            return int(found)
    return int(_room(z, max(now, ended), budget - nbytes - between, place))


@compiled
def _fetch(t: Tables, links: Links, v: Idles, z: State, i: int, link: int, time_ns: int) -> None:
    s = v.storage[i]
    end = max(time_ns, z.free[2 * link + 1], z.ready[i]) + links.back_ns[link, s]
    z.free[2 * link + 1] = end
    z.register[ISSUED], z.fetched[i] = time_ns, 1
    z.register[LATEST] = max(z.register[LATEST], end)
    z.complete[s] = max(z.complete[s], end)
    if v.after[i] < len(z.arrival):
        z.arrival[v.after[i]] = max(z.arrival[v.after[i]], end)
    _write(z, BACK, s, link)
