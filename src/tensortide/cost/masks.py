"""Number of (query, key) pairs per head that a mask leaves. Counting convention: docs/cost.md, attention."""

from __future__ import annotations

__all__ = ["bottom_right", "dense", "top_left", "window"]


def dense(queries: int, keys: int) -> int:
    """Every query meets every key."""
    return queries * keys


def top_left(queries: int, keys: int) -> int:
    """Causal from the first key on: key j <= query i.

    >>> top_left(4, 4), top_left(2, 4), top_left(4, 2)
    (10, 3, 7)
    """
    if queries >= keys:
        return keys * (keys + 1) // 2 + (queries - keys) * keys
    return queries * (queries + 1) // 2


def bottom_right(queries: int, keys: int) -> int:
    """Causal up to the last key: j <= i + keys - queries, decoding with a cache.

    >>> bottom_right(4, 4), bottom_right(2, 4), bottom_right(4, 2)
    (10, 7, 3)
    """
    if queries <= keys:
        return queries * keys - queries * (queries - 1) // 2
    return keys * (keys + 1) // 2


def window(queries: int, keys: int, left: int | None, right: int | None, shift: int = 0) -> int:
    """Keys from ``left`` before to ``right`` after the diagonal i + shift; None is unlimited.

    >>> window(4, 4, 1, 0), window(4, 4, None, 0), window(1, 8, 2, 0, shift=7)
    (7, 10, 3)
    """
    total = 0
    for i in range(queries):
        first = 0 if left is None else max(0, i + shift - left)
        last = keys - 1 if right is None else min(keys - 1, i + shift + right)
        total += max(0, last - first + 1)
    return total
