"""Bytes that every plan needs, whatever moves: an op, what it touches, and what is pinned."""

from __future__ import annotations

from tensortide.plans.instance import Instance
from tensortide.plans.transfers.residences import touches
from tensortide.plans.under_budget.idle import Least


def least_with_transfers(instance: Instance, *, recorded: bool) -> Least:
    """The most that any op needs at the least, or what is on the device before the step, or after it (op -1).

    ``recorded``: ops run for the first time in recorded order, so what is pinned stays from its first touch to its
    last one; in any order, only what exists before and after the step.
    """
    count = len(instance.ops)
    pinned: list[set[int]] = [set() for _ in range(count)]
    for s, (storage, found) in enumerate(zip(instance.storages, touches(instance, range(count)), strict=True)):
        if storage.pinned and storage.nbytes and found and (recorded or (storage.given and storage.stays)):
            for place in range(max(found[0].place, 0), min(found[-1].place + 1, count)):
                pinned[place].add(s)
    size = [storage.nbytes for storage in instance.storages]
    before = tuple(s for s, x in enumerate(instance.storages) if x.given and size[s] and _is_fixed(instance, s))
    after = tuple(s for s, x in enumerate(instance.storages) if x.stays and size[s] and _is_fixed(instance, s))
    best = max((Least(sum(size[s] for s in group), -1, group) for group in (before, after)), key=lambda x: x.nbytes)
    for number, op in enumerate(instance.ops):
        resident = tuple(s for s in sorted(pinned[number].union(op.touches)) if size[s])
        nbytes = op.workspace + sum(size[s] for s in resident)
        if nbytes > best.nbytes:
            best = Least(nbytes, number, resident, op.workspace)
    return best


def _is_fixed(instance: Instance, s: int) -> bool:
    """Tell whether a storage that exists before or after the step is on the device then, whatever the plan."""
    storage = instance.storages[s]
    at_home = s in instance.home and not storage.kept
    return not at_home and (storage.kept or storage.pinned or not storage.persistent)
