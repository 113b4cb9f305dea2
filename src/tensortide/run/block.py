"""Storages of the program, and what is in them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tensortide.run.template import Storage

if TYPE_CHECKING:
    from tensortide.run.again import Again

YOUNG = -1
"""Number of a storage that the engine has not been told of."""


class Block(weakref.ref[Any]):
    """A weak reference to a storage of the program, with what is known of it.

    ``key``: its address. ``nbytes``: what it counts. ``storage``: what it is to the engine. ``given``: it existed
    before. ``own``: who has the bytes once the program does not. ``counted``: its bytes are among those of the engine,
    which does not know it. ``seen_ns``: when an op had it last, until then. ``written``: the number of the last op
    that wrote to it when it could not be made again anyway. ``read``: the epoch of the engine in which an op that the
    engine does not know of had it last.
    ``aliases``: blocks of other storages over the same memory.
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
        """The block of ``program``, which calls ``dropped`` when the program has dropped it."""
        block = cls(program, dropped)
        block.key, block.nbytes, block.storage = program._cdata, nbytes, YOUNG
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
        """Whether nobody but us holds the storage."""
        return self.own is not None and torch._C._storage_Use_Count(self.own._cdata) == 1


class Value:
    """What is in a block until it is overwritten. ``call`` made it, if that can be run again and the engine does not
    know of it: as its result number ``place`` where that is not negative, else by writing to the block, of a call for
    many tensors to number ``-1 - place``. ``writes``: how often the block was written to so far."""

    __slots__ = ("block", "call", "place", "writes")

    def __init__(self, block: Block, call: Again | None, place: int, writes: int = 0) -> None:
        self.block, self.call, self.place, self.writes = block, call, place, writes
