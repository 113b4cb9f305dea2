"""Ways to move an idle interval over a link: its transfers, and what they free; compiled."""

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
    UNTIL,
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
def is_edge(v: Idles, r: Ledger, number: int) -> bool:
    """Tell whether an idle interval begins or ends with the step without wrapping around it."""
    return not v.wraps[number] and (v.before[number] < 0 or v.after[number] >= len(r.ends))


@compiled
def option_of(t: Tables, links: Links, v: Idles, r: Ledger, last: Ints, number: int, link: int, option: Ints) -> bool:
    """Put the option of an idle interval over ``link`` into ``option``, which stalls nothing. False if there is none.

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
    option[LINK] = link
    if v.wraps[number]:
        found = home == NO and not edges and _around(t, links, v, r, last, number, option)
    else:
        found = not (home != NO and is_edge(v, r, number)) and _between(t, links, v, r, last, number, home, option)
    return found and (option[BEGIN] < option[END] or option[BEGIN_2] < option[END_2])


@compiled
def _between(t: Tables, links: Links, v: Idles, r: Ledger, last: Ints, number: int, home: int, option: Ints) -> bool:
    link, before, after = option[LINK], v.before[number], v.after[number]
    clean = home == link and v.state[number] == BEFORE
    held, until = max(v.since[number], 0), min(after, len(r.ends))
    if not clean:
        if not has_room(links, r, link, t.nbytes[v.storage[number]], held, until):
            return False
        option[SINCE], option[UNTIL] = held, until
    _out(links, v, r, last, number, clean, option)
    if not _back(links, v, r, number, option[FREE], option):
        return False
    option[BEGIN] = max(place_from(r, option[FREE]), before + 1)
    option[END] = min(place_until(r, option[BACK_START]), after)
    return True


@compiled
def _around(t: Tables, links: Links, v: Idles, r: Ledger, last: Ints, number: int, option: Ints) -> bool:
    link, after, count = option[LINK], v.after[number], len(r.ends)
    if not has_room(links, r, link, t.nbytes[v.storage[number]], 0, count):
        return False
    option[SINCE], option[UNTIL] = 0, count
    if after >= count:
        option[BEGIN], option[END] = 0, count
        return True
    _out(links, v, r, last, number, v.state[number] == BEFORE, option)
    is_late = option[OUT_NS] != NO and option[OUT_START] + option[OUT_NS] > r.starts[count]
    if is_late or not _back(links, v, r, number, 0, option):
        return False
    option[BEGIN], option[END] = 0, min(place_until(r, option[BACK_START]), after)
    option[BEGIN_2], option[END_2] = max(place_from(r, option[FREE]), v.before[number] + 1), count
    return True


@compiled
def _out(links: Links, v: Idles, r: Ledger, last: Ints, number: int, clean: bool, option: Ints) -> None:
    """The copy to the tier, and when the storage is released."""
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
        start = earliest(r, 2 * link, since, time_ns)
    option[OUT_START], option[OUT_NS] = start, time_ns
    option[FREE] = max(start + time_ns, done)


@compiled
def _back(links: Links, v: Idles, r: Ledger, number: int, since: int, option: Ints) -> bool:
    """The fetch, as late as it may be; False if the op that needs it would wait for it."""
    link = option[LINK]
    engine, time_ns = 2 * link + 1, links.back_ns[link, v.storage[number]]
    start = latest(r, engine, since, r.starts[v.after[number]], time_ns)
    option[BACK_START], option[BACK_NS] = start, time_ns
    return bool(start != NO)
