"""Sequences played: legality, time and bytes of a plan without transfers, in one pass from its end to its start."""

from __future__ import annotations

from tensortide.plans.instance import BEFORE
from tensortide.plans.under_budget.compiled import compiled
from tensortide.plans.under_budget.tables import NONE, Ints, Tables

WRONG = -1
"""Bytes of an op that finds a storage in another state than the recorded step."""


@compiled
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
