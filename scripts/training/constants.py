"""Fit of a family's three constants: robust least squares of log times (SciPy, of the extra ``dev``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tensortide.timing.fit.samples import Samples, domain
from tensortide.timing.fit.saturating import LEAST, not_identified
from tensortide.timing.models.constants import NAMES, Constants, formula
from tensortide.timing.rates import Columns

Floats = NDArray[np.float64]

START = (0.6, 0.6, 5e3)
BOUNDS = ((0.005, 0.02, 1e2), (1.5, 6.0, 1e6))
"""Of compute, memory (operands in a cache come faster than memory delivers them) and launch in nanoseconds."""
AT_BOUND = 0.01
"""A constant so near to its bound, in natural logarithms, is not identified by the samples."""


def fit_constants(measured: Sequence[Samples], pooled: Constants | None = None) -> Constants | None:
    """Fit ``o + max(F / (e P), B / (b BW))`` to ``measured``; None for fewer than ``LEAST`` samples.

    Soft-L1 loss of log residuals, each weighing the fourth root of its time: long ops count more. A constant that ends
    on its bound is not identified and is taken from ``pooled``, if that is given; the ``note`` says so.
    """
    from scipy.optimize import least_squares

    ns = np.concatenate([each.ns for each in measured])
    if len(ns) < LEAST:
        return None
    parts: list[Columns] = [each.columns for each in measured]
    weight, target = (ns / ns.mean()) ** 0.25, np.log(ns)

    def residuals(logs: Floats) -> Floats:
        constants = np.exp(logs)
        predicted = np.concatenate([formula(part, *constants) for part in parts])
        found: Floats = weight * (np.log(predicted) - target)
        return found

    low, high = np.log(BOUNDS)
    start = np.log([*START[:2], min(max(float(ns.min()), BOUNDS[0][2]), BOUNDS[1][2])])
    fitted = least_squares(residuals, start, loss="soft_l1", bounds=(low, high))
    values = np.exp(fitted.x).tolist()
    stuck = [i for i in range(3) if min(fitted.x[i] - low[i], high[i] - fitted.x[i]) < AT_BOUND]
    names = [NAMES[i] for i in stuck]
    for i in stuck if pooled is not None else ():
        values[i] = getattr(pooled, NAMES[i])
    compute, memory, launch_ns = values
    return Constants(compute, memory, launch_ns, len(ns), domain(measured), not_identified(names))
