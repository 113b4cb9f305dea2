"""Storages that move to tiers and back, as a plan says, or as an op needs them; the program goes on meanwhile.

A storage that is evicted while it is copied to a tier *leaves*: its bytes count until the copies have ended. One that
is fetched *arrives*: its bytes count from the start, and it is resident when an op needs it, once the transfer has
ended. Whatever needs room waits for what leaves before anything else is evicted; whatever writes a storage waits for
the copies out of it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from tensortide.errors import RunError
from tensortide.replays.remat.engine import Frame
from tensortide.replays.remat.simulation import OutOfMemory
from tensortide.run.block import Storage, Value
from tensortide.run.moved_storages import Arriving, Leaving, Wait
from tensortide.run.real_memory import RealMemory
from tensortide.run.tables import NOTHING
from tensortide.run.tiers import SPILLED
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from tensortide.plans.remat.policies import Policy
    from tensortide.run.tiers import Tiers
    from tensortide.run.transfers import Transfer


class MovingMemory(RealMemory):
    """Real memory of which a tier may hold copies. What is evicted and has one is fetched instead of recomputed."""

    def __init__(self, policy: Policy, budget_bytes: int, clock: Callable[[], int]) -> None:
        super().__init__(policy, budget_bytes, clock)
        self.tiers: Tiers | None = None
        """Where a plan that moves storages has copies of them."""
        self.exposed: set[int] = set()
        """Storages whose addresses were handed out: their bytes do not move."""
        self.copied: dict[int, list[Transfer]] = {}
        """Copies that are under way, by the storage that they read."""
        self.leaving: list[Leaving] = []
        self.arriving: dict[int, Arriving] = {}
        self.moved: Transfer | None = None
        """The latest transfer that began."""
        self.moving_bytes = 0
        """Those of what leaves and what arrives."""
        self.when_waited: Callable[[Wait], None] | None = None

    # Steps of a plan

    def copy(self, storage: int, link: str) -> None:
        """Begin to write the present contents of ``storage`` to the tier behind ``link``, unless they are gone already:
        the program has released it, and nothing else is made of it."""
        assert self.tiers is not None
        self.arrive(storage)
        present, memory = self._present(storage), self._memory(storage)
        if present != NOTHING:
            begun = self.tiers.write(storage, link, present, memory.written, memory.bytes(), memory.nbytes)
            if begun is not None:
                self.copied.setdefault(storage, []).append(begun)
                self._begun(begun, Kind.COPY)

    def _present(self, storage: int) -> int:
        """The value whose bytes are in ``storage``; NOTHING if there are none."""
        memory = self._memory(storage)
        there = memory.nbytes and (memory.own is not None or memory() is not None)
        values = (value for value in self.values[storage] if self.defined[value])
        return next(values, NOTHING) if there else NOTHING

    def fetch(self, storage: int, link: str) -> None:
        """Begin to bring back what the tier holds of ``storage``, unless it is resident or there is no copy."""
        assert self.tiers is not None
        kept = self.tiers.value(storage, link)
        there = self.resident[storage] or storage in self.arriving
        if kept is not None and not there and kept.value in self.values[storage]:
            self._fetch(storage, link, kept.value)

    def drop(self, storage: int, link: str) -> None:
        """Forget what the tier holds of ``storage``; the program does not lose its only copy by that."""
        assert self.tiers is not None
        there = self.resident[storage] or storage in self.arriving
        if there or not self.fixed[storage] or not self.references[storage]:
            self.tiers.drop(storage, link)
            return
        self.settle([storage])
        try:
            self.tiers.drop_lasting(storage, link)
        except OSError as error:
            raise RunError(f"reading back over {link} failed: {error.strerror or error}") from error

    def _fetch(self, storage: int, link: str, value: int) -> None:
        memory, tiers = self._memory(storage), self.tiers
        assert tiers is not None
        self.make_room(memory.nbytes)
        made = tiers.mover.new(memory.nbytes)
        self.memory += memory.nbytes
        self.peak = max(self.peak, self.memory)
        if link == SPILLED:
            tiers.put_back(storage, made)
            self._fill(storage, value, made)
            self.moved = None
            self.trace(Kind.FETCH, storage)
            return
        kept = tiers.value(storage, link)
        assert kept is not None
        begun = tiers.read(storage, link, made)
        self.arriving[storage] = Arriving(kept, begun, made, None if self.streams is None else self.streams.now)
        self.moving_bytes += memory.nbytes
        self._begun(begun, Kind.FETCH)
        if begun.over:
            self.arrive(storage)

    def _begun(self, transfer: Transfer, kind: Kind) -> None:
        self.moved = transfer
        self.trace(kind, transfer.storage)
        if transfer.over:  # it was synchronous
            self._waited(transfer, transfer.began_ns, "serial")
            self.land()

    # Transfers that end

    def land(self) -> None:
        """Take note of the transfers that are over. Raises RunError if one has failed."""
        tiers = self.tiers
        if tiers is None:
            return
        landed = list(tiers.landed())
        failed = [transfer for transfer in landed if transfer.error is not None]
        if failed:  # so do those that wait for it
            for transfer in tiers.under_way:
                transfer.wait()
            landed += tiers.landed()
            failed = [transfer for transfer in landed if transfer.error is not None]
        for transfer in landed:
            self._landed(transfer)
        for transfer in failed:
            tiers.lost(transfer)
        for gone in [one for one in self.leaving if all(transfer.over for transfer in one.transfers)]:
            self._gone(gone)
        for storage in [s for s, one in self.arriving.items() if one.transfer.error is not None]:
            arriving = self._never(storage)
            if arriving.copy.written_by.error is None:
                tiers.again(storage, arriving.transfer, arriving.copy)
        if failed:
            raise failed[0].failure()

    def _landed(self, transfer: Transfer) -> None:
        transfer.held = None
        others = self.copied.get(transfer.storage, [])
        if transfer in others:
            others.remove(transfer)
            if not others:
                del self.copied[transfer.storage]

    def _gone(self, gone: Leaving) -> None:
        """Release what has left; or keep it after all, since a copy of it has failed."""
        self.leaving.remove(gone)
        self.memory -= gone.nbytes
        self.moving_bytes -= gone.nbytes
        storage, failed = gone.storage, any(transfer.error is not None for transfer in gone.transfers)
        if failed and storage != NOTHING and not self.resident[storage]:
            if storage in self.arriving:
                self._never(storage)
            self.memory += gone.nbytes
            self._fill(storage, gone.value, gone.held)

    def _never(self, storage: int) -> Arriving:
        """Give up the fetch of ``storage``: its bytes leave once the transfer is over."""
        arriving = self.arriving.pop(storage)
        gone = Leaving(NOTHING, NOTHING, (arriving.transfer,), arriving.made, arriving.copy.nbytes)
        self.leaving.append(gone)
        if arriving.transfer.over:
            self._gone(gone)
        return arriving

    def arrive(self, storage: int) -> None:
        """Make ``storage`` resident, if it is being fetched: wait for that."""
        if storage in self.arriving:
            self._wait(self.arriving[storage].transfer, "fetch")
        arriving = self.arriving.pop(storage, None)
        if arriving is not None:
            self.moving_bytes -= arriving.copy.nbytes
            self._fill(storage, arriving.copy.value, arriving.made)
            if self.streams is not None and arriving.stream is not None:
                self.streams.taken_on(self._memory(storage), arriving.stream)

    def _fill(self, storage: int, value: int, made: Storage) -> None:
        """``storage`` has the bytes of ``made`` from now on, which count already: it is ``value``."""
        memory, before = self._memory(storage), self.made
        self.made = {value: made}
        try:
            self.define(value)
        finally:
            self.made = before
        if storage in self.waiting:
            memory.retain()
        if not self.frames:
            self._recomputed()

    def all_arrive(self) -> None:
        """Wait for all transfers, whether they fail or not; what was fetched is resident."""
        if self.tiers is not None:
            for transfer in self.tiers.under_way:
                transfer.wait()
            with contextlib.suppress(RunError):
                self.land()
            for storage in list(self.arriving):
                self.arrive(storage)

    def advance(self) -> None:
        """Note what is over, and make resident what has arrived."""
        if self.tiers is not None and (self.tiers.under_way or self.arriving):
            self.land()
            for storage in [s for s, one in self.arriving.items() if one.transfer.over]:
                self.arrive(storage)

    def settle(self, storages: Iterable[int]) -> None:
        """Wait for the copies out of ``storages``, which are about to be written."""
        for storage in storages:
            while transfers := self.copied.get(storage):
                self._wait(transfers[0], "copy")

    def settle_values(self, values: Sequence[Value]) -> None:
        """``settle``, for the storages of ``values``."""
        if self.copied:
            self.settle([value.block.storage for value in values])

    def _wait(self, transfer: Transfer, cause: Literal["fetch", "copy", "room"]) -> None:
        if not transfer.over:
            began_ns = time.perf_counter_ns()
            transfer.wait()
            self._waited(transfer, began_ns, cause)
        self.land()

    def _waited(self, transfer: Transfer, began_ns: int, cause: Literal["fetch", "copy", "room", "serial"]) -> None:
        if self.when_waited is not None:
            self.when_waited(Wait(transfer, began_ns, time.perf_counter_ns(), cause))

    # The engine's own ways

    def make_room(self, nbytes: int, extra_bytes: int = 0) -> None:
        while self.leaving and self.memory + nbytes + extra_bytes > self.budget:
            self._leave_one()
        super().make_room(nbytes, extra_bytes)

    def _leave_one(self) -> None:
        for transfer in self.leaving[0].transfers:
            self._wait(transfer, "room")

    def last_resort(self) -> bool:
        """Give up a fetch that nothing has waited for, if it can be had again; else as ever; else keep beside the tiers
        what cannot be recomputed and was not used for longest: a step that departs from its plan, as one does that
        creates optimizer state, has parameters and state resident that the plan has away."""
        for storage, one in self.arriving.items():
            if self._held_elsewhere(storage):
                self._never(storage)
                while any(one.transfer in gone.transfers for gone in self.leaving):
                    self._leave_one()
                return True
        return super().last_resort() or self._spill_one()

    def _spill_one(self) -> bool:
        """Keep a storage beside the tiers and evict it; False if there is none that can."""
        found = [s for s, fixed in enumerate(self.fixed) if fixed and self.storage_bytes[s] and self._may_leave(s)]
        if not found:
            return False
        storage = min(found, key=self.last_access_ns.__getitem__)
        self.spill(storage)
        self.evict(storage)
        return True

    def clear(self, storage: int) -> None:
        transfers = self.copied.pop(storage, None)
        if transfers is None:
            super().clear(storage)
            return
        memory, present = self._memory(storage), self._present(storage)
        held = memory.keep()
        for transfer in transfers:
            transfer.held = held  # rather than what the program may release
        super().clear(storage)
        self.memory += memory.nbytes
        self.moving_bytes += memory.nbytes
        self.leaving.append(Leaving(storage, present, tuple(transfers), held, memory.nbytes))

    def finish(self, frame: Frame) -> None:
        if self.copied:
            self.settle([self.storage[v] for v in self.outputs[frame.op] if self.replaces[v] != NOTHING])
        super().finish(frame)

    def enter(self, op: int, wanted: int) -> None:
        """As ever, unless a tier holds ``wanted``: then nothing has to run."""
        if self.tiers is not None and wanted != NOTHING:
            storage = self.storage[wanted]
            if storage not in self.arriving and not self.resident[storage]:
                link = self.tiers.holding(storage, wanted, self._memory(storage).written)
                if link is not None:
                    self._fetch(storage, link, wanted)
            self.arrive(storage)
            if self.defined[wanted]:
                return
        super().enter(op, wanted)

    def spill(self, storage: int) -> None:
        """Keep the contents of ``storage``, which is about to be evicted for good, beside the tiers: the program still
        has it, and may read it."""
        present, memory = self._present(storage), self._memory(storage)
        if self.tiers is None or present == NOTHING or not self.references[storage]:
            return
        if self.tiers.holding(storage, present, memory.written) is None:
            self.tiers.spill(storage, present, memory.written, memory.bytes(), memory.nbytes)

    def movable(self, storage: int) -> bool:
        """Tell whether ``storage``, which cannot be recomputed, may leave: a tier has its contents, and only ops use
        it."""
        return self._may_leave(storage) and self._held_elsewhere(storage)

    def _may_leave(self, storage: int) -> bool:
        """Tell whether the program goes on without the bytes of ``storage``, which cannot be recomputed."""
        if self.tiers is None or not (self.fixed[storage] and self.resident[storage] and self.references[storage]):
            return False
        memory = self._memory(storage)
        known = not (memory.stays or storage in self.exposed or memory.aliases or memory.writers)
        return known and memory() is not None and self.locks[storage] <= self.pinned[storage]

    def obtainable(self, storage: int) -> bool:
        """Tell whether ``storage``, which is not resident, can be fetched."""
        return storage in self.arriving or self._held_elsewhere(storage)

    def _held_elsewhere(self, storage: int) -> bool:
        """Tell whether a tier has the latest contents of ``storage``."""
        written = self._memory(storage).written
        return self.tiers is not None and self.tiers.holding(storage, self.newest(storage), written) is not None

    def secure(self, storages: Iterable[int]) -> None:
        """As ever, but leave on its tier what can be fetched from there: its sources are needed no more. Where there is
        no room for all, they take turns."""
        for storage in [s for s in self.held_below(storages) if not self.resident[s] and self._held_elsewhere(s)]:
            self.pin(storage)
            self.sever(storage)
        try:
            super().secure(storages)
        except OutOfMemory:
            if self.tiers is None:
                raise
            self.unlock_all()
            self._secure_in_turn(self.held_below(storages))

    def _secure_in_turn(self, held: list[int]) -> None:
        """Recompute ``held`` one after the other, each of which may leave for a tier then; but one that was written in
        place stays as long as another one is made of it, which may be of its earlier contents."""
        held = sorted(held, key=self.storage_bytes.__getitem__)
        stay: list[int] = []
        for number, storage in enumerate(held):
            newest = self.newest(storage)
            if not self.defined[newest] and not self.obtainable(storage):
                self.execute(self.op_of[newest], newest)
            self.pin(storage)
            stay.append(storage)
            needed = self._made_of(held[number + 1 :]) if any(len(self.values[s]) > 1 for s in stay) else set()
            for one in [s for s in stay if s not in needed or len(self.values[s]) == 1]:
                stay.remove(one)
                self.sever(one)
        for storage in stay:
            self.sever(storage)

    def _made_of(self, storages: Sequence[int]) -> set[int]:
        """Return all that ``storages`` are made of, directly or not."""
        found: set[int] = set()
        queue = list(storages)
        for at in queue:
            new = [near for near in self.parents[at] if near not in found]
            found.update(new)
            queue += new
        return found

    def bury(self, dead: list[int]) -> None:
        super().bury(dead)
        for storage in dead:
            self.exposed.discard(storage)
            if storage in self.arriving:
                self._never(storage)
            if self.tiers is not None:
                self.tiers.forget(storage)
            if self.leaving:
                self.leaving = [
                    gone._replace(storage=NOTHING) if gone.storage == storage else gone for gone in self.leaving
                ]
