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


def pool(residuals: Floats, predicted_ns: Floats, floor: float = FLOOR, weights: Floats | None = None) -> Pool:
    """Pool of log ``residuals`` (measured over predicted) of held-out predictions of ``predicted_ns``.

    ``weights``: what each counts of one, where several err alike; they count as one together.
    """
    import numpy as np

    places = np.array([decade(ns) for ns in predicted_ns])
    counted = np.ones(len(residuals)) if weights is None else weights
    decades = {
        int(place): quantiles(residuals[here], floor, None if weights is None else weights[here])
        for place in np.unique(places)
        if counted[here := places == place].sum() >= LEAST
    }
    return Pool(quantiles(residuals, floor, weights), decades)


def quantiles(residuals: Floats, floor: float = FLOOR, weights: Floats | None = None) -> Quantiles:
    """Half-widths that hold ``COVERAGE`` of ``residuals``, at levels of a finite sample. ``weights``: see ``pool``."""
    import numpy as np

    count, tail = len(residuals) if weights is None else round(float(weights.sum())), (1 - COVERAGE) / 2
    levels = math.floor((count + 1) * tail) / count, min(1.0, math.ceil((count + 1) * (1 - tail)) / count)
    if weights is None:
        below, above = np.quantile(residuals, levels).tolist()
    else:
        order = np.argsort(residuals)
        reached = np.cumsum(weights[order]) / weights.sum()
        places = np.minimum(np.searchsorted(reached, levels), len(order) - 1)
        below, above = residuals[order][places].tolist()
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
