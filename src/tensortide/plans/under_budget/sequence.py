"""Sequences of ops: read off plans, played, and written out as plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tensortide.errors import PlanError
from tensortide.plans.instance import Instance
from tensortide.plans.model import Compute, Evict, Step
from tensortide.plans.under_budget.kernels import profile
from tensortide.plans.under_budget.tables import NONE, Ints, Tables


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


def with_evictions(t: Tables, sequence: Sequence[int] | Ints) -> tuple[Step, ...]:
    """The steps of a plan that runs ``sequence``: an eviction after the last touch of each residence but the last of a
    storage, which ends by itself."""
    ops = [int(op) for op in sequence]
    first = firsts(t, np.array(ops, np.int64)).tolist()
    made = [t.made[a:b].tolist() for a, b in zip(t.make_ends, t.make_ends[1:], strict=False)]
    need, seen = t.final.tolist(), [False] * len(t.nbytes)
    steps: list[Step] = []
    for place in range(len(ops) - 1, -1, -1):
        op = ops[place]
        again = first[op] != place
        touched = range(int(t.touch_ends[op]), int(t.touch_ends[op + 1]))
        pairs = [(int(t.touched[k]), int(t.state[k])) for k in touched if not (again and t.blind[k])]
        fresh = [s for s in made[op] if need[s] in (op, NONE) and not (again and t.pinned[s])]
        gone = [s for s in (*fresh, *(s for s, _ in pairs)) if need[s] == NONE and seen[s]]
        steps += map(Evict, sorted(gone, reverse=True))
        steps.append(Compute(op))
        for s in fresh:
            need[s] = NONE
        for s, state in pairs:
            need[s] = state
        for s in (*made[op], *(s for s, _ in pairs)):
            seen[s] = True
    return tuple(reversed(steps))
