"""Storages of the program and their values."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tensortide.run.template import Storage

if TYPE_CHECKING:
    from tensortide.run.recompute import Recomputable

PENDING = -1
"""Number of a storage that has not been reported to the engine."""


class Block(weakref.ref[Any]):
    """A weak reference to a storage of the program, and its state.

    ``key``: address. ``nbytes``: bytes that count. ``storage``: number in the engine. ``given``: existed before the
    budget was opened. ``own``: owner of the bytes once the program has released them. ``counted``: the engine counts
    its bytes although it has not been reported. ``seen_ns``: time of its last use until then. ``written``: number
    of the last op that wrote to it while it could not be recomputed anyway. ``read``: epoch of the engine in which an
    op that was not reported used it last. ``aliases``: blocks of other storages over the same memory.
    """

    __slots__ = ("aliases", "counted", "given", "key", "nbytes", "own", "read", "seen_ns", "storage", "written")

    __eq__, __hash__ = object.__eq__, object.__hash__  # those of a reference end with what it refers to

    aliases: list[Block] | None
    key: int
    nbytes: int
    storage: int
    given: bool
    own: Storage | None
    counted: bool
    seen_ns: int
    written: int
    read: int

    @classmethod
    def of(cls, program: Storage, nbytes: int, dropped: Callable[[Block], None]) -> Block:
        """Return the block of ``program``; it calls ``dropped`` when the program releases the storage."""
        block = cls(program, dropped)
        block.key, block.nbytes, block.storage = program._cdata, nbytes, PENDING
        block.given = block.counted = False
        block.own = block.aliases = None
        block.seen_ns = block.written = block.read = 0
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
        """True if only this block holds the storage."""
        return self.own is not None and torch._C._storage_Use_Count(self.own._cdata) == 1


class Value:
    """Contents of a block between two writes. ``call`` made it, if it can be recomputed and was not reported to the
    engine: as result number ``place``, or by writing to the block if ``place`` is negative (for a call for several
    tensors: to number ``-1 - place``). ``writes``: number of writes to the block so far."""

    __slots__ = ("block", "call", "place", "writes")

    def __init__(self, block: Block, call: Recomputable | None, place: int, writes: int = 0) -> None:
        self.block, self.call, self.place, self.writes = block, call, place, writes
