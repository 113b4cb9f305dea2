"""Inputs of ops made resident, and room for their results; what an allocator without memory makes of that."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tensortide.recorder.recorder import Mode
from tensortide.replays.remat.simulation import OutOfMemory
from tensortide.run.block import PENDING, Storage, Value
from tensortide.run.device import asked_bytes, device_of
from tensortide.run.engine import LiveEngine
from tensortide.run.out_of_memory import failed, repeated
from tensortide.run.sizes import Room
from tensortide.run.storages import Storages

if TYPE_CHECKING:
    from tensortide.plans.remat.policies import Policy
    from tensortide.run.in_flight import InFlight


class Residence(Mode):
    """Brings back what ops read and makes room for what they allocate, on ``device``."""

    in_flight: InFlight

    def __init__(self, policy: Policy, budget_bytes: int, device: torch.device, clock: Callable[[], int]) -> None:
        super().__init__()
        self.engine = LiveEngine(policy, budget_bytes, clock)
        self.device = device
        self.storages = Storages(self.engine, device)
        self.known, self.pending = self.storages.known, self.storages.pending
        self.unfilled = self.storages.unfilled
        self.hardware = device_of(device)
        self.streams = self.storages.streams = self.engine.streams = self.hardware.streams()
        self.lowered_from = 0
        """The budget before the device ran out of memory; 0 if it never did."""

    def promote(self) -> None:
        """Report all ops so far to the engine."""
        self.pending.promote(self.engine.ops)
        self.unfilled.pin_reported()

    def storage(self, tensor: torch.Tensor) -> int:
        """The engine's number for the storage of ``tensor``."""
        block = self.storages.value(tensor).block
        if block.storage == PENDING:
            self.promote()
        return block.storage

    def ready(
        self, values: Sequence[Value], held: list[Storage], written: Sequence[Value], resident: bool, room: Room
    ) -> Any:
        """Make ``values`` resident, and ``room``, and secure what depends on values about to be ``written``. Those of
        ``values`` that can no longer be recomputed are added to ``held``. None if nothing had to be done, and so
        nothing is locked: nothing is evicted until the op is over."""
        engine = self.engine
        engine.settle_values(written)
        if self.streams is not None:
            self.streams.use([value.block for value in values])
        if resident and engine.memory + room.nbytes + room.workspace_bytes <= engine.budget:
            for value in written:
                storage = value.block.storage
                if storage != PENDING and (engine.children[storage] or not engine.fixed[storage]):
                    break  # the engine must hear before it is overwritten
            else:
                return None
        self.promote()
        read = dict.fromkeys(value.block for value in values)
        for block in read:
            if engine.fixed[block.storage]:
                held.append(block.bytes())
            block.read = engine.epoch
        inputs = [engine.newest(block.storage) for block in read]
        overwritten = dict.fromkeys(value.block.storage for value in written)
        return self._prepare(inputs, overwritten, room.nbytes, room.workspace_bytes)

    def prepared(self, _: Any, *needs: Any) -> Any:
        """``ready``, for the compiled core; NotImplemented where the device has too little memory for it: Python finds
        out again, and knows an answer."""
        try:
            return self.ready(*needs)
        except RuntimeError as error:
            if asked_bytes(error) is None:
                raise
            return NotImplemented

    def bring(self, storage: int) -> None:
        self.promote()
        self.engine.abandon(self._prepare([self.engine.newest(storage)], (), 0))

    def _prepare(self, inputs: Sequence[int], overwritten: Any, nbytes: int, workspace_bytes: int = 0) -> Any:
        """As the engine does; garbage in cycles is collected, and communication waited for, before an op is refused as
        too large. A recomputation that finds too little memory on the device is run again after evictions."""
        attempt = functools.partial(self.engine.prepare, inputs, overwritten, nbytes, workspace_bytes)
        try:
            return attempt()
        except OutOfMemory:
            gc.collect()
            self.in_flight.wait()
            return attempt() if not self.lowered_from else self._prepare_beyond(attempt)
        except RuntimeError as error:
            asked = asked_bytes(error)
            if asked is None:
                raise
        return repeated(self, "a recomputation", asked, Room(nbytes), attempt)

    def _shrink(self) -> None:
        """Evict what is over the budget, after an op that made more than was known; a lowered budget gives way."""
        try:
            self.engine.make_room(0)
        except OutOfMemory:
            if self.engine.memory > self.lowered_from:
                raise
            self.engine.budget = self.engine.memory

    def _prepare_beyond(self, attempt: Callable[[], Any]) -> Any:
        """Prepare an op that does not fit into the lowered budget: perhaps there is more memory by now."""
        try:
            return attempt()
        except OutOfMemory as error:
            short = error.shortage
            if short is None or short.asked_bytes + short.held_bytes > self.lowered_from:
                raise
            self.engine.budget = short.asked_bytes + short.held_bytes
        return attempt()

    def exceeded(self, _: Any = None) -> None:
        """Evict what is more than the limit."""
        self.promote()
        self._shrink()

    def shed(self) -> None:
        """Move to tiers, as far as they go, what is resident beyond the limit when the budget is opened."""
        with contextlib.suppress(OutOfMemory):
            self.engine.make_room(0)
        self.engine.peak = self.engine.memory

    def restore(self) -> None:
        """Put back whatever the program still holds, at the end."""
        if self.streams is not None:
            self.streams.order()
        for _ in range(2):
            try:
                self.engine.restore()
                return
            except RuntimeError as error:
                if asked_bytes(error) is None:
                    raise
            self.hardware.reclaim()
        raise failed(self, "leaving the budget", "tensors that were evicted cannot come back, and are lost")
