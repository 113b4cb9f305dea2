"""The table of allocators, and a step replayed on one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tensortide.errors import GraphError
from tensortide.graph.model import Graph
from tensortide.memory.cuda_allocator import CachingAllocator
from tensortide.memory.lifetimes import Rule
from tensortide.memory.lifetimes import lifetimes as lifetimes_of
from tensortide.memory.rounding import CPU, CUDA_CACHING, EXACT, PAGES_4K, Rounded, Rounding

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints


class Pool(Protocol):
    """The state of an allocator: ``reserved`` bytes of the device, ``allocated`` of them in blocks handed out."""

    @property
    def allocated(self) -> int: ...
    @property
    def reserved(self) -> int: ...
    def malloc(self, nbytes: int) -> Any:
        """Take a block for ``nbytes`` bytes."""

    def release(self, block: Any) -> None:
        """Give ``block`` back."""


@dataclass(frozen=True, kw_only=True)
class Allocator:
    """A row of the table.

    ``rounding`` is what one request takes, ``pool`` makes a fresh state to replay a step on. ``title`` and ``caveat``
    head its report; ``counters`` name what the peaks of allocated and reserved bytes predict, where there is such.
    """

    title: str
    rounding: Rounding
    pool: Callable[[], Pool]
    caveat: str = ""
    counters: tuple[str, str] = ("", "")


ALLOCATORS: dict[str, Allocator] = {
    "exact": Allocator(title="Bytes as requested", rounding=EXACT, pool=partial(Rounded, EXACT)),
    "cpu": Allocator(title="CPU allocator", rounding=CPU, pool=partial(Rounded, CPU), caveat="alignment comes on top"),
    "cuda": Allocator(
        title="CUDA caching allocator",
        rounding=CUDA_CACHING,
        pool=CachingAllocator,
        caveat="replayed; contexts, libraries' workspaces and other streams come on top",
        counters=("torch.cuda.max_memory_allocated", "torch.cuda.max_memory_reserved"),
    ),
    "pages": Allocator(title="Pages of 4 KiB", rounding=PAGES_4K, pool=partial(Rounded, PAGES_4K)),
}
"""The allocators by name."""


def allocator(name: str) -> Allocator:
    """The row ``name``. Raises GraphError if there is none."""
    if name not in ALLOCATORS:
        raise GraphError(f"there is no allocator {name!r}; there are {', '.join(ALLOCATORS)}")
    return ALLOCATORS[name]


class Reservation(msgspec.Struct, frozen=True):
    """Counters of an allocator during each op, as int64 arrays: bytes of blocks handed out (``allocated``, as
    ``torch.cuda.memory_allocated`` counts them) and bytes taken from the device (``reserved``)."""

    allocated: Ints
    reserved: Ints

    @property
    def peak_allocated(self) -> int:
        """Most bytes handed out."""
        return int(self.allocated.max()) if len(self.allocated) else 0

    @property
    def peak_reserved(self) -> int:
        """Most bytes taken from the device."""
        return int(self.reserved.max()) if len(self.reserved) else 0


def reserve(graph: Graph, name: str = "cuda", *, lifetimes: Rule = "eager", device: str | None = None) -> Reservation:
    """Replay the allocations of ``graph`` on a fresh allocator: what exists before the step first, then op by op.

    ``lifetimes`` and ``device`` as for ``timeline``. Raises GraphError if there is no such allocator or device.
    """
    import numpy as np

    device, lives, count = graph.index.device(device), lifetimes_of(graph, lifetimes), len(graph)
    born: list[list[int]] = [[] for _ in range(count + 1)]
    dying: list[list[int]] = [[] for _ in range(count + 2)]
    sizes = lives.nbytes.tolist()
    for index, (birth, death) in enumerate(zip(lives.births.tolist(), lives.deaths.tolist(), strict=True)):
        if graph.storages[index].device == device:
            born[birth + 1].append(index)
            dying[death].append(index)
    pool = allocator(name).pool()
    blocks = {index: pool.malloc(sizes[index]) for index in born[0]}
    allocated, reserved = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for op in range(count):
        for index in dying[op]:
            pool.release(blocks.pop(index))
        for index in born[op + 1]:
            blocks[index] = pool.malloc(sizes[index])
        allocated[op], reserved[op] = pool.allocated, pool.reserved
    return Reservation(allocated, reserved)
