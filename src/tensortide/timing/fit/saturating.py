"""Fit of the families of one device: each has constants of its own as far as its samples say, else those of its like.

The three constants of a family are the pooled ones of its group (products, or all others) times a deviation. The
deviations, the pooled constants and the sizes of saturation have priors, in logarithms: a family of few samples, or of
samples that say nothing of a constant, stays near the others, and its note says which are not identified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensortide.timing.families import VIEW
from tensortide.timing.fit.robust import soft_l1
from tensortide.timing.fit.samples import Samples, domain
from tensortide.timing.models.constants import ANY, NAMES, Constants, formula
from tensortide.timing.models.saturating import PRODUCTS, Saturating, Sequel, is_product, slowed
from tensortide.timing.rates import Columns

Floats = NDArray[np.float64]

LEAST = 4
"""Samples that three constants need."""
CENTRE = np.log([0.75, 0.6, 5e3])
"""Shares of the peak rate and of the bandwidth, and launch in nanoseconds, before anything is measured."""
SATURATION = np.log([4.0, 8.0, 30.0])
SEQUEL = np.log([1e4, 1e7, 0.1])
POOLED, DEVIATION, SHARED = (0.5, 1.0, 1.5), (0.3, 0.7, 0.5), 1.0
"""Standard deviations of the priors: of the pooled constants around ``CENTRE``, of families around the pooled ones, of
those that all families share: the sizes of saturation, and the constants of a Sequel."""
NOISE = 0.15
"""Standard deviation of the log residuals of long ops."""
TIME_WEIGHT = 0.25
"""Power of an op's time by which its residual counts: long ops count more."""
LEAST_SHARE = 0.2
"""Share of a measured time that is an op's own, at least."""
TELLING = 0.25
"""Part of an op's time that a constant is behind in a sample that says something of it."""


def fit_saturating(measured: Samples, typical_ns: float | Floats | None = None) -> Saturating:
    """Fit the families of ``measured``. Raises ValueError if there are no products, or nothing else.

    ``typical_ns`` is the mean time of the ops of each one's step (None: of all): ops count by what they are in theirs.
    What the sequence of ops adds is fitted with ops that are no products, which are short, and taken from the others.
    """
    typical = np.broadcast_to(measured.ns.mean() if typical_ns is None else typical_ns, measured.ns.shape)
    view, product = (np.array(column, bool) for column in zip(*map(_kind, measured.columns.families), strict=True))
    plain = ~product & ~view
    others = _fit(measured.where(plain), typical[plain], _SEQUEL)
    placed = measured.columns.after_bytes.any() or measured.columns.fresh_bytes.any()
    added = Sequel(*others.shared) if placed else Sequel()
    products = _fit(_without(measured.where(product), added), typical[product], _SATURATION)
    families = {ANY: others.pooled, PRODUCTS: products.pooled, **others.families, **products.families}
    if view.any():
        families[VIEW] = _view(measured.where(view), added)
    m, n, k = products.shared
    return Saturating((m, n, k), families, added)


def _kind(family: str) -> tuple[bool, bool]:
    return family == VIEW, is_product(family)


def _view(measured: Samples, added: Sequel) -> Constants:
    """Return what views take by themselves: the median of the half that least was ``added`` to."""
    more = added.ns(measured.columns)
    least = more <= np.median(more)
    return Constants(1.0, 1.0, float(np.median(_without(measured, added).ns[least])), len(measured))


def _without(measured: Samples, added: Sequel) -> Samples:
    """``measured`` without what the sequence of ops ``added``, but for ``LEAST_SHARE`` of their times."""
    own = np.maximum(measured.ns - added.ns(measured.columns), LEAST_SHARE * measured.ns)
    return Samples(measured.columns, own, measured.issue_ns)


class _Shared(NamedTuple):
    """Three constants that all families of a group share: their prior, in logarithms, and what they change."""

    centre: Floats
    slower: Callable[[Columns, Floats], Columns]
    added: Callable[[Columns, Floats], Floats]


_SATURATION = _Shared(SATURATION, slowed, lambda columns, constants: np.zeros(len(columns.nbytes)))
_SEQUEL = _Shared(SEQUEL, lambda columns, constants: columns, lambda columns, constants: Sequel(*constants).ns(columns))


class _Group(NamedTuple):
    """The fit of one group of families."""

    shared: list[float]
    pooled: Constants
    families: dict[str, Constants]


def _fit(measured: Samples, typical: Floats, shared: _Shared) -> _Group:
    """Fit one group: logarithms of the shared constants, of the pooled ones, and deviations of families, so ordered."""
    if not len(measured):
        raise ValueError("a fit takes products and other ops")
    names = sorted(set(measured.columns.families))
    row = np.searchsorted(names, measured.columns.families)
    weight, target = (measured.ns / typical) ** TIME_WEIGHT, np.log(measured.ns)
    deviations = np.concatenate([np.full(3, SHARED), POOLED, np.tile(DEVIATION, len(names))])

    def residuals(place: Floats) -> Floats:
        constants, pooled, own = np.exp(shared.centre + place[:3]), place[3:6], place[6:].reshape(-1, 3)
        columns = shared.slower(measured.columns, constants)
        predicted = formula(columns, *np.exp(CENTRE + pooled + own)[row].T) + shared.added(columns, constants)
        return np.concatenate([weight * (np.log(predicted) - target), NOISE / deviations * place])

    place = soft_l1(residuals, np.zeros(len(deviations)))
    pooled, own = CENTRE + place[3:6], place[6:].reshape(-1, 3)
    constants = np.exp(shared.centre + place[:3])
    slower = Samples(shared.slower(measured.columns, constants), measured.ns)
    families = {name: _constants(pooled + own[i], slower.where(row == i)) for i, name in enumerate(names)}
    return _Group(constants.tolist(), _constants(pooled, slower), families)


def _constants(logs: Floats, measured: Samples) -> Constants:
    """Constants with the note of those that fewer than ``LEAST`` of the samples say something of."""
    compute, memory, launch = np.exp(logs).tolist()
    arithmetic, moving = measured.columns.compute_ns / compute, measured.columns.memory_ns / memory
    whole = launch + np.fmax(arithmetic, moving)
    parts = [np.where(arithmetic > moving, arithmetic, 0.0), np.where(arithmetic > moving, 0.0, moving), launch]
    unsaid = [name for name, part in zip(NAMES, parts, strict=True) if (part >= TELLING * whole).sum() < LEAST]
    return Constants(compute, memory, launch, len(measured), domain([measured]), not_identified(unsaid))


def not_identified(names: Sequence[str]) -> str:
    """Note of constants that are not identified, empty without any."""
    return f"{', '.join(names)} not identified" if names else ""
