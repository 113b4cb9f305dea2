"""Fit of the families of one device: each has constants of its own as far as its samples say, else those of its like.

The three constants of a family are the pooled ones of its group (products, or all others) times a deviation. The
deviations, the pooled constants and the sizes of saturation have priors, in logarithms: a family of few samples, or of
samples that say nothing of a constant, stays near the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensortide.timing.families import VIEW
from tensortide.timing.fit.robust import soft_l1
from tensortide.timing.fit.samples import Samples, domain
from tensortide.timing.models.constants import ANY, Constants, formula
from tensortide.timing.models.saturating import PRODUCTS, Saturating, is_product, slowed

Floats = NDArray[np.float64]

CENTRE = np.log([0.75, 0.6, 5e3])
"""Shares of the peak rate and of the bandwidth, and launch in nanoseconds, before anything is measured."""
SATURATION = np.log([4.0, 8.0, 30.0])
POOLED, DEVIATION, SATURATED = (0.5, 1.0, 1.5), (0.3, 0.7, 0.5), 1.0
"""Standard deviations of the priors: of the pooled constants around ``CENTRE``, of families around the pooled ones, of
the sizes of saturation."""
NOISE = 0.15
"""Standard deviation of the log residuals of long ops."""
TIME_WEIGHT = 0.25
"""Power of an op's time by which its residual counts: long ops count more."""


def fit_saturating(measured: Samples) -> Saturating:
    """Fit the families of ``measured``. Raises ValueError if there are no products, or nothing else."""
    view, product = (np.array(column, bool) for column in zip(*map(_kind, measured.columns.families), strict=True))
    products, others = _fit(measured.where(product), True), _fit(measured.where(~product & ~view), False)
    families = {ANY: others.pooled, PRODUCTS: products.pooled, **others.families, **products.families}
    if view.any():
        families[VIEW] = Constants(1.0, 1.0, float(np.median(measured.ns[view])), int(view.sum()))
    m, n, k = products.saturation
    return Saturating((m, n, k), families)


def _kind(family: str) -> tuple[bool, bool]:
    return family == VIEW, is_product(family)


class _Group(NamedTuple):
    """The fit of one group of families."""

    saturation: list[float]
    pooled: Constants
    families: dict[str, Constants]


def _fit(measured: Samples, saturates: bool) -> _Group:
    """Fit one group: logarithms of saturation, pooled constants, and deviations of families, in this order."""
    if not len(measured):
        raise ValueError("a fit takes products and other ops")
    names = sorted(set(measured.columns.families))
    row = np.searchsorted(names, measured.columns.families)
    weight, target = (measured.ns / measured.ns.mean()) ** TIME_WEIGHT, np.log(measured.ns)
    sizes = 3 if saturates else 0
    deviations = np.concatenate([np.full(sizes, SATURATED), POOLED, np.tile(DEVIATION, len(names))])

    def residuals(place: Floats) -> Floats:
        columns = measured.columns
        if saturates:
            columns = slowed(columns, np.exp(SATURATION + place[:3]))
        pooled, own = place[sizes : sizes + 3], place[sizes + 3 :].reshape(-1, 3)
        predicted = formula(columns, *np.exp(CENTRE + pooled + own)[row].T)
        return np.concatenate([weight * (np.log(predicted) - target), NOISE / deviations * place])

    place = soft_l1(residuals, np.zeros(len(deviations)))
    pooled, own = CENTRE + place[sizes : sizes + 3], place[sizes + 3 :].reshape(-1, 3)
    families = {}
    for i, name in enumerate(names):
        some = measured.where(row == i)
        families[name] = _constants(pooled + own[i], some)
    found = np.exp(SATURATION + place[:3]).tolist() if saturates else [0.0, 0.0, 0.0]
    return _Group(found, _constants(pooled, measured), families)


def _constants(logs: Floats, measured: Samples) -> Constants:
    compute, memory, launch = np.exp(logs).tolist()
    return Constants(compute, memory, launch, len(measured), domain([measured]))
