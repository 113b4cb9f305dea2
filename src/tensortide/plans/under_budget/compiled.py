"""Functions over arrays, compiled by Numba where it is installed, else run by Python as they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from numba import njit
except ImportError:
    IS_COMPILED = False
else:
    IS_COMPILED = True


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` when it is first called, if Numba is there."""
    return njit(nogil=True)(function) if IS_COMPILED else function
