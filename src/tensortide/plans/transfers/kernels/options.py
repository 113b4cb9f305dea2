"""Ways to move an idle interval over a link: its transfers, what they free, and which ops wait for them; compiled."""

from __future__ import annotations

from tensortide.compiled import compiled
from tensortide.plans.instance import BEFORE
from tensortide.plans.transfers.kernels.arrays import Links
from tensortide.plans.transfers.kernels.idles import Idles
from tensortide.plans.transfers.kernels.ledger import (
    BACK_NS,
    BACK_START,
    BEGIN,
    BEGIN_2,
    END,
    END_2,
    FREE,
    LINK,
    NO,
    OUT_NS,
    OUT_START,
    SINCE,
    STALL,
    UNTIL,
    WAIT_AT,
    Ledger,
    earliest,
    end_of,
    has_room,
    latest,
    place_from,
    place_until,
)
from tensortide.plans.under_budget.tables import Ints, Tables


@compiled
def covers(option: Ints, place: int) -> bool:
    """Tell whether the storage is away at ``place``."""
    return bool(option[BEGIN] <= place < option[END] or option[BEGIN_2] <= place < option[END_2])


@compiled
def is_edge(v: Idles, r: Ledger, number: int) -> bool:
    """Tell whether an idle interval begins or ends with the step without wrapping around it."""
    return not v.wraps[number] and (v.before[number] < 0 or v.after[number] >= len(r.ends))


@compiled
def relies(v: Idles, option: Ints, number: int) -> bool:
    """Tell whether an option needs a copy that another one makes, or a home."""
    return option[OUT_NS] == NO and not v.wraps[number]


@compiled
def is_used(v: Idles, r: Ledger, last: Ints, number: int) -> bool:
    """Tell whether another option relies on the copy, or on the home, that the chosen one of ``number`` provides."""
    option = r.chosen[number]
    if option[OUT_NS] == NO and not v.wraps[number]:
        return False
    state = BEFORE if v.wraps[number] else v.state[number]
    k = last[v.storage[number]]
    while k != NO:
        if r.chosen[k, LINK] == option[LINK] and v.state[k] == state and relies(v, r.chosen[k], k):
            return True
        k = v.other[k]
    return False


@compiled
def option_of(
    t: Tables, links: Links, v: Idles, r: Ledger, last: Ints, number: int, link: int, at: int, option: Ints
) -> bool:
    """Put the option of an idle interval over ``link`` into ``option``: one that stalls nothing, or, where ``at`` is
    not NO, one by which the storage is away at that place. False if there is none.

    ``last``: for each storage its last idle interval. A storage moves over one link, so that its copies serve all.
    """
    home, edges = NO, False
    k = last[v.storage[number]]
    while k != NO:
        if r.chosen[k, LINK] != NO:
            if r.chosen[k, LINK] != link:
                return False
            edges = edges or is_edge(v, r, k)
            home = link if v.wraps[k] else home
        k = v.other[k]
    for k in range(len(option)):
        option[k] = NO
    option[LINK], option[STALL] = link, 0
    if v.wraps[number]:
        found = home == NO and not edges and _around(t, links, v, r, last, number, at, option)
    else:
        found = not (home != NO and is_edge(v, r, number)) and _between(t, links, v, r, last, number, home, at, option)
    return found and (
        covers(option, at) if at != NO else option[BEGIN] < option[END] or option[BEGIN_2] < option[END_2]
    )


@compiled
def _between(
    t: Tables, links: Links, v: Idles, r: Ledger, last: Ints, number: int, home: int, at: int, option: Ints
) -> bool:
    link, before, after = option[LINK], v.before[number], v.after[number]
    clean = home == link and v.state[number] == BEFORE
    held, until = max(v.since[number], 0), min(after, len(r.ends))
    if not clean:
        if not has_room(links, r, link, t.nbytes[v.storage[number]], held, until):
            return False
        option[SINCE], option[UNTIL] = held, until
    _out(links, v, r, last, number, at, clean, option)
    free = option[FREE]
    wait = 0 if at == NO else max(0, free - r.starts[at])
    since = free if at == NO else max(free - wait, r.ends[at])
    late = _back(links, v, r, number, since, at != NO, option)
    if late == NO:
        return False
    begin, end = max(place_from(r, free), before + 1), min(place_until(r, option[BACK_START]), after)
    if at != NO:
        begin, end = min(begin, at), max(end, at + 1)
        option[WAIT_AT] = at if wait else NO
    option[BEGIN], option[END], option[STALL] = begin, end, wait + late
    return True


@compiled
def _around(t: Tables, links: Links, v: Idles, r: Ledger, last: Ints, number: int, at: int, option: Ints) -> bool:
    link, after, count = option[LINK], v.after[number], len(r.ends)
    if not has_room(links, r, link, t.nbytes[v.storage[number]], 0, count):
        return False
    option[SINCE], option[UNTIL] = 0, count
    if after >= count:
        option[BEGIN], option[END] = 0, count
        return True
    first = at != NO and at < after
    _out(links, v, r, last, number, NO if first else at, v.state[number] == BEFORE, option)
    free = option[FREE]
    wait = 0 if at == NO or first else max(0, free - r.starts[at])
    late = _back(links, v, r, number, r.ends[at] if first else 0, at != NO, option)
    tail = 0 if option[OUT_NS] == NO else max(0, option[OUT_START] + option[OUT_NS] - r.starts[count])
    if late == NO or (tail and at == NO):
        return False
    begin, until = max(place_from(r, free), v.before[number] + 1), min(place_until(r, option[BACK_START]), after)
    if at != NO:
        if first:
            until = max(until, at + 1)
        else:
            begin = min(begin, at)
        option[WAIT_AT] = at if wait else NO
    option[BEGIN], option[END], option[BEGIN_2], option[END_2] = 0, until, begin, count
    option[STALL] = wait + late + tail
    return True


@compiled
def _out(links: Links, v: Idles, r: Ledger, last: Ints, number: int, at: int, clean: bool, option: Ints) -> None:
    """The copy to the tier, and when the storage is released; what starts with the op ``at`` gives way."""
    s, link = v.storage[number], option[LINK]
    done = end_of(r, v.before[number])
    option[FREE] = done
    if clean:
        return
    k = last[s]
    while k != NO:
        known = r.chosen[k]
        if (
            known[LINK] == link
            and known[OUT_NS] != NO
            and v.state[k] == v.state[number]
            and known[OUT_START] + known[OUT_NS] <= done
        ):
            return
        k = v.other[k]
    time_ns, since = links.out_ns[link, s], end_of(r, v.since[number])
    start = latest(r, 2 * link, since, done, time_ns)
    if start == NO:
        start = earliest(r, 2 * link, since, time_ns, NO if at == NO else r.starts[at])
    option[OUT_START], option[OUT_NS] = start, time_ns
    option[FREE] = max(start + time_ns, done)


@compiled
def _back(links: Links, v: Idles, r: Ledger, number: int, since: int, forced: bool, option: Ints) -> int:
    """The fetch, as late as it may be; returns how long the op that needs it waits for it, NO if it may not wait."""
    link = option[LINK]
    engine, time_ns = 2 * link + 1, links.back_ns[link, v.storage[number]]
    due = r.starts[v.after[number]]
    start = latest(r, engine, since, due, time_ns)
    late = 0
    if start == NO:
        if not forced:
            return NO
        start = earliest(r, engine, since, time_ns, due)
        late = max(0, start + time_ns - due)
    option[BACK_START], option[BACK_NS] = start, time_ns
    return late
