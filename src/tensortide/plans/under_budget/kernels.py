"""Sequences played: legality, time and bytes of a plan without transfers, in one pass from its end to its start."""

from __future__ import annotations

from typing import NamedTuple

from tensortide.compiled import compiled, entry
from tensortide.plans.instance import BEFORE
from tensortide.plans.under_budget.tables import NONE, Floats, Ints, Tables

WRONG = -1
"""Bytes of an op that finds a storage in another state than the recorded step."""
BLOCK = 64
"""Places whose highest level is kept together."""
PRESENT, ABSENT, NEVER = 0, -1, -2
"""What a storage is while its restoration is looked for."""
EVALUATED, STAMP, LEAST_NS, STOP, EXCHANGE, EXCHANGED = range(6)
"""Places of ``Survey.counts``: sequences evaluated; the last mark; the time that a move counts as taking at least; 1 to
end at once; 1 to keep smaller sources resident in exchange for what they restore; the bytes of those that the last
restoration keeps so."""
FULL = -1
"""The room of a Survey is too small."""
_UNLIMITED = 1 << 62


@entry
def profile(t: Tables, sequence: Ints, first: Ints, need: Ints, level: Ints) -> int:
    """Bytes resident while each op of ``sequence`` runs, into ``level``; -1, or the place of an op that cannot run.

    ``first``: for each op the place of its first run. ``need`` is room for a state per storage. Residences are the
    shortest ones: from an op that makes a storage to the last op that touches what it made. A storage that is made
    while an older copy of it is needed later on gets a second one, which goes when the op ends.
    """
    held = 0
    for s in range(len(t.nbytes)):
        need[s] = t.final[s]
        if need[s] != NONE:
            held += t.nbytes[s]
    for place in range(len(sequence) - 1, -1, -1):
        op = sequence[place]
        again = first[op] != place
        fresh, second = _make(t, op, again, need)
        found = _touch(t, op, again, need)
        if second == WRONG or found == WRONG:
            return place
        level[place] = held + second + found + t.workspace[op]
        held += found - fresh
    for s in range(len(t.nbytes)):
        if need[s] != NONE and not (t.given[s] and need[s] == BEFORE):
            return 0
    return -1


@compiled
def _make(t: Tables, op: int, again: bool, need: Ints) -> tuple[int, int]:
    """Bytes of outputs that ``op`` makes for later ops, and of those that go when it ends."""
    fresh, second = 0, 0
    for k in range(t.make_ends[op], t.make_ends[op + 1]):
        s = t.made[k]
        if need[s] == op and not (again and t.pinned[s]):
            need[s] = NONE
            fresh += t.nbytes[s]
        elif need[s] != NONE and not again:
            return 0, WRONG
        else:
            second += t.nbytes[s]
    return fresh, second


@compiled
def _touch(t: Tables, op: int, again: bool, need: Ints) -> int:
    """Bytes of what ``op`` touches and no later op needs; WRONG if a later op needs another state of it."""
    found = 0
    for k in range(t.touch_ends[op], t.touch_ends[op + 1]):
        if again and t.blind[k]:
            continue
        s = t.touched[k]
        if need[s] == NONE:
            found += t.nbytes[s]
        elif need[s] != (op if t.writes[k] else t.state[k]):
            return WRONG
        need[s] = t.state[k]
    return found


class Survey(NamedTuple):
    """Surroundings of each place of a sequence; see ``survey``.

    The events of storage s, in which an op touches it or makes it, are ``[begins[s], ends[s])``, by ``place``; -1 is
    the start of the step. ``after``: the state that the event leaves, ``needed``: that which the next one needs; NONE:
    the storage is not resident then. Idle interval g of ``storage[g]`` lies between the places ``before[g]`` and
    ``behind[g]``, which touch it and no op between does. ``level``: bytes at each place; ``top``: the most in each
    block of ``BLOCK``.
    ``need``, ``next``, ``have``, ``stamp``: room for a number per storage, ``stack`` and ``burst`` for many;
    ``counts``: see ``EVALUATED`` and the names beside it.
    """

    begins: Ints
    ends: Ints
    place: Ints
    after: Ints
    needed: Ints
    storage: Ints
    before: Ints
    behind: Ints
    level: Ints
    top: Ints
    need: Ints
    next: Ints
    have: Ints
    stamp: Ints
    stack: Ints
    burst: Ints
    counts: Ints


