"""Touches of storages in a sequence of ops, and the steps that a sequence and its transfers make.

A *sequence* is a list of ops in which each stands at least once; what stands again is recomputed. A *place* is the
position of an op in it; -1 is the start of the step, and the length of the sequence its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from tensortide.plans.instance import BEFORE, Instance
from tensortide.plans.model import Compute, Copy, Drop, Evict, Fetch, Step

Token: TypeAlias = Compute | Copy | Fetch | Drop


class Touch(NamedTuple):
    """A use of a storage at ``place``, whose contents are then of ``state``. ``makes``: a residence begins with it."""

    place: int
    state: int
    makes: bool = False


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
