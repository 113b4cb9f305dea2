"""The table of allocators, and a step replayed on one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec

from tensortide.errors import GraphError
from tensortide.graph.model import Graph, Phase, Role
from tensortide.memory.allocator_settings import AllocatorSettings, read_settings
from tensortide.memory.cuda_allocator import CachingAllocator, rounding_of
from tensortide.memory.lifetimes import Lifetimes, Rule
from tensortide.memory.lifetimes import lifetimes as lifetimes_of
from tensortide.memory.rounding import CPU, CUDA_CACHING, EXACT, PAGES_4K, Rounded, Rounding
from tensortide.memory.workspace import workspace_bytes
from tensortide.shown import Show

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints


class Pool(Protocol):
    """The state of an allocator: ``reserved`` bytes of the device, ``allocated`` of them in blocks handed out."""

    @property
    def allocated(self) -> int: ...
    @property
    def reserved(self) -> int: ...
    def malloc(self, nbytes: int, stream: int = 0) -> Any:
        """Take a block for ``nbytes`` bytes on ``stream``."""

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


COUNTERS = ("torch.cuda.max_memory_allocated", "torch.cuda.max_memory_reserved")
EXPANDABLE = "cuda_expandable"
ALLOCATORS: dict[str, Allocator] = {
    "exact": Allocator(title="Bytes as requested", rounding=EXACT, pool=partial(Rounded, EXACT)),
    "cpu": Allocator(title="CPU allocator", rounding=CPU, pool=partial(Rounded, CPU), caveat="alignment comes on top"),
    "cuda": Allocator(
        title="CUDA caching allocator",
        rounding=CUDA_CACHING,
        pool=CachingAllocator,
        caveat="replayed, with a pool for each stream; the context comes on top",
        counters=COUNTERS,
    ),
    EXPANDABLE: Allocator(
        title="CUDA caching allocator, expandable segments",
        rounding=CUDA_CACHING,
        pool=partial(CachingAllocator, AllocatorSettings(expandable=True)),
        caveat="replayed, with a segment for each stream; the context comes on top",
        counters=COUNTERS,
    ),
    "pages": Allocator(title="Pages of 4 KiB", rounding=PAGES_4K, pool=partial(Rounded, PAGES_4K)),
}
"""The allocators by name."""
_WITH = "cuda:"
"""Begin of the name of CUDA's allocator with settings, which follow: ``cuda:max_split_size_mb:128``."""


def allocator_of(settings: str) -> tuple[str, str]:
    """The name of PyTorch's allocator for a GPU with these ``settings`` (the text of ``PYTORCH_ALLOC_CONF``), and those
    of them that are not modelled. Raises ValueError for what PyTorch does not accept."""
    found, own, others = read_settings(settings)
    name = _WITH + ",".join(own) if own else "cuda"
    return EXPANDABLE if found == AllocatorSettings(expandable=True) else name, ",".join(others)


def allocator(name: str) -> Allocator:
    """The row ``name``; for ``cuda:SETTINGS`` that of CUDA with settings. Raises GraphError if there is none."""
    if name in ALLOCATORS:
        return ALLOCATORS[name]
    if not name.startswith(_WITH):
        raise GraphError(f"there is no allocator {name!r}; there are {', '.join(ALLOCATORS)}")
    try:
        settings, own, others = read_settings(name.removeprefix(_WITH))
    except ValueError as error:
        raise GraphError(f"allocator {name}: {error}") from None
    if others:
        raise GraphError(f"allocator {name}: {', '.join(others)} is not modelled")
    return replace(
        ALLOCATORS["cuda"],
        title=f"CUDA caching allocator, {', '.join(own)}",
        rounding=rounding_of(settings),
        pool=partial(CachingAllocator, settings),
    )


def expandable(name: str) -> str:
    """The name of the allocator of a GPU ``name`` with expandable segments."""
    own = name.removeprefix(_WITH) if name.startswith(_WITH) else ""
    return EXPANDABLE if name == EXPANDABLE else allocator_of(f"{own},expandable_segments:True")[0]


