"""Movers of accelerators: one stream for each link and direction, and pinned memory that is taken up front."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tensortide.run.block import Storage, address_of, storage_of
from tensortide.run.movers import HOST, Mover, TransferMode
from tensortide.run.tier_memory import DriveMemory, Memory
from tensortide.run.torch_compat import NoModes, storage_at

STAGED = 8 << 20
"""Bytes of the pinned memory through which what goes to a drive passes, piece by piece."""


class PinnedMemory:
    """Memory of this process that a device copies to and from by itself."""

    def __init__(self, nbytes: int) -> None:
        self.bytes = pinned(max(1, nbytes))
        self._address = address_of(storage_of(self.bytes))

    def write(self, offset: int, address: int, nbytes: int) -> None:
        """Copy to the tier."""
        ctypes.memmove(self._address + offset, address, nbytes)

    def read(self, offset: int, address: int, nbytes: int) -> None:
        """Copy from the tier."""
        ctypes.memmove(address, self._address + offset, nbytes)

    def close(self) -> None:
        """Give the memory back."""
        del self.bytes


def pinned(nbytes: int) -> torch.Tensor:
    """Pinned memory, which counts against no budget."""
    with NoModes():
        return torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=True)


class StreamMover(Mover):
    """Moves storages of ``device``, whose functions are those of ``module``.

    A transfer waits on its stream for the work that was queued when it was asked for: the contents are complete by
    then, and memory that it overwrites is free. It is over when the event after it has come, and so its source may be
    freed then, and its result used on any stream. The engine's thread waits for the event; the program does not.
    """

    def __init__(self, transfers: TransferMode, device: torch.device, module: Any) -> None:
        super().__init__(transfers)
        self.device, self.module = device, module
        self._out, self._into = module.Stream(device=device), module.Stream(device=device)
        self._staged: dict[bool, torch.Tensor] = {}

    def memory(self, link: str, nbytes: int, folder: Path) -> Memory:
        """The tier behind ``link``."""
        if link == HOST:
            return PinnedMemory(nbytes)
        self._staged = {inwards: pinned(STAGED) for inwards in (False, True)}
        return DriveMemory(nbytes, folder)

    def new(self, nbytes: int) -> Storage:
        """Memory of the device."""
        return Storage(nbytes, device=self.device)

    def out(self, memory: Memory, offset: int, held: Storage, nbytes: int) -> Callable[[], None]:
        """Copy to the tier what ``held`` has when this is asked for."""
        return self._transfer(memory, offset, held, nbytes, inwards=False)

    def into(self, memory: Memory, offset: int, held: Storage, nbytes: int) -> Callable[[], None]:
        """Copy from the tier to ``held``."""
        return self._transfer(memory, offset, held, nbytes, inwards=True)

    def _transfer(
        self, memory: Memory, offset: int, held: Storage, nbytes: int, *, inwards: bool
    ) -> Callable[[], None]:
        there, stream = _bytes_of(held), self._into if inwards else self._out
        ready = self.module.current_stream(self.device).record_event()

        def transfer() -> None:
            with NoModes():
                move()

        def move() -> None:
            stream.wait_event(ready)
            if isinstance(memory, PinnedMemory):
                self._copy(there[:nbytes], memory.bytes[offset : offset + nbytes], stream, inwards=inwards)
                return
            staged = self._staged[inwards]
            address = address_of(storage_of(staged))
            for first in range(0, nbytes, STAGED):
                size = min(STAGED, nbytes - first)
                part, through = there[first : first + size], staged[:size]
                if inwards:
                    memory.read(offset + first, address, size)
                self._copy(part, through, stream, inwards=inwards)
                if not inwards:
                    memory.write(offset + first, address, size)

        return transfer

    def _copy(self, there: torch.Tensor, here: torch.Tensor, stream: Any, *, inwards: bool) -> None:
        """Copy between the device (``there``) and pinned memory, and wait until that is over."""
        with self.module.stream(stream):
            (there if inwards else here).copy_(here if inwards else there, non_blocking=True)
        stream.record_event().synchronize()

    def kept(self, held: Storage, nbytes: int) -> bytes:
        """The bytes of ``held``, in memory that is not the device's."""
        with NoModes():
            copy = _bytes_of(held)[:nbytes].cpu()
        return ctypes.string_at(address_of(storage_of(copy)), nbytes)

    def put_back(self, kept: bytes, held: Storage) -> None:
        """Copy ``kept`` to ``held``."""
        with NoModes():
            _bytes_of(held).copy_(torch.frombuffer(bytearray(kept), dtype=torch.uint8))


def _bytes_of(held: Storage) -> torch.Tensor:
    """The bytes of ``held`` by their address: they stay there, though the program's storage gives them up."""
    with NoModes():
        there = storage_at(address_of(held), held.device, held.nbytes())
        return torch.empty(0, dtype=torch.uint8, device=held.device).set_(there)
