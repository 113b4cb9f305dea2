"""The bound of latency and bandwidth: hops of an algorithm, and what it sends over a link at full rate."""

from __future__ import annotations

from typing import NamedTuple

from tensortide.timing.collectives.kinds import TREE_VOLUME, Kind


class Bound(NamedTuple):
    """Nanoseconds of the fastest ``algorithm``: ``ring`` or ``tree``."""

    ns: float
    algorithm: str


def bound(kind: Kind, ranks: int, nbytes: float, bytes_per_ns: float, hop_ns: float) -> Bound:
    """The least time over the algorithms of ``kind``, each hop taking ``hop_ns``: ``a * steps + volume / rate``.

    A ring moves least; a tree has fewer hops but an inner rank sends the message twice.
    """
    if ranks < 2:
        return Bound(0.0, "ring")
    steps = kind.passes * (ranks - 1)
    found = [Bound(hop_ns * steps + kind.phi(ranks) * nbytes / bytes_per_ns, "ring")]
    if kind.tree_passes and ranks > 2:
        found.append(Bound(hop_ns * kind.tree_steps(ranks) + TREE_VOLUME * nbytes / bytes_per_ns, "tree"))
    return min(found)
