"""The bound of latency and bandwidth: steps of an algorithm, and what it sends over a link at full rate.

A ring moves least; a tree has fewer steps but an inner rank sends the message twice.
"""

from __future__ import annotations

from typing import NamedTuple

from tensortide.graph.collectives import Collective


class Bound(NamedTuple):
    """Nanoseconds of the fastest ``algorithm``, or way through several nodes, by name."""

    ns: float
    algorithm: str


def bound(kind: Collective, ranks: int, nbytes: float, bytes_per_ns: float, hop_ns: float) -> Bound:
    """The least time over the algorithms of ``kind`` that libraries choose from, each step taking ``hop_ns``:
    ``hop * steps + sent / rate``."""
    if ranks < 2:
        return Bound(0.0, kind.algorithms[0].name)
    return min(
        Bound(hop_ns * way.steps(ranks) + way.sent(ranks) * nbytes / bytes_per_ns, way.name)
        for way in kind.algorithms
        if not way.symmetric
    )
