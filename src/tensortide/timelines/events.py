"""Events of a Timeline: runs of ops, transfers and evictions, as columns."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensortide.memory.lifetimes import Ints


class Kind(enum.IntEnum):
    """Kinds of events."""

    RUN = 0
    """An op of the step ran."""
    RECOMPUTE = 1
    """A value was recomputed because an op needed it."""
    EVICT = 2
    """A storage left memory, and can be recomputed."""
    BANISH = 3
    """A storage left memory for good."""
    DEAD = 4
    """A storage that is not resident will never be needed again."""
    PIN = 5
    """From here on a storage must stay resident."""
    OFFLOAD = 6
    """A storage moved to another memory."""
    FETCH = 7
    """An offloaded storage came back."""
    SEND = 8
    """A storage was copied to another device."""
    RECEIVE = 9
    """A storage arrived from another device."""
    ISSUE = 10
    """The host issued an op."""
    COPY = 11
    """A storage was copied to another memory, and stays resident."""


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Columns with an entry per event, int64 arrays of equal length, in the order of their starts on each lane.

    ``kind`` is a ``Kind``; ``index`` an op or a storage of the Timeline's ``recorded`` graph (-1: neither, such as an
    op of an earlier step); ``lane`` a position in the Timeline's ``lanes``. ``start_ns`` and ``end_ns`` are equal for
    what takes no time, and throughout a Timeline without durations. ``resident_bytes`` are those on the Timeline's
    device: during an op or a transfer, and just after any other event.
    """

    kind: Ints
    index: Ints
    lane: Ints
    start_ns: Ints
    end_ns: Ints
    resident_bytes: Ints

    def __len__(self) -> int:
        return len(self.kind)


def events_of(
    kind: Sequence[int],
    index: Sequence[int],
    start_ns: Sequence[int],
    end_ns: Sequence[int],
    resident_bytes: Sequence[int],
) -> Events:
    """The events of the only lane of a Timeline."""
    import numpy as np

    kinds, indexes, starts, ends, levels = (
        np.asarray(column, np.int64) for column in (kind, index, start_ns, end_ns, resident_bytes)
    )
    return Events(kinds, indexes, 0 * kinds, starts, ends, levels)
