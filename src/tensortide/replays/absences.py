"""Absences: stretches in which a storage that is used again is not resident, and what ends them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tensortide.plans import Compute, Copy, Drop, Evict, Fetch
from tensortide.plans.events.played import Played
from tensortide.plans.instance import DEVICE, Instance


@dataclass(slots=True)
class Absence:
    """A stretch in which ``storage`` is not resident on the device, ``from_ns`` to ``to_ns``, and is used later.

    Numbers of steps are those of ``Played.steps``, -1 for none. ``released``: its release (none: its home is a tier);
    ``copied``: the copy out that keeps its contents; ``fetched``: the fetch that brings it back, or ``recomputed``, the
    op runs that make it again; ``used``: the first op run after those that touches it.
    """

    storage: int
    from_ns: int
    to_ns: int = 0
    released: int = -1
    copied: int = -1
    fetched: int = -1
    recomputed: list[int] = field(default_factory=list)
    used: int = -1


def absences(problem: Instance, played: Played) -> tuple[Absence, ...]:
    """The absences of a played plan, in the order in which they end. What never comes back is not absent but dead."""
    away = dict(_at_first(problem, played))
    back: dict[int, Absence] = {}
    copied: dict[int, int] = {}
    ended: list[Absence] = []
    released_ns = {change.step: change.time_ns for change in played.changes[DEVICE] if change.nbytes < 0}
    ran: set[int] = set()
    for number, step in enumerate(played.steps):
        if isinstance(step, Copy):
            copied[step.storage] = number
        elif isinstance(step, Evict):
            at = released_ns.get(number, played.issue_ns[number])
            away[step.storage] = Absence(step.storage, at, released=number, copied=copied.get(step.storage, -1))
        elif isinstance(step, Fetch):
            one = back[step.storage] = away.pop(step.storage)
            one.fetched, one.to_ns = number, played.end_ns[number]
            ended.append(one)
        elif isinstance(step, Drop):
            copied.pop(step.storage, None)
        else:
            assert isinstance(step, Compute), "a plan of one lane neither sends nor receives"
            op, again = problem.ops[step.op], step.op in ran
            ran.add(step.op)
            for storage in (*op.writes, *op.makes):
                copied.pop(storage, None)
            for storage in op.makes:
                if again and storage in away:
                    one = back[storage] = away.pop(storage)
                    one.to_ns, one.copied = played.start_ns[number], -1
                    ended.append(one)
            for storage in op.touches:
                if storage not in back:
                    continue
                if again and storage in (*op.writes, *op.makes) and back[storage].fetched < 0:
                    back[storage].recomputed.append(number)
                else:
                    back.pop(storage).used = number
    return tuple(ended)


def _at_first(problem: Instance, played: Played) -> Iterator[tuple[int, Absence]]:
    """Yield the storages whose first step is a fetch: their home is a tier."""
    seen: set[int] = set()
    for step in played.steps:
        touched = problem.ops[step.op].touches if isinstance(step, Compute) else (step.storage,)
        for storage in touched:
            if storage not in seen and isinstance(step, Fetch):
                yield storage, Absence(storage, 0)
            seen.add(storage)
