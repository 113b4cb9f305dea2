"""Sequences of ops: read off plans, played, and written out as plans, with transfers between them or without."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import numpy as np

from tensortide.errors import PlanError
from tensortide.plans.instance import Instance
from tensortide.plans.model import Compute, Copy, Drop, Evict, Fetch, Step
from tensortide.plans.under_budget.kernels import profile
from tensortide.plans.under_budget.tables import NONE, Ints, Tables

Token: TypeAlias = Compute | Copy | Fetch | Drop
MOVED = -3
"""The state of what a copy finds, which is whatever was written last."""


class Evaluated(NamedTuple):
    """A sequence with its time, and the bytes resident during each of its ops."""

    sequence: Ints
    time_ns: int
    level: Ints

    @property
    def peak_bytes(self) -> int:
        return int(self.level.max(initial=0))


def firsts(t: Tables, sequence: Ints) -> Ints:
    """For each op the place of its first run in ``sequence``; -1 for one that never runs."""
    found = np.full(len(t.ns), -1, np.int64)
    found[sequence[::-1]] = np.arange(len(sequence) - 1, -1, -1)
    return found


def evaluate(instance: Instance, t: Tables, sequence: Iterable[int], *, free: bool = True) -> Evaluated:
    """Play ``sequence``. Raises PlanError if it is no plan of the instance; unless ``free``, first runs are in recorded
    order."""
    ops = np.fromiter(sequence, np.int64)
    first = firsts(t, ops)
    if (first < 0).any():
        raise PlanError(f"op {int(first.argmin())} never runs")
    again = np.setdiff1d(np.arange(len(ops)), first)
    if t.once[ops[again]].any():
        op = int(ops[again][t.once[ops[again]] > 0][0])
        raise PlanError(f"op {op} ({instance.ops[op].name}) runs twice; it may run only once")
    if not free and (np.diff(first) < 0).any():
        raise PlanError("the ops do not run in recorded order")
    for op, record in enumerate(instance.ops):
        late = [other for other in record.after if first[other] > first[op]]
        if late:
            raise PlanError(f"op {op} ({record.name}) runs before op {late[0]}, which makes a view that it uses")
    level = np.zeros(len(ops), np.int64)
    wrong = profile(t, ops, first, np.zeros(len(t.nbytes), np.int64), level)
    if wrong >= 0:
        raise PlanError(f"step {wrong} runs op {int(ops[wrong])} where what it touches is not as recorded")
    return Evaluated(ops, int(t.ns[ops].sum()), level)


def sequence_of(steps: Iterable[Step]) -> list[int]:
    """The ops of ``steps`` in order. Raises PlanError for a plan with transfers."""
    found = []
    for step in steps:
        if isinstance(step, Compute):
            found.append(step.op)
        elif not isinstance(step, Evict):
            raise PlanError(f"a plan with the step {step} is no sequence of ops")
    return found


def steps_of(t: Tables, tokens: Iterable[Token]) -> tuple[Step, ...]:
    """Complete ops and transfers with evictions: each residence but the last of a storage, which ends by itself, ends
    after its last touch."""
    ran: set[int] = set()
    listed: list[tuple[Token, bool]] = []
    for token in tokens:
        listed.append((token, isinstance(token, Compute) and token.op in ran))
        if isinstance(token, Compute):
            ran.add(token.op)
    need, seen = t.final.tolist(), [False] * len(t.nbytes)
    steps: list[Step] = []
    for token, again in reversed(listed):
        if isinstance(token, Compute):
            op = token.op
            made = t.made[t.make_ends[op] : t.make_ends[op + 1]].tolist()
            fresh = [s for s in made if need[s] in (op, NONE, MOVED) and not (again and t.pinned[s])]
            at = range(int(t.touch_ends[op]), int(t.touch_ends[op + 1]))
            used = {int(t.touched[k]): int(t.state[k]) for k in at if not (again and t.blind[k])}
        else:
            made = fresh = [token.storage] if isinstance(token, Fetch) else []
            s = token.storage
            used = {s: MOVED if need[s] == NONE else need[s]} if isinstance(token, Copy) else {}
        steps += [Evict(s) for s in sorted((*fresh, *used), reverse=True) if need[s] == NONE and seen[s]]
        steps.append(token)
        for s in fresh:
            need[s] = NONE
        for s, state in used.items():
            need[s] = state
        for s in (*made, *used):
            seen[s] = True
    return tuple(reversed(steps))
