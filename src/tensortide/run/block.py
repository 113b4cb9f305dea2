"""The bytes behind a storage of the engine."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from tensortide.run.template import Storage


class Block(weakref.ref[Any]):
    """A weak reference to a storage of the program, which knows its address (``key``), what it is to the engine
    (``storage``), and who has the bytes once the program does not."""

    __slots__ = ("key", "own", "storage")

    key: int
    storage: int
    own: Storage | None

    @classmethod
    def of(cls, program: Storage, dropped: Callable[[Block], None]) -> Block:
        """The block of ``program``, which calls ``dropped`` when the program has dropped it."""
        block = cls(program, dropped)
        block.key, block.own = program._cdata, None
        return block

    def bytes(self) -> Storage:
        """The storage with the bytes."""
        found = self.own if self.own is not None else self()
        assert found is not None
        return found

    def free(self, held: bool) -> None:
        """Give the bytes back; if the program still has the storage, it is empty from now on."""
        program = self()
        if held and program is not None:
            program.resize_(0)
        self.own = None

    def fill(self, made: Storage) -> None:
        """Take over the bytes of ``made`` without a copy."""
        program = self()
        if program is None:
            self.own = made
        else:
            program._swap_data_ptr_(made)

    def keep(self, strongly: bool) -> None:
        """Hold the storage even if the program drops it, or no longer."""
        if not strongly:
            self.own = None
        elif self.own is None:
            self.own = self()

    def abandoned(self) -> bool:
        """Whether nobody but us holds the storage."""
        return self.own is not None and torch._C._storage_Use_Count(self.own._cdata) == 1
