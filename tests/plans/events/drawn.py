"""Random planning instances and random plans of them, legal and illegal ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

from tensortide.plans import Compute, Copy, Drop, Evict, Fetch, Offload
from tensortide.plans.instance import BEFORE, DEVICE, Instance, InstanceOp, InstanceStorage
from tensortide.plans.model import Step
from tensortide.timing.links import Link

NAMES = ("host", "ssd")


def random_instance(chance: random.Random, most_ops: int = 12, *, blind: bool = False) -> Instance:
    """Ops over storages of every kind: parameters, inputs, results, results in place; zero bytes and zero durations
    among them. With ``blind``, some ops update statistics on which their results do not depend."""
    storages: list[InstanceStorage] = []
    for _ in range(chance.randint(0, 3)):
        pinned = chance.random() < 0.2
        storages.append(InstanceStorage(chance.randint(0, 6), given=True, persistent=True, pinned=pinned))
    if blind:
        storages.append(InstanceStorage(chance.randint(0, 6), given=True, persistent=True, pinned=True))
    statistics = {len(storages) - 1} if blind else set()
    inputs = chance.choice((0, 0, 1, 2))
    storages += [InstanceStorage(chance.randint(0, 6), given=True) for _ in range(inputs)]
    there = [s for s in range(len(storages)) if s not in statistics]
    unread = there[len(there) - inputs :]
    ops: list[InstanceOp] = []
    for number in range(chance.randint(max(1, inputs), most_ops)):
        reads = set(chance.sample(there[-6:], min(len(there[-6:]), chance.randint(0, 3))))
        if unread:
            reads.add(unread.pop())
        writes = set(chance.sample(there, 1)) if there and chance.random() < 0.2 else set()
        makes = []
        for _ in range(chance.choice((0, 1, 1, 1, 2)) or not (reads or writes)):
            kept = chance.random() < 0.15
            storages.append(InstanceStorage(chance.randint(0, 9), kept=kept, pinned=kept and chance.random() < 0.3))
            makes.append(len(storages) - 1)
        there += makes
        updates = statistics if makes and chance.random() < 0.3 else set()
        ops.append(
            InstanceOp(
                f"op{number}",
                chance.choice((0, 1, 3, 5, 8, chance.randint(0, 30))),
                tuple(sorted(reads)),
                tuple(sorted(writes | updates)),
                tuple(makes),
                workspace=chance.choice((0, 0, 0, 2, 5)),
                once=chance.random() < 0.1,
                blind=tuple(updates),
                after=(chance.randrange(number),) if number and chance.random() < 0.1 else (),
            )
        )
    links = tuple(_link(chance, name) for name in NAMES[: chance.randint(0, 2)])
    home = {
        s: chance.choice(links).name
        for s, storage in enumerate(storages)
        if links and storage.persistent and not storage.pinned and chance.random() < 0.2
    }
    return Instance(tuple(ops), tuple(storages), links, home)


def _link(chance: random.Random, name: str) -> Link:
    rates = [Fraction(10**9 * chance.randint(1, 4), chance.randint(1, 3)) for _ in range(2)]
    capacity = chance.choice((None, None, 8, 20, 40))
    return Link(name, rates[0], chance.choice((0, 1, 5)), in_bytes_per_s=rates[1], capacity_bytes=capacity)


def random_plan(chance: random.Random, instance: Instance) -> tuple[list[Step], dict[int, str]]:
    """A plan that runs every op; most are legal as long as there is room."""
    home = {
        s: chance.choice([DEVICE, *(link.name for link in instance.links)])
        for s, storage in enumerate(instance.storages)
        if storage.persistent and not storage.pinned and instance.links and chance.random() < 0.3
    }
    return _Walk(chance, instance, home).steps(), home


class _Walk:
    """Walks through the ops, and now and then moves or evicts something; brings back what an op needs."""

    def __init__(self, chance: random.Random, instance: Instance, home: dict[int, str]) -> None:
        self.chance, self.instance = chance, instance
        self.found: list[Step] = []
        self.here: dict[int, int] = {}
        self.copies: dict[tuple[int, str], int] = {}
        self.home = {s: home.get(s, instance.home.get(s, DEVICE)) for s, x in enumerate(instance.storages) if x.given}
        for s, place in self.home.items():
            if place == DEVICE:
                self.here[s] = BEFORE
            else:
                self.copies[s, place] = BEFORE
        self.restless = chance.choice((0.0, 0.3, 0.8))

    def steps(self) -> list[Step]:
        for op in range(len(self.instance.ops)):
            while self.chance.random() < self.restless:
                self._fidget()
            self._run(op, 6)
        final = self.instance.states[-1]
        for s, storage in enumerate(self.instance.storages):
            home = self.home.get(s, DEVICE)
            if storage.kept or (storage.persistent and home == DEVICE):
                self._restore(s, final[s], 6)
            elif storage.persistent and self.copies.get((s, home)) != final[s]:
                self._restore(s, final[s], 6)
                self._add(Copy(s, home))
        return self.found

    def _fidget(self) -> None:
        chance, links = self.chance, self.instance.links
        movable = [s for s in self.here if not self.instance.storages[s].pinned]
        kind = chance.choice((Evict, Copy, Offload, Fetch, Drop))
        if kind is Evict and movable:
            self._add(Evict(chance.choice(movable)))
        elif kind in (Copy, Offload) and movable and links:
            self._add(kind(chance.choice(movable), chance.choice(links).name))
        elif kind is Fetch:
            away = [copy for copy in self.copies if copy[0] not in self.here]
            if away:
                self._add(Fetch(*chance.choice(away)))
        elif kind is Drop and self.copies and chance.random() < 0.3:
            self._add(Drop(*chance.choice([*self.copies])))

    def _run(self, op: int, depth: int) -> None:
        for s, state in self.instance.states[op].items():
            self._restore(s, state, depth)
        self._add(Compute(op))

    def _restore(self, s: int, state: int, depth: int) -> None:
        """Bring back ``s`` as ``state`` left it, from a tier or by running its writers again; this may fail."""
        if self.here.get(s) == state or not depth:
            return
        if s in self.here and not self.instance.storages[s].pinned:
            self._add(Evict(s))
        copies = [link for (t, link), has in self.copies.items() if t == s and has == state]
        if copies and self.chance.random() < 0.9:
            self._add(Fetch(s, self.chance.choice(copies)))
        elif state != BEFORE:
            self._run(state, depth - 1)

    def _add(self, step: Step) -> None:
        self.found.append(step)
        if isinstance(step, Compute):
            op = self.instance.ops[step.op]
            self.here.update(dict.fromkeys((*op.writes, *(m for m in op.makes if m not in self.here)), step.op))
        elif isinstance(step, Copy | Offload) and step.storage in self.here:
            self.copies[step.storage, step.link] = self.here[step.storage]
        elif isinstance(step, Fetch):
            self.here[step.storage] = self.copies[step.storage, step.link]
        elif isinstance(step, Drop):
            del self.copies[step.storage, step.link]
        if isinstance(step, Evict | Offload):
            self.here.pop(step.storage, None)


def spoiled(chance: random.Random, instance: Instance, steps: Sequence[Step]) -> list[Step]:
    """The steps with a slip: one missing, one twice, two exchanged, or one that nobody asked for."""
    found = [*steps]
    at = chance.randrange(len(found))
    match chance.randrange(4):
        case 0:
            del found[at]
        case 1:
            found.insert(at, found[at])
        case 2:
            other = chance.randrange(len(found))
            found[at], found[other] = found[other], found[at]
        case _:
            s = chance.randrange(max(1, len(instance.storages)))
            links = [link.name for link in instance.links]
            kinds: list[Step] = [Evict(s), Compute(chance.randrange(len(instance.ops)))]
            for name in links:
                kinds += [Copy(s, name), Offload(s, name), Fetch(s, name), Drop(s, name)]
            found.insert(at, chance.choice(kinds))
    return found
