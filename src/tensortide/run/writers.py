"""Writers of a storage past PyTorch: owners of memory that came from outside, arrays over tensors, addresses."""

from __future__ import annotations

import contextlib
import struct
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeAlias

from tensortide.run.block import Block, Storage, Value, address_of
from tensortide.run.evicted import snapshot

Mappings: TypeAlias = Sequence[tuple[int, int]]
"""Begin and end of each."""
_WORD = struct.calcsize("P")
_MAPPINGS = Path("/proc/self/maps")
_BETWEEN = frozenset({"contextlib", "torch._tensor", "torch.storage"})
"""Modules that hand on what others ask for."""
_PASSING = frozenset({"torch", "triton"})
"""Packages that compare addresses, or use them for a call, and do not keep them."""


class Handed(IntEnum):
    """Time for which whoever reads a tensor outside of the dispatcher may write its bytes."""

    NOT = 0
    NOW = 1
    """Until the next op."""
    ARRAY = 2
    """As long as the array exists that it is given."""
    ADDRESS = 3
    """For good, unless it asks in passing."""
    ALWAYS = 4


class Writers:
    """Whoever may write a storage unseen, as long as they exist: arrays, or somebody unknown for good (``always``)."""

    __slots__ = ("always", "arrays", "copy")

    def __init__(self) -> None:
        self.always = False
        self.arrays: list[weakref.ref[Any]] = []
        self.copy: Storage | None = None
        """The latest copy of the storage. Ops that come later may find the same contents."""

    def exist(self) -> bool:
        self.arrays = [array for array in self.arrays if array() is not None]
        return self.always or bool(self.arrays)


def add_writer(block: Block, array: Any = None) -> None:
    """Note that ``block`` may be written unseen: as long as ``array`` exists, or for good."""
    if block.writers is None:
        block.writers = Writers()
    if array is None:
        block.writers.always = True
    else:
        block.writers.arrays.append(weakref.ref(array))


def written_unseen(block: Block) -> bool:
    """True if somebody may write ``block`` unseen."""
    if block.writers is not None and not block.writers.exist():
        block.writers = None
    return block.writers is not None


def any_written_unseen(values: Iterable[Value | None]) -> bool:
    """True if somebody may write one of ``values`` unseen: what is computed from it cannot be recomputed."""
    for value in values:
        if value is not None and value.block.writers is not None and written_unseen(value.block):
            return True
    return False


def in_passing() -> bool:
    """True if the code that asks for an address does not keep it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _hands_on(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    name = frame.f_globals.get("__name__", "")
    return isinstance(name, str) and name.partition(".")[0] in _PASSING


def _hands_on(module: Any) -> bool:
    return module in _BETWEEN or str(module).startswith("tensortide.run.")


def from_outside(storage: Storage, loaded: Callable[[], Mappings] = tuple) -> bool:
    """True if somebody else may own the memory of ``storage``, and write it: NumPy, other libraries, files that others
    have mapped too. What processes share is left to them; memory at ``loaded`` addresses is PyTorch's."""
    if storage.resizable() or not storage.nbytes() or (storage.device.type == "cpu" and storage.is_shared()):
        return False
    address, words = address_of(storage), snapshot(storage)
    if struct.unpack(f"{len(words) // _WORD}P", words).count(address) > 1:  # what PyTorch allocates is freed by address
        return False
    return not any(begin <= address < end for begin, end in loaded())


def loaded_files() -> Mappings:
    """Addresses at which this process alone has mapped files: models loaded from disk. They hold until some are
    closed."""
    found = []
    with contextlib.suppress(OSError):
        for line in _MAPPINGS.read_text().splitlines():
            addresses, rights, _, _, _, *file = line.split(maxsplit=5)
            if rights.endswith("p") and file and file[0].startswith("/") and ".so" not in file[0]:
                begin, _, end = addresses.partition("-")
                found.append((int(begin, 16), int(end, 16)))
    return found
