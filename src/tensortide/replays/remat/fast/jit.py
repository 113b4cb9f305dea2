"""Compilation of the kernel's functions."""

from __future__ import annotations

from typing import Any

from numba import njit

_options: Any = {"cache": True, "nogil": True, "_nrt": False}
compiled = njit(**_options)
"""Without counts of references: every call would count those of every array, and no function here makes an array or
keeps one."""
