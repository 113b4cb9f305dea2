"""Kinds of collectives, one row each: the part of a message that crosses a link, and the steps of a ring and a tree.

Sizes are total bytes: of the buffer on each rank (all-reduce), of the gathered output (all-gather), of the full input
(reduce-scatter), of one rank's whole send buffer (all-to-all), of the message (broadcast, reduce, send and receive).
"""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Callable
from typing import NamedTuple

from tensortide.errors import TensortideError

TREE_VOLUME = 2
"""Messages that an inner rank of a binary tree sends: one to each child, or one up and one down."""


class Collective(NamedTuple):
    """One kind of collective among n ranks.

    Args:
        phi: bytes that cross a rank's link in one direction, over total bytes, with a ring.
        passes: how often a ring goes around: its steps are ``passes`` times n - 1.
        tree_passes: how often a tree goes from the root to the leaves or back; 0: the kind has no tree.
        divided: the total is divided evenly among the ranks.
        like: the measured kind whose constants are taken, with wider intervals, where a kind has none of its own.
    """

    name: str
    phi: Callable[[int], float]
    passes: int = 1
    tree_passes: int = 0
    divided: bool = False
    like: str = ""

    def padded(self, nbytes: int, ranks: int) -> int:
        """Total bytes as libraries move them: where they are divided among ``ranks``, padded to equal parts."""
        return -(-nbytes // ranks) * ranks if self.divided else nbytes

    def tree_steps(self, ranks: int) -> int:
        """Hops of a tree over ``ranks``."""
        return self.tree_passes * math.ceil(math.log2(ranks))


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _whole(ranks: int) -> float:
    return 1.0 if ranks > 1 else 0.0


COLLECTIVES: dict[str, Collective] = {
    row.name: row
    for row in (
        Collective("all_reduce", lambda ranks: 2 * _others(ranks), passes=2, tree_passes=2),
        Collective("all_gather", _others, divided=True),
        Collective("reduce_scatter", _others, divided=True),
        Collective("all_to_all", _others, divided=True),
        Collective("broadcast", _whole, tree_passes=1, like="all_gather"),
        Collective("reduce", _whole, tree_passes=1, like="reduce_scatter"),
        Collective("send_recv", _whole),
    )
}
"""Every kind of collective, by name."""


def whole(number: object, what: str, least: int) -> int:
    """``number`` as an integer of ``least`` at least. Raises TensortideError, which tells ``what`` it is of, for any
    other: ``all_reduce of {} bytes``."""
    try:
        found = operator.index(number)  # type: ignore[arg-type]  # it refuses what is none
    except TypeError:
        found = least - 1
    if found < least or isinstance(number, bool):
        raise TensortideError(f"{what.format(repr(number))}: it needs a whole number, at least {least}")
    return found


def kind(name: str) -> Collective:
    """The row of ``name``. Raises TensortideError for any other name; the message lists the kinds."""
    found = COLLECTIVES.get(name)
    if found is None:
        near = difflib.get_close_matches(name, COLLECTIVES, n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise TensortideError(f"no collective is called {name!r}. {hint}Kinds: {', '.join(COLLECTIVES)}.")
    return found
