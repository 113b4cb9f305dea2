"""Fit of one device to measured steps, and what it misses steps by that it has not seen: intervals are made of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensortide.timing.families import VIEW
from tensortide.timing.fit.robust import soft_l1
from tensortide.timing.fit.samples import Samples, joined
from tensortide.timing.fit.saturating import fit_saturating
from tensortide.timing.intervals import COVERAGE, FLOOR, LEAST, WIDE, Pool, pool
from tensortide.timing.models.constants import ANY
from tensortide.timing.models.saturating import PRODUCTS, Saturating, is_product

Floats = NDArray[np.float64]

HOST = np.log([3e3, 0.02, 1.0])
"""Nanoseconds after an op, share of its time, and refills of the caches, before anything is measured."""
HOST_PRIOR, HOST_NOISE = 1.0, 0.02
"""Standard deviations: of the logarithms of those, and of the host's part of a step."""


class MeasuredStep(NamedTuple):
    """A measured step: its ops, and the whole of it by the same clock, in nanoseconds."""

    samples: Samples
    ns: float

    @property
    def between_ns(self) -> float:
        """The host's work between the ops."""
        return max(0.0, self.ns - float(self.samples.ns.sum()))


class FrameworkOverhead(NamedTuple):
    """The host's work after an op: ``between_ns``, the share ``overhead`` of the op's time (memory is freed), and
    ``refills`` times what the op's own code and data take to be read again (``Sequel.refills``)."""

    between_ns: float
    overhead: float
    refills: float


class FittedSteps(NamedTuple):
    """A model of steps: of their ops, and of the ``host`` between them."""

    model: Saturating
    host: FrameworkOverhead

    def ns(self, step: MeasuredStep) -> float:
        """Nanoseconds of a whole step of the ops of ``step``."""
        ops = self.model.ns(step.samples.columns)
        return float((ops + self.host_ns(step, ops)).sum())

    def host_ns(self, step: MeasuredStep, ops: Floats) -> Floats:
        """Nanoseconds of the host's work after each op of ``step``, if ``ops`` take so long."""
        refills = self.model.sequel.refills(step.samples.columns)
        found: Floats = self.host.between_ns + self.host.overhead * ops + self.host.refills * refills
        return found


class Residuals(NamedTuple):
    """Log errors on steps that were held out: ``pools`` of ops, and the half-width of whole steps."""

    pools: Mapping[str, Pool]
    step: float

    def pool(self, family: str) -> Pool:
        """The pool of ``family``, else of its like."""
        return self.pools.get(family) or self.pools.get(PRODUCTS if is_product(family) else ANY, WIDE)


def fit_steps(steps: Sequence[MeasuredStep]) -> FittedSteps:
    """Fit the ops of ``steps``, and the host's work between them by their number, their time together and their refills
    of the caches."""
    model = _ops(steps)
    return FittedSteps(model, _host(steps, model))


def _ops(steps: Sequence[MeasuredStep]) -> Saturating:
    typical = np.concatenate([np.full(len(step.samples), step.samples.ns.mean()) for step in steps])
    return fit_saturating(joined([step.samples for step in steps]), typical)


def _host(steps: Sequence[MeasuredStep], model: Saturating) -> FrameworkOverhead:
    """Fit the host's part of ``steps``."""
    parts = [
        (len(s.samples), float(s.samples.ns.sum()), float(model.sequel.refills(s.samples.columns).sum())) for s in steps
    ]
    table = np.array(parts, float)
    between, whole = np.array([(step.between_ns, step.ns) for step in steps], float).T

    def missed(logs: Floats) -> Floats:
        found: Floats = (table @ np.exp(logs) - between) / whole / HOST_NOISE
        prior: Floats = (logs - HOST) / HOST_PRIOR
        return np.concatenate([found, prior])

    each, overhead, refills = np.exp(soft_l1(missed, HOST)).tolist()
    return FrameworkOverhead(each, overhead, refills)


def residuals(steps: Sequence[MeasuredStep], fits: Sequence[FittedSteps]) -> Residuals:
    """Return what ``fits`` miss ``steps`` by, each the fit of the other steps.

    Ops have pools by family; ``PRODUCTS`` and ``ANY`` are of families with less than ``LEAST``.
    """
    families = np.array([family for step in steps for family in step.samples.columns.families])
    predicted = np.concatenate([fit.model.ns(step.samples.columns) for step, fit in zip(steps, fits, strict=True)])
    missed = np.log(np.concatenate([step.samples.ns for step in steps]) / predicted)
    product = np.array([is_product(family) for family in families])
    marks = {str(name): families == name for name in np.unique(families)}
    marks |= {PRODUCTS: product, ANY: ~product & (families != VIEW)}
    pools = {name: pool(missed[some], predicted[some]) for name, some in marks.items() if some.sum() >= LEAST}
    return Residuals(pools, of_steps([step.ns / fit.ns(step) for step, fit in zip(steps, fits, strict=True)]))


def of_steps(ratios: Sequence[float]) -> float:
    """Half-width that holds the next of whole steps like those of ``ratios``, measured over predicted, in ``COVERAGE``
    of cases: the quantile of n + 1 steps of which the next is one, so of few steps nearly the worst."""
    missed = np.abs(np.log(ratios))
    return max(FLOOR, float(np.quantile(missed, COVERAGE, method="weibull")))
