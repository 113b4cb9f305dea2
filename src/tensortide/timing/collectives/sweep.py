"""Measured collectives of a machine, interpolated in the logarithms of bytes and ranks."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable

import msgspec

from tensortide.errors import TensortideError


class Sweep(msgspec.Struct, frozen=True):
    """Measured times of one kind on one machine: for each number of ranks, the sizes and nanoseconds, both rising."""

    by_ranks: dict[int, tuple[tuple[int, ...], tuple[float, ...]]]

    def ns(self, ranks: int, nbytes: int) -> float | None:
        """Nanoseconds of ``nbytes`` among ``ranks``; None outside the measured range."""
        known = sorted(self.by_ranks)
        place = bisect.bisect_left(known, ranks)
        if place == len(known) or ranks < known[0]:
            return None
        above = self._at(known[place], nbytes)
        if known[place] == ranks or above is None:
            return above
        below = self._at(known[place - 1], nbytes)
        return None if below is None else _between(known[place - 1], below, known[place], above, ranks)

    def measured(self, ranks: int, nbytes: int) -> bool:
        """Return whether this very size was measured among as many ranks."""
        return nbytes in self.by_ranks.get(ranks, ((), ()))[0]

    def _at(self, ranks: int, nbytes: int) -> float | None:
        sizes, ns = self.by_ranks[ranks]
        place = bisect.bisect_left(sizes, nbytes)
        if place == len(sizes) or nbytes < sizes[0]:
            return None
        if sizes[place] == nbytes:
            return ns[place]
        return _between(sizes[place - 1], ns[place - 1], sizes[place], ns[place], nbytes)


def sweep(samples: Iterable[tuple[int, int, float]]) -> Sweep:
    """A Sweep of measured (ranks, total bytes, nanoseconds).

    Where a larger message was measured to take less than a smaller one, it is taken to take as long: more bytes never
    take less. Of several samples of one size the median counts.

    Raises TensortideError for no samples, or one that is not positive.
    """
    rows: dict[int, dict[int, list[float]]] = {}
    for ranks, nbytes, ns in samples:
        if ranks < 2 or nbytes < 1 or not 0 < ns < math.inf:
            raise TensortideError(
                f"a measured collective of {nbytes} bytes among {ranks} ranks in {ns} ns: bytes and time must be "
                f"positive, and ranks at least 2"
            )
        rows.setdefault(ranks, {}).setdefault(nbytes, []).append(ns)
    if not rows:
        raise TensortideError("a sweep needs at least one measured collective")
    found = {}
    for ranks, by_size in rows.items():
        sizes = tuple(sorted(by_size))
        medians = [sorted(by_size[size])[len(by_size[size]) // 2] for size in sizes]
        found[ranks] = (sizes, tuple(itertools.accumulate(medians, max)))
    return Sweep(found)


def _between(x0: float, y0: float, x1: float, y1: float, x: float) -> float:
    part = math.log(x / x0) / math.log(x1 / x0)
    return math.exp(math.log(y0) * (1 - part) + math.log(y1) * part)
