"""PyTorch's caching allocator on CUDA: pools, segments and the blocks they are split into.

The rules are those of ``c10/cuda/CUDACachingAllocator``, with its settings (``allocator_settings``):

- A request is rounded up to 512 bytes. Up to 1 MiB it is served by the *small* pool of its stream, else by the *large*
  one. What one stream has freed no other can have.
- The smallest free block of the pool that is large enough is taken (the lowest address among equals). The rest of it
  is split off and stays free, if it is at least 512 bytes (small pool) or more than 1 MiB (large pool).
- Without such a block, a segment is reserved: 2 MiB for the small pool, 20 MiB for requests below 10 MiB, else the
  request rounded up to 2 MiB.
- A freed block merges with its free neighbours in the segment. Segments are never given back.
- *Expandable segments* (``expandable_segments:True``): each pool is one segment, which grows at its end by as many
  times 2 MiB (small pool) or 20 MiB (large pool) as are missing there. What is free at the end is taken only if no
  other block is large enough, and a block of any pool is split wherever 512 bytes are left.

- *Limited splits* (``max_split_size_mb``): blocks of that size and more are not split. Of such blocks a request takes
  one that is less than 20 MiB larger than it (``max_non_split_rounding_mb``), and only if it has that size itself.
- *Rounding* (``roundup_power2_divisions``): requests are rounded up to parts of a power of two.

Not modelled: blocks that wait for other streams that have used them (``record_stream``), and returning segments when
the device is full.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from typing import NamedTuple

from tensortide.memory.allocator_settings import DEFAULTS, MIB, AllocatorSettings
from tensortide.memory.rounding import CUDA_CACHING, Divided, Rounding

SMALL_REQUEST = MIB
SMALL_SEGMENT = 2 * MIB
MEDIUM_REQUEST = 10 * MIB
ROUND_LARGE = 2 * MIB


def rounding_of(settings: AllocatorSettings) -> Rounding:
    """Rounding of requests under ``settings``."""
    if not any(settings.divisions):
        return CUDA_CACHING
    return Divided("cuda_divided", CUDA_CACHING.block, settings.divisions)


class _Pool(NamedTuple):
    """A pool: of small or large blocks, of one stream."""

    small: bool
    stream: int


class _Block:
    """A part of a segment: free, or taken by one storage."""

    __slots__ = ("address", "after", "before", "free", "pool", "size")

    def __init__(self, address: int, size: int, pool: _Pool, before: _Block | None, after: _Block | None) -> None:
        self.address = address
        self.size = size
        self.pool = pool
        self.before = before
        self.after = after
        self.free = True


class CachingAllocator:
    """The allocator's state: ``reserved`` bytes in segments, ``allocated`` bytes of them in blocks handed out."""

    def __init__(self, settings: AllocatorSettings = DEFAULTS) -> None:
        self.settings = settings
        self.rounding = rounding_of(settings)
        self.reserved = 0
        self.allocated = 0
        self._free: defaultdict[_Pool, list[tuple[int, int, _Block]]] = defaultdict(list)
        self._ends: dict[_Pool, _Block] = {}
        """The last block of each pool, where segments are expandable."""

    def malloc(self, nbytes: int, stream: int = 0) -> _Block | None:
        """Take a block for ``nbytes`` bytes on ``stream``; an empty request takes none."""
        if nbytes == 0:
            return None
        size = self.rounding(nbytes)
        pool = _Pool(size <= SMALL_REQUEST, stream)
        free, expandable = self._free[pool], self.settings.expandable
        at = bisect.bisect_left(free, (size, -1))
        if expandable and at + 1 < len(free) and free[at][2].after is None:
            at += 1
        if at < len(free) and self._may_take(free[at][0], size):
            block = free.pop(at)[2]
        else:
            block = self._grown(size, pool) if expandable else self._segment(size, pool)
        self._split(block, size)
        block.free = False
        self.allocated += block.size
        return block

    def release(self, block: _Block | None) -> None:
        """Give ``block`` back and merge it with its free neighbours."""
        if block is None:
            return
        self.allocated -= block.size
        if block.after is not None and block.after.free:
            self._join(block, self._taken(block.after))
        if block.before is not None and block.before.free:
            block = self._join(self._taken(block.before), block)
        self._offer(block)

    def _may_take(self, block: int, size: int) -> bool:
        """True if a request of ``size`` bytes may take a free block of ``block`` bytes."""
        limit = self.settings.max_split
        if limit is None:
            return True
        return block < limit if size < limit else block < size + self.settings.max_rounding

    def _segment(self, size: int, pool: _Pool) -> _Block:
        length = SMALL_SEGMENT if pool.small else self.settings.large_segment
        if size >= MEDIUM_REQUEST:
            length = -(-size // ROUND_LARGE) * ROUND_LARGE
        self.reserved += length
        return _Block(self.reserved - length, length, pool, None, None)

    def _grown(self, size: int, pool: _Pool) -> _Block:
        """The end of a pool's segment, grown until it has ``size`` bytes to take."""
        end = self._ends.get(pool)
        there = end.size if end is not None and end.free else 0
        step = SMALL_SEGMENT if pool.small else self.settings.large_segment
        length = -(-(size - there) // step) * step
        self.reserved += length
        block = _Block(0 if end is None else end.address + end.size, length, pool, end, None)
        self._ends[pool] = block
        if end is None:
            return block
        self._link(end, block)
        return self._join(self._taken(end), block) if there else block

    def _split(self, block: _Block, size: int) -> None:
        rest, limit = block.size - size, self.settings.max_split
        if rest < CUDA_CACHING.block:
            return
        limited = not block.pool.small and not self.settings.expandable
        if limited and (rest <= SMALL_REQUEST or (limit is not None and size >= limit)):
            return
        tail = _Block(block.address + size, rest, block.pool, block, None)
        self._link(tail, block.after)
        self._link(block, tail)
        block.size = size
        self._offer(tail)

    def _join(self, block: _Block, after: _Block) -> _Block:
        block.size += after.size
        self._link(block, after.after)
        return block

    def _link(self, block: _Block, after: _Block | None) -> None:
        """Let ``after`` follow ``block``, which is the last of its segment without."""
        block.after = after
        if after is None:
            self._ends[block.pool] = block
        else:
            after.before = block

    def _offer(self, block: _Block) -> None:
        block.free = True
        bisect.insort(self._free[block.pool], (block.size, block.address, block))

    def _taken(self, block: _Block) -> _Block:
        free = self._free[block.pool]
        return free.pop(bisect.bisect_left(free, (block.size, block.address)))[2]
