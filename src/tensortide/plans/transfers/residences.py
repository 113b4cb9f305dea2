"""Idle intervals of storages in a sequence of ops, and the steps that a sequence and its transfers make.

A *sequence* is a list of ops in which each stands at least once; what stands again is recomputed. A *place* is the
position of an op in it; -1 is the start of the step, and the length of the sequence its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensortide.plans.instance import BEFORE, Instance
from tensortide.plans.model import Compute, Copy, Drop, Evict, Fetch, Step

Ints: TypeAlias = NDArray[np.int64]
Token: TypeAlias = Compute | Copy | Fetch | Drop


class Touch(NamedTuple):
    """A use of a storage at ``place``, whose contents are then of ``state``. ``makes``: a residence begins with it."""

    place: int
    state: int
    makes: bool = False


class Idle(NamedTuple):
    """A stretch between two touches of ``storage``, at the places ``before`` and ``after``, in which it may be away.

    Its contents are complete since the op at ``since`` and of ``state``. ``wraps``: from the last touch of a persistent
    storage, ``before``, over the end of the step to its first one, ``after``.
    """

    storage: int
    before: int
    after: int
    since: int
    state: int
    wraps: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Residences:
    """``level``: bytes resident while each op of ``sequence`` runs if nothing moves. ``idle``: what may be away."""

    sequence: tuple[int, ...]
    level: Ints
    idle: tuple[Idle, ...]


def residences(instance: Instance, sequence: Sequence[int]) -> Residences:
    """Find the residences of a sequence in which nothing moves, each as short as it can be."""
    count = len(sequence)
    change = np.zeros(count + 1, np.int64)
    level = np.array([instance.ops[op].workspace for op in sequence], np.int64)
    idle: list[Idle] = []
    for s, (storage, found) in enumerate(zip(instance.storages, touches(instance, sequence), strict=True)):
        for group in _groups(found, storage.pinned):
            begin, end = max(group[0].place, 0), min(group[-1].place + 1, count)
            change[begin] += storage.nbytes
            change[max(begin, end)] -= storage.nbytes
            for touch in group[1:]:
                if touch.makes:
                    level[touch.place] += storage.nbytes
            if storage.nbytes and not storage.pinned:
                idle += _idle(s, group, count, storage.persistent)
    return Residences(tuple(sequence), level + np.cumsum(change)[:count], tuple(idle))


def touches(instance: Instance, sequence: Sequence[int]) -> list[list[Touch]]:
    """For each storage its touches by place, those of the start and the end of the step included."""
    found: list[list[Touch]] = [[] for _ in instance.storages]
    ran: set[int] = set()
    for s, storage in enumerate(instance.storages):
        if storage.given:
            found[s].append(Touch(-1, BEFORE, True))
    for place, number in enumerate(sequence):
        op = instance.ops[number]
        skipped = op.blind if number in ran else ()
        for s, state in instance.states[number].items():
            if s not in skipped:
                found[s].append(Touch(place, number if s in op.writes else state))
        for s in op.makes:
            found[s].append(Touch(place, number, True))
        ran.add(number)
    final = instance.states[-1]
    for s, storage in enumerate(instance.storages):
        if storage.stays and s in final:
            found[s].append(Touch(len(sequence), final[s]))
    return found


def _groups(found: Sequence[Touch], pinned: bool) -> Iterator[list[Touch]]:
    """Yield the touches of each residence; what is pinned has only one, and is made into second copies."""
    group: list[Touch] = []
    for touch in found:
        if touch.makes and group and not pinned:
            yield group
            group = []
        group.append(touch)
    if group:
        yield group


def _idle(s: int, group: Sequence[Touch], count: int, persistent: bool) -> Iterator[Idle]:
    since = group[0].place
    for one, two in pairwise(group):
        if two.place > one.place + 1:
            yield Idle(s, one.place, two.place, since, one.state)
        if two.state != one.state:
            since = two.place
    if persistent:
        inner = [touch.place for touch in group if 0 <= touch.place < count]
        first, last = (inner[0], inner[-1]) if inner else (count, -1)
        yield Idle(s, last, first, since, group[-1].state, wraps=True)


def steps_of(instance: Instance, tokens: Iterable[Token]) -> tuple[Step, ...]:
    """Complete ops and transfers with evictions: each residence but the last of a storage ends after its last touch."""
    ran: set[int] = set()
    again = []
    tokens = list(tokens)
    for token in tokens:
        again.append(isinstance(token, Compute) and token.op in ran)
        if isinstance(token, Compute):
            ran.add(token.op)
    restored: set[int] = set()
    steps: list[Step] = []
    for token, repeated in zip(reversed(tokens), reversed(again), strict=True):
        if isinstance(token, Compute):
            op = instance.ops[token.op]
            fresh = [s for s in op.makes if not (repeated and instance.storages[s].pinned)]
            used = [*fresh, *(s for s in (*op.reads, *op.writes) if not (repeated and s in op.blind))]
        else:
            fresh = [token.storage] if isinstance(token, Fetch) else []
            used = [] if isinstance(token, Drop) else [token.storage]
        steps += [Evict(s) for s in sorted(restored.intersection(used), reverse=True)]
        steps.append(token)
        restored.difference_update(used)
        restored.update(fresh)
    return tuple(reversed(steps))
