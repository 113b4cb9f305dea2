"""The heap of the C library: evicted memory stays with the process for the next op."""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
_LARGEST_BYTES = 32 << 20
"""The most that glibc raises the threshold of blocks with a mapping of their own to by itself."""


def tune_heap() -> None:
    """Let glibc do from now on what it does by itself once a program has freed a block of 32 MiB: blocks up to that
    size come from its heap, and up to 64 MiB of that stay with the process when they are free.

    Until then it may hand back what is evicted, and the next op gets it anew, at the price of a page fault for every
    4 KiB. Nothing happens with another C library, or where the environment says what to do.
    """
    tuned = any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform != "linux" or tuned:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)
        mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_BYTES)
