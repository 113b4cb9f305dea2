"""The 90th percentile of the calls of several ops, of each of which minimum, median and p90 are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_SHARE = 0.9


class Spread(NamedTuple):
    """Times of one op; ``calls`` is how often it runs in a step."""

    min_ns: int
    median_ns: int
    p90_ns: int
    calls: int = 1


def pooled_p90(spreads: Sequence[Spread]) -> int:
    """The time that 90 % of the calls of all ops do not exceed.

    Times of an op are taken to lie evenly between its minimum, median and p90, and the slowest tenth at its p90.
    """
    import numpy as np

    if len(spreads) == 1:
        return spreads[0].p90_ns
    least, median, most, calls = np.array(spreads, float).T
    below, above = np.maximum(median - least, 1e-9), np.maximum(most - median, 1e-9)

    def share(ns: float) -> float:
        to_median = 0.5 * np.clip((ns - least) / below, 0.0, 1.0)
        to_p90 = (_SHARE - 0.5) * np.clip((ns - median) / above, 0.0, 1.0)
        return float(np.average(np.where(ns >= most, 1.0, to_median + to_p90), weights=calls))

    low, high = 0.0, float(most.max())
    while high - low > 0.25 and low < (middle := (low + high) / 2) < high:  # far up, neighbours are further apart
        low, high = (low, middle) if share(middle) >= _SHARE else (middle, high)
    return round(high)
