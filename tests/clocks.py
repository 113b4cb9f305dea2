"""Clocks of a machine so loaded that a search hardly runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

Found = TypeVar("Found")


def on_a_loaded_machine(find: Callable[[], Found]) -> Found:
    """What ``find`` returns where an hour passes from each look at a clock to the next."""
    hours = itertools.count(time.monotonic(), 3600.0)
    with pytest.MonkeyPatch.context() as patch:
        for clock in ("monotonic", "perf_counter", "process_time"):
            patch.setattr(time, clock, lambda: next(hours))
        return find()
