"""Bytes of a place over time, from the changes that playing a plan makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensortide.plans.events.played import Played

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Changes in the order in which they happen, as int64 arrays, and ``level``: the bytes held right after each.

    At one instant a release comes before what later steps allocate, and after what its step and earlier ones do.
    ``storage`` is -1 where the bytes are workspace. ``before`` are the bytes held before all.
    """

    before: int
    time_ns: Ints
    step: Ints
    storage: Ints
    nbytes: Ints
    level: Ints


def levels(played: Played, place: str) -> Levels:
    """The bytes of ``place`` over time. Their maximum after an allocation is the peak of the place."""
    import numpy as np

    before, changes = played.before_bytes[place], played.changes[place]
    time_ns, nbytes, storage, step = np.array(changes, np.int64).reshape(-1, 4).T
    order = np.lexsort((nbytes < 0, step, time_ns))
    level = before + np.cumsum(nbytes[order])
    return Levels(before, time_ns[order], step[order], storage[order], nbytes[order], level)
