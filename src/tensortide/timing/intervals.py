"""Intervals of predictions: quantiles of what like predictions missed by, on data that was held out (split conformal).

A pool holds log residuals, measured over predicted, of predictions with the same claim: of one model and provenance,
by decade of the predicted time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEAST = 30
"""Residuals that a pool needs; smaller ones are merged with all decades."""
FLOOR_MEASURED = 0.03
FLOOR = 0.06
"""No interval is narrower: the same benchmark on the same accelerator differs by 6.8 % (median) between sites."""
UNMEASURED = 0.7
"""Half-width of what no residuals are known for: a factor of two."""
COVERAGE = 0.8


class Quantiles(msgspec.Struct, frozen=True):
    """Half-widths ``below`` and ``above`` in natural logarithms, from ``count`` residuals."""

    below: float
    above: float
    count: int


class Pool(msgspec.Struct, frozen=True):
    """Quantiles of all residuals and of the decades of predicted nanoseconds that have enough."""

    all: Quantiles
    decades: Mapping[int, Quantiles] = {}

    def of(self, ns: float) -> Quantiles:
        """The quantiles for a prediction of ``ns``."""
        return self.decades.get(decade(ns), self.all)


WIDE = Pool(Quantiles(UNMEASURED, UNMEASURED, 0))


def decade(ns: float) -> int:
    """Whole part of the common logarithm of ``ns``."""
    return math.floor(math.log10(max(ns, 1.0)))


def pool(residuals: Floats, predicted_ns: Floats, floor: float = FLOOR) -> Pool:
    """Pool of log ``residuals`` (measured over predicted) of held-out predictions of ``predicted_ns``."""
    import numpy as np

    places = np.array([decade(ns) for ns in predicted_ns])
    decades = {
        int(place): quantiles(residuals[places == place], floor)
        for place in np.unique(places)
        if (places == place).sum() >= LEAST
    }
    return Pool(quantiles(residuals, floor), decades)


def quantiles(residuals: Floats, floor: float = FLOOR) -> Quantiles:
    """Half-widths that hold ``COVERAGE`` of ``residuals``, at the levels of a finite sample."""
    import numpy as np

    count, tail = len(residuals), (1 - COVERAGE) / 2
    low = math.floor((count + 1) * tail) / count
    high = min(1.0, math.ceil((count + 1) * (1 - tail)) / count)
    below, above = np.quantile(residuals, [low, high]).tolist()
    return Quantiles(max(floor, -below), max(floor, above), count)


class Held(NamedTuple):
    """Coverage of intervals: the share of ``cells`` whose measured time they hold, and their mean log half-width."""

    cells: int
    share: float
    log_width: float


def coverage(low: Sequence[float], high: Sequence[float], measured: Sequence[float]) -> Held:
    """Share of ``measured`` between ``low`` and ``high``."""
    inside = [a <= ns <= b for a, b, ns in zip(low, high, measured, strict=True)]
    widths = [math.log(b / a) / 2 for a, b in zip(low, high, strict=True)]
    return Held(len(inside), sum(inside) / len(inside), sum(widths) / len(widths))
