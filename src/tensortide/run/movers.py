"""Movers: where the bytes of a tier are, what copies them, and on which engines; by the device that they leave."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from tensortide.run.block import Storage, address_of
from tensortide.run.tier_memory import DriveMemory, HostMemory, Memory
from tensortide.run.transfers import AtOnce, CopyEngine, Threaded

TransferMode: TypeAlias = Literal["overlapped", "serial"]
"""Whether the program goes on while storages move."""
HOST, DRIVE = "host", "ssd"
LINKS = (HOST, DRIVE)
"""The links of a live run: to memory of this process, and to a file."""


class Mover:
    """Moves storages of the CPU."""

    def __init__(self, transfers: TransferMode) -> None:
        self.transfers = transfers

    def engine(self, name: str, link: str) -> CopyEngine:
        """The engine of that ``name``, one of ``link``."""
        return Threaded(name) if self.transfers == "overlapped" else AtOnce(name)

    def memory(self, link: str, nbytes: int, folder: Path) -> Memory:
        """The tier behind ``link``, with room for ``nbytes``."""
        return HostMemory(nbytes) if link == HOST else DriveMemory(nbytes, folder)

    def new(self, nbytes: int) -> Storage:
        """Memory of the device."""
        return Storage(nbytes)

    def out(self, memory: Memory, offset: int, held: Storage, nbytes: int) -> Callable[[], None]:
        """Copy to the tier what ``held`` has when this is asked for."""
        return partial(memory.write, offset, address_of(held), nbytes)

    def into(self, memory: Memory, offset: int, held: Storage, nbytes: int) -> Callable[[], None]:
        """Copy from the tier to ``held``."""
        return partial(memory.read, offset, address_of(held), nbytes)

    def kept(self, held: Storage, nbytes: int) -> bytes:
        """The bytes of ``held``, in memory that is not the device's."""
        return ctypes.string_at(address_of(held), nbytes)

    def put_back(self, kept: bytes, held: Storage) -> None:
        """Copy ``kept`` to ``held``."""
        ctypes.memmove(address_of(held), kept, len(kept))
