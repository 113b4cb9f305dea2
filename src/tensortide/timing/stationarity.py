"""Stationarity of measured times of a step: drift, autocorrelation and outliers of a series.

Drift is tested as Mann (1945) and Kendall (1975) do, with the normal form of S and its correction for ties; its size is
Theil's (1950) and Sen's (1968) median slope. Outliers are told by the median absolute deviation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np

from tensortide.errors import WorkloadError
from tensortide.shown import Show
from tensortide.units import format_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEAST = 8
"""Steps that the normal form of the drift test needs."""
SIGNIFICANT = 0.01
"""A drift with a smaller p is taken for one."""
NORMAL_QUANTILE = 2.326
"""One in a hundred normal deviates is above it."""
FAR = 5.0
"""Standard deviations from the median at which an outlier begins."""
MAD_TO_DEVIATION = 1.4826
"""Standard deviation of normal noise over its median absolute deviation."""
FINEST = 1e-3
"""Least standard deviation, as a share of the median: coarse clocks repeat values."""


class Outlier(NamedTuple):
    """A step far from the median: its number, from 0, its residual, and that in robust standard deviations."""

    step: int
    residual: float
    deviations: float


@dataclass(frozen=True)
class Stationarity:
    """Statistics of the times, ns, of ``steps`` (numbers, from 0).

    ``residuals`` are times over their median, less 1. ``deviation_share`` is their standard deviation by the median
    absolute deviation. ``drift_change`` is that from the first to the last step by the median slope, as a share of the
    median; ``p`` the probability of a trend as strong as theirs in independent noise. ``autocorrelation`` is that of
    neighbours, outliers clipped and the drift subtracted.
    """

    steps: Annotated[tuple[int, ...], Show("Steps", "count")]
    median_ns: Annotated[float, Show("Median")]
    residuals: tuple[float, ...]
    deviation_share: Annotated[float, Show("Standard deviation", remark="by the median absolute deviation")]
    drift_change: Annotated[float, Show("Drift", remark="from first to last step, by the median slope")]
    p: Annotated[float, Show("Probability by chance", "ratio", remark="of such a trend, by Mann and Kendall")]
    autocorrelation: Annotated[float, Show("Autocorrelation", "ratio")]
    outliers: Annotated[tuple[Outlier, ...], Show("Outliers", "count", remark=f"over {FAR:g} standard deviations away")]

    @property
    def autocorrelation_limit(self) -> float:
        """The autocorrelation that independent noise exceeds once in a hundred times."""
        return NORMAL_QUANTILE / math.sqrt(len(self.steps))

    @property
    def drifts(self) -> bool:
        """True if there is a trend."""
        return self.p < SIGNIFICANT

    @property
    def wanders(self) -> bool:
        """True if neighbouring steps are alike beyond chance."""
        return self.autocorrelation > self.autocorrelation_limit

    @property
    def stationary(self) -> Annotated[bool, Show("Stationary")]:
        """True if steps neither drift nor wander; outliers do not matter."""
        return not self.drifts and not self.wanders

    @property
    def verdict(self) -> str:
        """One sentence."""
        count = len(self.outliers)
        found = f"{count or 'no'} outlier{'s' * (count != 1)}"
        chance = f"p = {self.p:.2g}" if self.p >= 0.001 else "p < 0.001"
        drift = f"{100 * self.drift_change:+z.1f} % over {len(self.steps)} steps ({chance})"
        parts = [f"median {format_seconds(self.median_ns / 1e9)}", f"no drift ({chance})", found]
        if self.drifts:
            parts[1] = f"drift of {drift}"
        if self.wanders:
            parts.insert(2, f"neighbouring steps alike (autocorrelation {self.autocorrelation:.2f})")
        return f"{'stationary' if self.stationary else 'not stationary'}: {', '.join(parts)}"


def require_enough(count: int) -> None:
    """Raise WorkloadError for fewer steps than tests can tell anything of."""
    if count < LEAST:
        raise WorkloadError(f"{count} steps say nothing of drift: {LEAST} or more are needed")


def last_batches(count: int, first: int, batches: int) -> tuple[int, ...]:
    """Those of ``count`` steps that take the last batch of an epoch of ``batches``; ``first`` is the call number of the
    first of them, from 0."""
    return tuple(step for step in range(count) if (first + step) % batches == batches - 1)


def stationarity(ns: Sequence[float], without: Sequence[int] = ()) -> Stationarity:
    """Test the times of consecutive steps, ns, apart from the steps ``without``.

    Raises WorkloadError for fewer than ``LEAST`` of them, or a time that is not above 0.

    Examples:
        >>> stationarity([100, 101, 99, 102, 100, 98, 101, 150, 100, 99]).verdict
        'stationary: median 100 ns, no drift (p = 0.93), 1 outlier'
    """
    steps = np.array([step for step in range(len(ns)) if step not in set(without)], int)
    require_enough(len(steps))
    times = np.array(ns, float)[steps]
    if not (times > 0).all():
        raise WorkloadError("a step took no time by this clock: give it a larger batch")
    median = float(np.median(times))
    residuals = times / median - 1
    deviation = float(MAD_TO_DEVIATION * np.median(np.abs(residuals)))
    scores = residuals / max(deviation, FINEST)
    slope = _median_slope(steps, residuals)
    level = np.clip(residuals, -FAR * max(deviation, FINEST), FAR * max(deviation, FINEST)) - slope * steps
    return Stationarity(
        steps=tuple(steps.tolist()),
        median_ns=median,
        residuals=tuple(residuals.tolist()),
        deviation_share=deviation,
        drift_change=slope * float(steps[-1] - steps[0]),
        p=_trend_probability(times),
        autocorrelation=_autocorrelation(level),
        outliers=tuple(
            Outlier(int(steps[i]), float(residuals[i]), float(scores[i])) for i in np.flatnonzero(np.abs(scores) > FAR)
        ),
    )


def _trend_probability(values: Floats) -> float:
    """Two-sided p of Mann's and Kendall's S, with the correction for continuity and for ties."""
    count = len(values)
    upper = np.triu_indices(count, 1)
    s = int(np.sign(values[upper[1]] - values[upper[0]]).sum())
    ties = np.unique(values, return_counts=True)[1]
    variance = (count * (count - 1) * (2 * count + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()) / 18
    if variance <= 0 or s == 0:
        return 1.0
    return math.erfc((abs(s) - 1) / math.sqrt(2 * variance))


def _median_slope(steps: NDArray[np.int_], values: Floats) -> float:
    """Median of the slopes between all pairs."""
    first, second = np.triu_indices(len(values), 1)
    return float(np.median((values[second] - values[first]) / (steps[second] - steps[first])))


def _autocorrelation(values: Floats) -> float:
    """Correlation of neighbours: 0 for values that are all the same."""
    around = values - values.mean()
    power = float(around @ around)
    return float(around[1:] @ around[:-1]) / power if power else 0.0
