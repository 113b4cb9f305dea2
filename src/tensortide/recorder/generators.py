"""Random generators that the user holds: a capture that draws from one puts its state back."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import torch


def rewinder(value: Any) -> Callable[[], Any] | None:
    """Function that restores the present state of ``value`` if it is a random generator, else None."""
    if isinstance(value, torch.Generator):
        state = value.get_state()
        return lambda: value.set_state(state)
    if isinstance(value, random.Random):
        drawn = value.getstate()
        return lambda: value.setstate(drawn)
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is None:
        return None
    if isinstance(value, numpy_random.RandomState):
        legacy = value.get_state()
        return lambda: value.set_state(legacy)
    if isinstance(value, numpy_random.Generator):
        bits = value.bit_generator.state
        return lambda: setattr(value.bit_generator, "state", bits)
    return None
