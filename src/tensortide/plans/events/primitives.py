"""The primitive steps of a plan: offloads as two, and the releases that the plan leaves unsaid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from tensortide.errors import PlanError
from tensortide.plans.instance import DEVICE, Instance
from tensortide.plans.model import Compute, Copy, Drop, Evict, Fetch, Offload, Receive, Send, Step

Primitive: TypeAlias = Compute | Evict | Copy | Fetch | Drop | Send | Receive


class Primitives(NamedTuple):
    """``steps`` as they are played, and for each the place of its ``origin`` in the plan's list.

    A release that the plan leaves unsaid has the origin of the step that it follows, -1 before the first.
    """

    steps: tuple[Primitive, ...]
    origin: tuple[int, ...]
    unsaid: tuple[bool, ...]


def homes(instance: Instance, home: Mapping[int, str] | None) -> dict[int, str]:
    """The place of every storage that exists before the step: that of the plan's ``home``, or else the instance's.

    Raises PlanError for a home that is no place, and for one of a storage that cannot have it.
    """
    found = {s: instance.home.get(s, DEVICE) for s, storage in enumerate(instance.storages) if storage.given}
    for s, place in (home or {}).items():
        if not 0 <= s < len(instance.storages):
            raise PlanError(
                f"the plan says where storage {s} is at home: there are {len(instance.storages)}", storage=s
            )
        if s not in found or not (instance.storages[s].persistent or place == found[s]):
            raise PlanError(f"storage {s} has no home: it is not persistent", storage=s)
        if instance.storages[s].pinned and place != found[s]:
            raise PlanError(f"storage {s} is pinned to {found[s]}: its home cannot be {place}", storage=s)
        found[s] = place
    for place in set(found.values()) - {DEVICE}:
        instance.link(place)
    return found


def primitives(instance: Instance, steps: Sequence[Step], where: Mapping[int, str]) -> Primitives:
    """``steps`` with each ``Offload`` as ``Copy`` and ``Evict``, and the releases that are left unsaid.

    A storage that no later step touches and that need not be on the device after the step is evicted right after the
    last step that touches it; a copy on a tier that no later step uses, and that is not its home, is dropped right
    after its last transfer. ``where``: the homes. Raises PlanError for a step that names no op, storage or link.
    """
    told, origins = _primitives(instance, steps)
    after = _unsaid(instance, told, where)
    played: list[Primitive] = []
    origin: list[int] = []
    unsaid: list[bool] = []
    for number in range(-1, len(told)):
        said, more = told[number : number + 1] if number >= 0 else [], after.get(number, [])
        played += [*said, *more]
        origin += [origins[number] if said else -1] * (len(said) + len(more))
        unsaid += [False] * len(said) + [True] * len(more)
    return Primitives(tuple(played), tuple(origin), tuple(unsaid))


def _primitives(instance: Instance, steps: Sequence[Step]) -> tuple[list[Primitive], list[int]]:
    ops, storages = len(instance.ops), len(instance.storages)
    links = {link.name for link in instance.links}
    told: list[Primitive] = []
    origin: list[int] = []
    for number, step in enumerate(steps):
        if isinstance(step, Compute):
            if not 0 <= step.op < ops:
                raise PlanError(f"step {number} computes op {step.op} of {ops}", step=number)
            told.append(step)
        else:
            if not 0 <= step.storage < storages:
                raise PlanError(
                    f"step {number} is {step}: there are {storages} storages", step=number, storage=step.storage
                )
            if isinstance(step, Copy | Offload | Fetch | Drop) and step.link not in links:
                has = ", ".join(sorted(links)) or "none"
                raise PlanError(
                    f"step {number} is {step}: the machine has no such link, but {has}",
                    step=number,
                    storage=step.storage,
                )
            if isinstance(step, Offload):
                told.append(Copy(step.storage, step.link))
                origin.append(number)
                told.append(Evict(step.storage))
            else:
                told.append(step)
        origin.append(number)
    return told, origin


def _unsaid(instance: Instance, steps: Sequence[Primitive], where: Mapping[int, str]) -> dict[int, list[Primitive]]:
    """Releases that follow a step, by the number of the step; -1 is before the first."""
    last = {s: -1 for s, place in where.items() if place == DEVICE}
    copies: dict[tuple[int, str], int] = {}
    after: dict[int, list[Primitive]] = {}
    received: set[int] = set()
    for number, step in enumerate(steps):
        if isinstance(step, Compute):
            op = instance.ops[step.op]
            last.update(dict.fromkeys((*op.reads, *op.writes), number))
            last.update({s: number for s in op.makes if s not in last})
        elif isinstance(step, Evict):
            last.pop(step.storage, None)
        elif isinstance(step, Drop):
            copies.pop((step.storage, step.link), None)
        elif isinstance(step, Receive):
            if (before := last.get(step.storage)) is not None:  # an older value of it
                after.setdefault(before, []).append(Evict(step.storage))
            last[step.storage] = number
            received.add(step.storage)
        elif isinstance(step, Send):
            last[step.storage] = number
        else:
            last[step.storage] = number
            copies[step.storage, step.link] = number
    for (s, link), number in sorted(copies.items()):
        if where.get(s) != link:
            after.setdefault(number, []).append(Drop(s, link))
    for s, number in sorted(last.items()):
        storage = instance.storages[s]
        if s in received or not (storage.kept or (storage.stays and where.get(s, DEVICE) == DEVICE)):
            after.setdefault(number, []).append(Evict(s))
    return after
