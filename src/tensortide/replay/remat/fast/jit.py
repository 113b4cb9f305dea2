"""How functions of the kernel are compiled."""

from __future__ import annotations

from numba import njit

compiled = njit(cache=True, nogil=True, _nrt=False)
"""Without counts of references: every call would count those of every array, and no function here makes an array or
keeps one."""
