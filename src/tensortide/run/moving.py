"""Storages that move to tiers and back, as a plan says, or as an op needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tensortide.run.block import Storage, address_of
from tensortide.run.real_memory import RealMemory
from tensortide.run.tables import NOTHING
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from tensortide.plans.remat.policies import Policy
    from tensortide.run.tiers import Tiers


class MovingMemory(RealMemory):
    """Real memory of which a tier may hold copies. What is evicted and has one is fetched instead of recomputed."""

    def __init__(self, policy: Policy, budget_bytes: int, clock: Callable[[], int]) -> None:
        super().__init__(policy, budget_bytes, clock)
        self.tiers: Tiers | None = None
        """Where a plan that moves storages has copies of them."""
        self.exposed: set[int] = set()
        """Storages whose addresses were handed out: their bytes do not move."""

    def copy(self, storage: int, link: str) -> None:
        """Write the present contents of ``storage`` to the tier behind ``link``, unless they are gone already: the
        program has released it, and nothing else is made of it."""
        present, memory = self._present(storage), self._memory(storage)
        if self.tiers is not None and present != NOTHING:
            address = address_of(memory.bytes())
            self.tiers.write(storage, link, present, memory.written, address, memory.nbytes)

    def _present(self, storage: int) -> int:
        """The value whose bytes are in ``storage``; NOTHING if there are none."""
        memory = self._memory(storage)
        there = memory.nbytes and (memory.own is not None or memory() is not None)
        values = (value for value in self.values[storage] if self.defined[value])
        return next(values, NOTHING) if there else NOTHING

    def fetch(self, storage: int, link: str) -> None:
        """Bring back what the tier holds of ``storage``, unless it is resident or there is no copy."""
        assert self.tiers is not None
        kept = self.tiers.value(storage, link)
        if kept is not None and not self.resident[storage] and kept.value in self.values[storage]:
            self._fetch(storage, link, kept.value)
            if not self.frames:
                self._recomputed()

    def drop(self, storage: int, link: str) -> None:
        """Forget what the tier holds of ``storage``; the program does not lose its only copy by that."""
        assert self.tiers is not None
        lost = not self.resident[storage] and self.fixed[storage] and self.references[storage]
        self.tiers.drop(storage, link, lasting=bool(lost))

    def _fetch(self, storage: int, link: str, value: int) -> None:
        memory, tiers = self._memory(storage), self.tiers
        assert tiers is not None
        self.make_room(memory.nbytes)
        made = Storage(memory.nbytes)
        tiers.read(storage, link, address_of(made), memory.nbytes)
        self.memory += memory.nbytes
        self.peak = max(self.peak, self.memory)
        self.made = {value: made}
        try:
            self.define(value)
        finally:
            self.made = {}
        if storage in self.waiting:
            memory.retain()
        self.trace(Kind.FETCH, storage)

    def enter(self, op: int, wanted: int) -> None:
        """As ever, unless a tier holds ``wanted``: then nothing has to run."""
        if self.tiers is not None and wanted != NOTHING:
            storage = self.storage[wanted]
            link = self.tiers.holding(storage, wanted, self._memory(storage).written)
            if link is not None and not self.resident[storage]:
                self._fetch(storage, link, wanted)
                return
        super().enter(op, wanted)

    def spill(self, storage: int) -> None:
        """Keep the contents of ``storage``, which is about to be evicted for good, beside the tiers: the program still
        has it, and may read it."""
        present, memory = self._present(storage), self._memory(storage)
        if self.tiers is None or present == NOTHING or not self.references[storage]:
            return
        if self.tiers.holding(storage, present, memory.written) is None:
            self.tiers.spill(storage, present, memory.written, address_of(memory.bytes()), memory.nbytes)

    def movable(self, storage: int) -> bool:
        """Whether ``storage``, which cannot be recomputed, may leave: a tier has its contents, and only ops use it."""
        if self.tiers is None or not self.fixed[storage] or not self.resident[storage]:
            return False
        memory = self._memory(storage)
        known = (
            not (memory.stays or storage in self.exposed or memory.aliases or memory.writers) and memory() is not None
        )
        return known and self.locks[storage] <= self.pinned[storage] and self._held_elsewhere(storage)

    def _held_elsewhere(self, storage: int) -> bool:
        """Whether a tier has the latest contents of ``storage``."""
        written = self._memory(storage).written
        return self.tiers is not None and self.tiers.holding(storage, self.newest(storage), written) is not None

    def secure(self, storages: Iterable[int]) -> None:
        """As ever, but leave on its tier what can be fetched from there: its sources are needed no more."""
        away = [s for s in self.held_below(storages) if not self.resident[s] and self._held_elsewhere(s)]
        for storage in away:
            self.pin(storage)
            self.sever(storage)
        super().secure(storages)

    def bury(self, dead: list[int]) -> None:
        super().bury(dead)
        for storage in dead:
            self.exposed.discard(storage)
            if self.tiers is not None:
                self.tiers.forget(storage)
