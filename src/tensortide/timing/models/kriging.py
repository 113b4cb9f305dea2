"""Kriging: a few measured points on a device correct a model of other devices, most where they lie near."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tensortide.timing.rates import Columns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LENGTH = 3.0
"""Distance of two works, in natural logarithms of their dimensions, over which their residuals forget each other."""
SCALE = 0.25
NOISE = 0.12
"""Standard deviations of log residuals: of their smooth part, and of the rest."""
MOST = 1.0
"""Residuals beyond it are taken as outliers of this size."""


class Correction(NamedTuple):
    """The mean of a Gaussian process through the log residuals of measured points.

    ``missed`` are the residuals that are left of each point, if the correction is of the others.
    """

    points: Floats
    weights: Floats
    median: float
    missed: Floats

    def factor(self, columns: Columns) -> Floats:
        """Return what the model's times of ``columns`` are to be multiplied by."""
        import numpy as np

        found: Floats = np.exp(self.median + _kernel(_places(columns), self.points) @ self.weights)
        return found


def correction(columns: Columns, residuals: Floats) -> Correction:
    """Fit a Correction to log ``residuals`` (measured over predicted) of ``columns``."""
    import numpy as np

    points, median = _places(columns), float(np.median(residuals))
    covariance = _kernel(points, points) + NOISE**2 * np.eye(len(points))
    rest = np.clip(residuals - median, -MOST, MOST)
    inverse = np.linalg.inv(covariance)
    weights: Floats = inverse @ rest
    missed: Floats = weights / np.diag(inverse) + (residuals - median - rest)
    return Correction(points, weights, median, missed)


def _places(columns: Columns) -> Floats:
    import numpy as np

    return np.log(columns.dims)


def _kernel(a: Floats, b: Floats) -> Floats:
    import numpy as np

    squares = ((a[:, None] - b[None]) ** 2).sum(axis=-1)
    found: Floats = SCALE**2 * np.exp(-squares / (2 * LENGTH**2))
    return found
