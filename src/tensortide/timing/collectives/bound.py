"""The bound of latency and bandwidth: hops of an algorithm, and what it sends over a link at full rate.

A ring moves least; a tree has fewer hops but an inner rank sends the message twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tensortide.timing.collectives.kinds import TREE_VOLUME, Collective


class Algorithm(NamedTuple):
    """One algorithm: the kinds and numbers of ranks that it ``serves``, the steps that follow each other, and the part
    of a message that a rank sends."""

    name: str
    serves: Callable[[Collective, int], bool]
    steps: Callable[[Collective, int], int]
    volume: Callable[[Collective, int], float]


ALGORITHMS = (
    Algorithm(
        "ring",
        lambda kind, ranks: True,
        lambda kind, ranks: kind.passes * (ranks - 1),
        lambda kind, ranks: kind.phi(ranks),
    ),
    Algorithm(
        "tree",
        lambda kind, ranks: kind.tree_passes > 0 and ranks > 2,
        lambda kind, ranks: kind.tree_steps(ranks),
        lambda kind, ranks: TREE_VOLUME,
    ),
)


class Bound(NamedTuple):
    """Nanoseconds of the fastest ``algorithm``, by name."""

    ns: float
    algorithm: str


def bound(kind: Collective, ranks: int, nbytes: float, bytes_per_ns: float, hop_ns: float) -> Bound:
    """The least time over the algorithms of ``kind``, each hop taking ``hop_ns``: ``a * steps + volume / rate``."""
    if ranks < 2:
        return Bound(0.0, ALGORITHMS[0].name)
    return min(
        Bound(hop_ns * way.steps(kind, ranks) + way.volume(kind, ranks) * nbytes / bytes_per_ns, way.name)
        for way in ALGORITHMS
        if way.serves(kind, ranks)
    )
