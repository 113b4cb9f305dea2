"""Memory that communicators of NCCL take of a GPU, beside PyTorch's pool.

A communicator is made per process group at its first collective. For each channel and each rank that it receives from
it has a buffer of each protocol, as ``computeBuffSizes`` of NCCL's ``src/init.cc`` has them. In a ring a rank receives
from one other; in the tree, which all-reduces take, from a parent and a child, in a group of two from one. Where a
switch joins the devices (NVLink on SXM boards) NCCL has 16 to 32 channels; its newer versions connect a ring and a tree
when a collective first needs them, older ones both at once. Users report 0.5 to 0.7 GB for a group there: the ring and
the tree of 24 channels are 0.46 GB in a group of two and 0.69 GB in larger ones. Over bridges and PCIe NCCL has 2 to 4
channels. Buffers of NVLink SHARP (NVLS) have no published size: the upper end, 0.93 GB, leaves room for them beyond
what is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from tensortide.graph.communication import group_of, kind_of, moves_data
from tensortide.graph.model import Graph

PROTOCOLS = {"Simple": 4 * 2**20, "LL": 8 * 512 * 8 * 16, "LL128": 120 * 640 * 8 * 8}
"""Bytes of the buffer of each protocol of NCCL; of two: lines of a thread, threads, steps, and bytes of a line."""
CONNECTION_BYTES = sum(PROTOCOLS.values())
"""Buffers of all protocols for a channel and a rank that it receives from."""


class Interval(NamedTuple):
    """Bytes at least, probably and at most (None: unknown)."""

    low: int = 0
    likely: int = 0
    high: int | None = 0


def added(intervals: Iterable[Interval]) -> Interval:
    """Return the sum of ``intervals``, whose upper end is unknown where one of theirs is."""
    every = list(intervals)
    highs = [one.high for one in every if one.high is not None]
    high = sum(highs) if len(highs) == len(every) else None
    return Interval(sum(one.low for one in every), sum(one.likely for one in every), high)


Channels: TypeAlias = tuple[int, int, int]
SWITCHED: Channels = (16, 24, 32)
"""Channels of NCCL where a switch joins the devices: at least, probably and at most."""
OTHERS: Channels = (2, 2, 4)
"""The same over bridges and PCIe."""


def used_groups(graph: Graph) -> dict[str, set[str | None]]:
    """The process groups of several ranks that collectives of ``graph`` use, each with their kinds."""
    found: dict[str, set[str | None]] = {}
    for op in graph:
        if moves_data(op.name) and len(graph.meta.groups.get(name := group_of(op), ())) > 1:
            found.setdefault(name, set()).add(kind_of(op.name))
    return found


def communicators(graph: Graph, channels: Channels = SWITCHED) -> Interval:
    """Bytes of the communicators that the step of one of several ranks has; none for a step of one process."""
    return added(_of_each(graph, channels))


def _of_each(graph: Graph, channels: Channels) -> Iterator[Interval]:
    for name, kinds in used_groups(graph).items():
        ranks = len(graph.meta.groups[name])
        tree = min(2, ranks - 1)
        likely = 1 + tree * ("all_reduce" in kinds)
        counts = channels[0], channels[1] * likely, channels[2] * (1 + tree)
        yield Interval(*(count * CONNECTION_BYTES for count in counts))
