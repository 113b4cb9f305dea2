"""Two sequences of names, one to one where they agree in order: the longest common subsequence, by patience sorting.

References:
    J. W. Hunt, T. G. Szymanski: A fast algorithm for computing longest common subsequences. CACM 20(5), 1977.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence

__all__ = ["align"]

_SLACK = 64


def align(wanted: Sequence[Hashable], found: Sequence[Hashable]) -> list[int | None]:
    """For each item of ``wanted`` the index of its equal in ``found``, ascending; None for those left out.

    As many as can be are matched, the earliest where there is a choice. An item that occurs very often is looked for
    near its own rank only: within ``_SLACK`` occurrences and the difference of both counts.
    """
    places: dict[Hashable, list[int]] = {}
    for index, key in enumerate(found):
        places.setdefault(key, []).append(index)
    counts: dict[Hashable, int] = {}
    for key in wanted:
        counts[key] = counts.get(key, 0) + 1
    ranks = dict.fromkeys(counts, 0)
    tails: list[int] = []  # the smallest end of a matching of each length, and the pair that is there
    ends: list[int] = []
    pairs: list[tuple[int, int, int]] = []  # item, place, the pair before
    for item, key in enumerate(wanted):
        candidates = places.get(key, [])
        rank = ranks[key]
        ranks[key] += 1
        slack = _SLACK + abs(len(candidates) - counts[key])
        for place in reversed(candidates[max(0, rank - slack) : rank + slack]):
            length = bisect_left(tails, place)
            pairs.append((item, place, ends[length - 1] if length else -1))
            tails[length : length + 1] = [place]
            ends[length : length + 1] = [len(pairs) - 1]
    result: list[int | None] = [None] * len(wanted)
    pair = ends[-1] if ends else -1
    while pair >= 0:
        item, place, pair = pairs[pair]
        result[item] = place
    return result