class Reservation(msgspec.Struct, frozen=True):
    """Counters of an allocator during each op, as int64 arrays: bytes of blocks handed out (``allocated``, as
    ``torch.cuda.memory_allocated`` counts them) and bytes taken from the device (``reserved``)."""

    allocated: Ints
    reserved: Ints

    @property
    def peak_allocated(self) -> Annotated[int, Show("allocated", "bytes", level=1)]:
        """Most bytes handed out."""
        return int(self.allocated.max()) if len(self.allocated) else 0

    @property
    def peak_reserved(self) -> Annotated[int, Show("reserved", "bytes", level=1)]:
        """Most bytes taken from the device."""
        return int(self.reserved.max()) if len(self.reserved) else 0


STEPS = 3
"""Steps that are replayed: the first, in which the optimizer makes its state, and more until the pool has settled."""


def reserve(graph: Graph, name: str = "", *, lifetimes: Rule = "eager", device: str | None = None) -> Reservation:
    """Replay the allocations of ``graph`` on a fresh allocator, as training would: what exists before the step, a first
    step whose optimizer makes its state, then the recorded step again; the counters are those of the last time.

    Without a ``name`` the allocator is CUDA's, as the program has set it.
    ``lifetimes`` and ``device`` as for ``timeline``. Raises GraphError if there is no such allocator or device.
    """
    row = allocator(name or graph.meta.allocator)
    replay = _Replay(graph, row.pool(), lifetimes_of(graph, lifetimes), graph.index.device(device))
    replay.step(first=True)
    for _ in range(STEPS - 2):
        replay.step()
    return replay.step()


class _Replay:
    """A step played again and again on one pool."""

    def __init__(self, graph: Graph, pool: Pool, lives: Lifetimes, device: str) -> None:
        self.scratch = workspace_bytes(graph, device).tolist()
        self.pool, self.count, self.sizes = pool, len(graph), lives.nbytes.tolist()
        self.streams = [storage.stream for storage in graph.storages]
        self.born: list[list[int]] = [[] for _ in range(self.count + 1)]
        self.dying: list[list[int]] = [[] for _ in range(self.count + 2)]
        self.blocks: dict[int, Any] = {}
        updates = [at for at, op in enumerate(graph.ops) if op.phase is Phase.OPTIMIZER]
        self.first_update = updates[0] if updates and graph.meta.step != "first" else -1
        """The op at which the first step makes the optimizer's state; -1 if there is none."""
        self.made_by_optimizer: list[int] = []
        for index, (birth, death) in enumerate(zip(lives.births.tolist(), lives.deaths.tolist(), strict=True)):
            storage = graph.storages[index]
            if storage.device == device:
                self.born[birth + 1].append(index)
                self.dying[death].append(index)
                if birth < 0 and storage.role is Role.OPTIMIZER_STATE and death > self.first_update >= 0:
                    self.made_by_optimizer.append(index)

    def step(self, *, first: bool = False) -> Reservation:
        """Play the step once more, and return its counters."""
        import numpy as np

        later = set(self.made_by_optimizer) if first else set()
        self._malloc(index for index in self.born[0] if index not in later)
        allocated, reserved = np.zeros(self.count, np.int64), np.zeros(self.count, np.int64)
        for op in range(self.count):
            self._release(self.dying[op])
            if op == self.first_update:
                self._malloc(sorted(later))
            self._malloc(self.born[op + 1])
            scratch = self.pool.malloc(self.scratch[op])
            allocated[op], reserved[op] = self.pool.allocated, self.pool.reserved
            self.pool.release(scratch)
        self._release(self.dying[self.count])
        self._hand_on()
        return Reservation(allocated, reserved)

    def _malloc(self, indexes: Iterable[int]) -> None:
        for index in indexes:
            if index not in self.blocks:
                self.blocks[index] = self.pool.malloc(self.sizes[index], self.streams[index])

    def _release(self, indexes: Iterable[int]) -> None:
        for index in indexes:
            if index in self.blocks:
                self.pool.release(self.blocks.pop(index))

    def _hand_on(self) -> None:
        """Let the next step find what the step leaves behind, where sizes and streams agree: a gradient, an output."""
        found: dict[tuple[int, int], list[int]] = {}
        for index in reversed(self.born[0]):
            if index not in self.blocks:
                found.setdefault((self.sizes[index], self.streams[index]), []).append(index)
        before = set(self.born[0])
        for index in [index for index in self.blocks if index not in before]:
            block, waiting = self.blocks.pop(index), found.get((self.sizes[index], self.streams[index]))
            if waiting:
                self.blocks[waiting.pop()] = block
            else:
                self.pool.release(block)
