"""Time in which a device computes while something moves."""

from __future__ import annotations

from collections.abc import Iterable


def overlap_ns(runs: Iterable[tuple[float, float]], busy: Iterable[tuple[float, float]]) -> int:
    """The length of the intersection of ``runs``, which do not overlap each other, and the union of ``busy``."""
    union: list[tuple[float, float]] = []
    for start, end in sorted(busy):
        if union and start <= union[-1][1]:
            union[-1] = union[-1][0], max(union[-1][1], end)
        else:
            union.append((start, end))
    total, at = 0.0, 0
    for start, end in runs:
        while at < len(union) and union[at][1] <= start:
            at += 1
        here = at
        while here < len(union) and union[here][0] < end:
            total += min(end, union[here][1]) - max(start, union[here][0])
            here += 1
    return round(total)
