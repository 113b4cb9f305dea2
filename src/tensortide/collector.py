"""The cyclic garbage collector, switched off where nothing that is made can be garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Run no cyclic collection meanwhile. As a decorator: for functions that make many records and no cycle, where
    collections take most of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
