"""Rounding of requests: the bytes that an allocator counts for a storage of ``nbytes`` bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints

N = TypeVar("N", int, "Ints")


class Rounding(msgspec.Struct, frozen=True):
    """Rounding up to a multiple of ``block`` bytes; an empty storage takes nothing."""

    name: str
    block: int

    def __call__(self, nbytes: N) -> N:
        """Bytes that one request of ``nbytes`` takes, or each of an array of requests."""
        return -(-nbytes // self.block) * self.block


class Divided(Rounding, frozen=True):
    """Rounding up to parts of the power of two below the request: ``divisions`` has their number, for each power of two
    from 1 MiB on; those of smaller requests are the first."""

    divisions: tuple[int, ...]

    def __call__(self, nbytes: N) -> N:
        """Bytes that one request of ``nbytes`` takes, or each of an array of requests."""
        if isinstance(nbytes, int):
            return self._one(nbytes)
        import numpy as np

        return np.array([self._one(each) for each in nbytes.tolist()], np.int64)

    def _one(self, nbytes: int) -> int:
        power = max(nbytes.bit_length() - 1, 0)
        parts = self.divisions[min(max(power - 20, 0), len(self.divisions) - 1)]
        block = self.block if parts <= 1 or nbytes <= self.block * parts else (1 << power) // parts
        return -(-nbytes // block) * block


EXACT = Rounding("exact", 1)
"""Bytes as requested."""

CPU = Rounding("cpu", 1)
"""PyTorch's CPU allocator: it aligns addresses to 64 bytes, and accounts for the bytes as requested."""

CUDA_CACHING = Rounding("cuda_caching", 512)
"""PyTorch's caching allocator on CUDA: blocks of 512 bytes. The peak is a close lower bound of
``torch.cuda.max_memory_allocated``; ``cuda_allocator`` simulates the pools for what is reserved."""

PAGES_4K = Rounding("pages_4k", 4096)
"""Pages of 4 KiB."""


class Rounded:
    """An allocator that reserves each request, rounded, and gives it back at once."""

    def __init__(self, rounding: Rounding) -> None:
        self.rounding = rounding
        self.allocated = 0

    @property
    def reserved(self) -> int:
        """Bytes taken from the device: those handed out."""
        return self.allocated

    def malloc(self, nbytes: int, stream: int = 0) -> int:
        """Take a block for ``nbytes`` bytes, on any stream."""
        del stream
        size = self.rounding(nbytes)
        self.allocated += size
        return size

    def release(self, block: int) -> None:
        """Give ``block`` back."""
        self.allocated -= block
