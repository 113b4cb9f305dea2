"""The cyclic garbage collector, switched off where nothing that is made can be garbage, and kept from old objects."""

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


@contextlib.contextmanager
def frozen_heap() -> Iterator[None]:
    """Keep existing objects, the framework among them, out of garbage collections meanwhile, so that these are short.

    A program that has frozen its heap keeps it frozen: nothing of what else exists is frozen then.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
