"""Transfers on demand: a plan wherever ops fit one by one, however little room there is, and however long it takes.

What is touched farthest from now leaves when room is needed, and returns right before the op that touches it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.errors import PlanError
from tensortide.plans.instance import BEFORE, DEVICE, Instance
from tensortide.plans.model import Compute, Copy, Drop, Fetch
from tensortide.plans.transfers.residences import Token, Touch, touches


class _Walk:
    """Walks along a sequence; ``here``: the place of the last touch of each resident storage."""

    def __init__(self, instance: Instance, sequence: Sequence[int], budget_bytes: int, homes: dict[int, str]) -> None:
        self.instance, self.sequence, self.budget = instance, sequence, budget_bytes
        self.size = [storage.nbytes for storage in instance.storages]
        self.uses = [list(reversed(found)) for found in touches(instance, sequence)]
        self.after: list[list[Token]] = [[] for _ in range(len(sequence) + 1)]
        self.room = {link.name: link.capacity_bytes for link in instance.links}
        self.homes, self.here = homes, {}
        self.state: dict[int, int] = {}
        self.copies: dict[int, tuple[str, int]] = {}
        self.held = 0
        for s, storage in enumerate(instance.storages):
            if not storage.given:
                continue
            self.state[s] = BEFORE
            self.uses[s].pop()
            if homes.get(s, DEVICE) == DEVICE:
                self.here[s] = -1
                self.held += self.size[s]
            else:
                self.copies[s] = homes[s], BEFORE
                self._take(homes[s], self.size[s])

    def run(self) -> list[Token]:
        """The tokens. Raises PlanError if an op finds no room."""
        if self.held > self.budget:
            raise PlanError("what exists before the step exceeds the budget")
        self._leave(-1)
        for place, number in enumerate(self.sequence):
            op = self.instance.ops[number]
            used = {s for s in (*op.reads, *op.writes) if self._touched_at(s, place)}
            self._ensure(place, used, op.workspace + sum(self.size[s] for s in op.makes))
            self.after[place + 1].append(Compute(number))
            self._ran(place, used, op.makes)
            self._leave(place)
        self._finish()
        return [token for group in self.after for token in group]

    def _touched_at(self, s: int, place: int) -> bool:
        return bool(self.uses[s]) and self.uses[s][-1].place == place

    def _ensure(self, place: int, used: set[int], more: int) -> None:
        """Make room for what is to be fetched and for ``more`` bytes, then fetch."""
        absent = sorted(used - self.here.keys())
        need = more + sum(self.size[s] for s in absent)
        while self.held + need > self.budget:
            self._evict(used)
        for s in absent:
            if s not in self.copies:
                raise PlanError(f"storage {s} is neither resident nor on a tier")
            link = self.copies[s][0]
            self.after[place + 1].append(Fetch(s, link))
            self.here[s] = place
            self.held += self.size[s]
            if self.room[link] is not None and self.homes.get(s) != link:
                self._drop(s, place + 1)

    def _evict(self, kept: set[int]) -> None:
        found = [s for s in self.here if s not in kept and self.size[s] and not self.instance.storages[s].pinned]
        if not found:
            raise PlanError("no storage that could leave is left")
        s = max(found, key=lambda s: (self._next(s), self.size[s], -s))
        if self.uses[s] and not self.uses[s][-1].makes and self.copies.get(s, ("", -2))[1] != self.state[s]:
            self._copy(s)
        del self.here[s]
        self.held -= self.size[s]

    def _next(self, s: int) -> int:
        return len(self.sequence) + 1 if not self.uses[s] or self.uses[s][-1].makes else self.uses[s][-1].place

    def _copy(self, s: int) -> None:
        link = self.homes.get(s, DEVICE)
        if link == DEVICE:
            fits = [x for x in self.instance.links if self._fits(x.name, self.size[s])]
            if s in self.copies:
                fits = [x for x in self.instance.links if x.name == self.copies[s][0]]
            if not fits:
                raise PlanError(f"no tier has room for storage {s}")
            link = min(fits, key=lambda x: x.transfer_ns(self.size[s]) + x.transfer_ns(self.size[s], inwards=True)).name
        if s not in self.copies:
            self._take(link, self.size[s])
        self.copies[s] = link, self.state[s]
        self.after[self.here[s] + 1].append(Copy(s, link))

    def _fits(self, link: str, nbytes: int) -> bool:
        room = self.room[link]
        return room is None or room >= nbytes

    def _take(self, link: str, nbytes: int) -> None:
        room = self.room[link]
        if room is not None:
            self.room[link] = room - nbytes

    def _drop(self, s: int, group: int) -> None:
        link, _ = self.copies.pop(s)
        self._take(link, -self.size[s])
        self.after[group].append(Drop(s, link))

    def _ran(self, place: int, used: set[int], makes: Sequence[int]) -> None:
        for s in used:
            touch = self.uses[s].pop()
            self.here[s], self.state[s] = place, touch.state
        for s in makes:
            self.uses[s].pop()
            if s in self.here:
                continue
            self.here[s], self.state[s] = place, self.sequence[place]
            self.held += self.size[s]

    def _leave(self, place: int) -> None:
        """Evict, right after its last touch, what is not touched any more or is made again before."""
        for s in [s for s, last in self.here.items() if last == place and self._is_over(s)]:
            if self.homes.get(s, DEVICE) != DEVICE and self.copies.get(s) != (self.homes[s], self.state[s]):
                self._copy(s)
            del self.here[s]
            self.held -= self.size[s]

    def _is_over(self, s: int) -> bool:
        at_home = self.homes.get(s, DEVICE) != DEVICE
        uses = [use for use in self.uses[s][-1:] if not (at_home and use.place == len(self.sequence))]
        return not uses or (uses[-1].makes and not self.instance.storages[s].pinned)

    def _finish(self) -> None:
        count = len(self.sequence)
        stays = {s for s, found in enumerate(self.uses) if found and self.homes.get(s, DEVICE) == DEVICE}
        self._ensure(count - 1, stays, 0)


def on_demand(instance: Instance, sequence: Sequence[int], budget_bytes: int) -> tuple[list[Token], dict[int, str]]:
    """The tokens of such a plan, and the homes of persistent storages. Raises PlanError if an op finds no room."""
    homes = _homes(instance, sequence, budget_bytes)
    return _Walk(instance, sequence, budget_bytes, homes).run(), {**homes}


def _homes(instance: Instance, sequence: Sequence[int], budget_bytes: int) -> dict[int, str]:
    """Homes on tiers for so many persistent storages that the others fit before and after the step: those that are
    touched last."""
    found = touches(instance, sequence)
    homes = {s: place for s, place in instance.home.items() if instance.storages[s].given}
    room = {link.name: link.capacity_bytes for link in instance.links}
    for s, place in homes.items():
        if (capacity := room.get(place)) is not None:
            room[place] = capacity - instance.storages[s].nbytes
    before = sum(x.nbytes for s, x in enumerate(instance.storages) if x.given and s not in homes)
    after = sum(x.nbytes for s, x in enumerate(instance.storages) if x.stays and s not in homes)
    movable = [
        s for s, x in enumerate(instance.storages) if x.persistent and not x.pinned and x.nbytes and s not in homes
    ]
    for s in sorted(movable, key=lambda s: -_first(found[s], len(sequence))):
        nbytes = instance.storages[s].nbytes
        if max(before, after) <= budget_bytes:
            break
        fits = [link for link, free in room.items() if free is None or free >= nbytes]
        if fits:
            homes[s] = fits[0]
            if (capacity := room[fits[0]]) is not None:
                room[fits[0]] = capacity - nbytes
            before, after = before - nbytes, after - nbytes
    return homes


def _first(found: Sequence[Touch], count: int) -> int:
    return next((touch.place for touch in found if touch.place >= 0), count)