@compiled
def survey(t: Tables, sequence: Ints, first: Ints, level: Ints, v: Survey) -> int:
    """Fill ``v`` for ``sequence``, which ``profile`` has found legal; returns the number of idle intervals, or FULL."""
    count = len(sequence)
    if _room_for_events(t, sequence, v) > len(v.place) or count > len(v.level):
        return FULL
    for s in range(len(t.nbytes)):
        v.need[s] = t.final[s]
        v.next[s] = count
        v.begins[s] = v.ends[s]
    found = 0
    for place in range(count - 1, -1, -1):
        op = sequence[place]
        again = first[op] != place
        for k in range(t.make_ends[op], t.make_ends[op + 1]):
            s = t.made[k]
            if v.need[s] == NONE or (v.need[s] == op and not (again and t.pinned[s])):
                found = _event(t, v, s, place, op, found)
                v.need[s] = NONE
        for k in range(t.touch_ends[op], t.touch_ends[op + 1]):
            if again and t.blind[k]:
                continue
            s = t.touched[k]
            found = _event(t, v, s, place, op if t.writes[k] else t.state[k], found)
            v.need[s] = t.state[k]
    for s in range(len(t.nbytes)):
        if t.given[s]:
            found = _event(t, v, s, -1, BEFORE, found)
    for block in range((count + BLOCK - 1) // BLOCK):
        v.top[block] = 0
        for place in range(block * BLOCK, min(count, (block + 1) * BLOCK)):
            v.level[place] = level[place]
            v.top[block] = max(v.top[block], level[place])
    return found


@compiled
def _room_for_events(t: Tables, sequence: Ints, v: Survey) -> int:
    """Set where the events of each storage end; returns how many there may be at most."""
    for s in range(len(t.nbytes)):
        v.ends[s] = t.given[s]
    for place in range(len(sequence)):
        op = sequence[place]
        for k in range(t.make_ends[op], t.make_ends[op + 1]):
            v.ends[t.made[k]] += 1
        for k in range(t.touch_ends[op], t.touch_ends[op + 1]):
            v.ends[t.touched[k]] += 1
    total = 0
    for s in range(len(t.nbytes)):
        total += v.ends[s]
        v.ends[s] = total
    return total


@compiled
def _event(t: Tables, v: Survey, s: int, place: int, state: int, found: int) -> int:
    """Note an event of ``s``, before all that are noted, and the idle interval behind it; returns their number."""
    v.begins[s] -= 1
    at = v.begins[s]
    v.place[at], v.after[at], v.needed[at] = place, state, v.need[s]
    if v.need[s] != NONE and v.next[s] > place + 1 and t.nbytes[s] and not t.pinned[s]:
        v.storage[found], v.before[found], v.behind[found] = s, place, v.next[s]
        found += 1
    v.next[s] = place
    return found


@compiled
def _last_event(v: Survey, s: int, place: int) -> int:
    """The last event of ``s`` before ``place``; -1 if there is none."""
    low, high = v.begins[s], v.ends[s]
    while low < high:
        middle = (low + high) // 2
        if v.place[middle] < place:
            low = middle + 1
        else:
            high = middle
    return low - 1 if low > v.begins[s] else -1


@compiled
def _most(v: Survey, begin: int, end: int) -> int:
    """The most bytes at any place of ``[begin, end)``."""
    most = 0
    place = begin
    while place < end:
        if place % BLOCK == 0 and place + BLOCK <= end:
            most = max(most, v.top[place // BLOCK])
            place += BLOCK
        else:
            most = max(most, v.level[place])
            place += 1
    return most


@compiled
def _present(
    t: Tables, v: Survey, s: int, state: int, place: int, stamp: int, limit: int, kept: int, since: int, freed: int
) -> int:
    """Return how ``s`` can be in ``state`` at ``place``: PRESENT; ABSENT, so it is to be restored; NEVER; or the bytes
    that it takes to keep it resident from its last touch on, where they fit within ``limit`` beside ``kept`` others.

    From ``since`` on they may exceed ``limit``, too, if all that is kept so takes less than ``freed``."""
    if v.stamp[s] == stamp:
        return PRESENT if v.have[s] == state else NEVER
    event = _last_event(v, s, place)
    if event < 0:
        return NEVER
    if v.needed[event] != NONE:
        return PRESENT if v.needed[event] == state else NEVER
    if v.after[event] == state:
        if t.nbytes[s] == 0:
            return PRESENT
        if _most(v, v.place[event] + 1, place) + kept + t.nbytes[s] <= limit:
            return t.nbytes[s]
        if kept + t.nbytes[s] < freed and _most(v, v.place[event] + 1, since) + kept + t.nbytes[s] <= limit:
            v.counts[EXCHANGED] += t.nbytes[s]
            return t.nbytes[s]
    return NEVER if t.given[s] or t.pinned[s] else ABSENT


@compiled
def restore(t: Tables, v: Survey, g: int, stamp: int, limit: int, most_ns: int) -> int:
    """Put the ops that restore what idle interval ``g`` holds into ``v.burst``; returns how many, -1: impossible or
    longer than ``most_ns``. ``stamp``: a number not used before. Nothing is kept resident for it above ``limit``, but
    for smaller sources in the interval, in exchange.
    """
    s, place = v.storage[g], v.behind[g]
    state = v.needed[_last_event(v, s, place)]
    since, freed = v.before[g] + 1, t.nbytes[s] * v.counts[EXCHANGE]
    v.counts[EXCHANGED] = 0
    depth, count, kept, spent = 1, 0, 0, 0
    v.stamp[s], v.have[s] = stamp, NONE
    v.stack[0], v.stack[1], v.stack[2] = s, state, t.write_ends[s]
    while depth:
        base = 3 * depth - 3
        target, wanted, k = v.stack[base], v.stack[base + 1], v.stack[base + 2]
        if k == t.write_ends[target + 1] or t.writers[k] > wanted:
            if v.stamp[target] != stamp or v.have[target] != wanted:
                return -1
            depth -= 1
            continue
        op = t.writers[k]
        spent_now = spent + t.ns[op]
        if t.once[op] or spent_now > most_ns or count == len(v.burst) or depth * 3 + 3 > len(v.stack):
            return -1
        asked = -1
        for j in range(t.touch_ends[op], t.touch_ends[op + 1]):
            u = t.touched[j]
            if t.blind[j] or u == target:
                continue
            found = _present(t, v, u, t.state[j], place, stamp, limit, kept, since, freed)
            if found == NEVER:
                return -1
            if found == ABSENT:
                asked = j
                break
            if found != PRESENT:
                kept += found
                v.stamp[u], v.have[u] = stamp, t.state[j]
        if asked >= 0:
            u = t.touched[asked]
            v.stack[base + 3], v.stack[base + 4], v.stack[base + 5] = u, t.state[asked], t.write_ends[u]
            depth += 1
            continue
        v.burst[count] = op
        count += 1
        spent = spent_now
        v.stack[base + 2] = k + 1
        _mark(t, v, op, place, stamp)
    return count


@compiled
def _mark(t: Tables, v: Survey, op: int, place: int, stamp: int) -> None:
    """Note what ``op`` leaves behind when it runs again at ``place``."""
    for j in range(t.make_ends[op], t.make_ends[op + 1]):
        m = t.made[j]
        event = _last_event(v, m, place)
        if event < 0 or v.needed[event] == NONE or v.stamp[m] == stamp:
            v.stamp[m], v.have[m] = stamp, op
    for j in range(t.touch_ends[op], t.touch_ends[op + 1]):
        if t.writes[j] and not t.blind[j]:
            v.stamp[t.touched[j]], v.have[t.touched[j]] = stamp, op


@compiled
def best_idle(
    t: Tables,
    v: Survey,
    count: int,
    place: int,
    sums: Floats,
    noise: Floats,
    limit: int,
    stamp: int,
    best: Ints,
    score: Floats,
) -> int:
    """Put the idle intervals around ``place`` with the most weight per added time into ``best``, the best first.

    Returns the last stamp used. ``sums``: of weights of places before each; ``noise``: a factor per storage; ``score``:
    room.
    """
    for k in range(len(best)):
        score[k], best[k] = 0.0, -1
    for g in range(count):
        if not v.before[g] < place < v.behind[g]:
            continue
        s, q = v.storage[g], v.behind[g]
        gain = t.nbytes[s] * (sums[q] - sums[v.before[g] + 1]) * noise[s]
        most = _UNLIMITED
        if score[-1] > 0:
            most = int(min(gain / score[-1], 1e18))
        stamp += 1
        length = restore(t, v, g, stamp, limit, most)
        if length < 0:
            continue
        if v.counts[EXCHANGED]:
            gain *= 1 - v.counts[EXCHANGED] / t.nbytes[s]
        ns = v.counts[LEAST_NS]  # what takes no time and frees little must not come first
        for k in range(length):
            ns += t.ns[v.burst[k]]
        _insert(score, best, gain / ns, g)
    return stamp


@compiled
def _insert(score: Floats, best: Ints, value: float, g: int) -> None:
    k = len(best) - 1
    if value <= score[k]:
        return
    while k > 0 and score[k - 1] < value:
        score[k], best[k] = score[k - 1], best[k - 1]
        k -= 1
    score[k], best[k] = value, g
