"""Prediction of one Work's time, and the physics that every model's times are held to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tensortide.timing.estimates import Bound, Provenance
from tensortide.timing.intervals import FLOOR, Pool
from tensortide.timing.rates import Columns
from tensortide.timing.sustained import sustained_products
from tensortide.timing.work import Work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


VIEW_NS = 1500
"""What an op that only renames memory costs the host (the device nothing), in nanoseconds: the median of eight kinds of
views of a tensor with a gradient, called one after the other in PyTorch 2.13 on one core of a server CPU."""


class Prediction(NamedTuple):
    """Prediction of one Work's time: ``below`` and ``above`` are half-widths in natural logarithms, ``model`` names the
    row of the ladder, ``bound`` what limits the op: ``compute``, ``memory``, ``launch``, or ``host`` for a view.
    ``host_ns`` is the work after the op of a host that is the device itself."""

    work: Work
    ns: float
    below: float
    above: float
    provenance: Provenance
    model: str
    bound: Bound
    host_ns: float = 0.0


def clipped(ns: Floats, table: Columns, reached: Floats | float = 1.0, *, spread: float = 0.0) -> Floats:
    """``ns``, at least what the arithmetic takes at peak, of products the best share of it that was measured, and the
    bytes of ops that are too large for the cache.

    Convolutions may take fewer multiplications than their definition (Winograd) and go below the arithmetic, and so
    may ops that were measured to have ``reached`` more than once the peak. ``spread``: logarithm by which products may
    be faster than the best that were measured, though not as fast as the peak.
    """
    import numpy as np

    fewer = np.array([family.startswith("convolution") for family in table.families], bool)
    least = (table.compute_ns + _short_of_peak_ns(table, spread)) / np.maximum(reached, 1.0)
    found = np.where(fewer, ns, np.fmax(ns, least))
    return np.where(table.cached, found, np.maximum(found, table.memory_ns))


def _short_of_peak_ns(table: Columns, spread: float) -> Floats:
    """What products take at the best share of their peak that was measured on the device, beyond that at peak; at a
    share above it by ``spread``, at most halfway to the peak."""
    import numpy as np

    known = {dtype: sustained_products(table.device, dtype) for dtype in set(table.dtypes)}
    best = {dtype: row.best if row is not None else 1.0 for dtype, row in known.items()}
    lost = {dtype: 1 / min(share * math.exp(spread), (1 + share) / 2) - 1 for dtype, share in best.items()}
    products = np.where(table.matrix_flops > 0, table.matrix_flops / table.peak, 0.0)
    found: Floats = products * np.array([lost[dtype] for dtype in table.dtypes], float)
    return found


def least_ns(table: Columns) -> Floats:
    """The least time of each work that physics allows: what predictions and intervals are at least."""
    import numpy as np

    return np.nan_to_num(clipped(np.zeros(len(table.families)), table, spread=FLOOR))


def below_of(below: float, ns: float, least: float) -> float:
    """The half-width ``below`` of a prediction of ``ns``, none of which lies below the ``least`` time."""
    return min(below, math.log(max(ns, least) / least)) if least > 0 else below


LAUNCH_BOUND_NS = 20_000
"""Longer ops are bound by something else than their launch, however far they are from peak."""


def bound_of(compute: float, memory: float, ns: float) -> Bound:
    """Name what limits an op of ``ns``, from the least times of its arithmetic and of its bytes."""
    if max(compute, memory) < ns / 2 and ns < LAUNCH_BOUND_NS:
        return "launch"
    return "compute" if compute > memory else "memory"


def half(pool: Pool, ns: float) -> tuple[float, float]:
    """Half-widths of the interval of a prediction of ``ns``."""
    found = pool.of(ns)
    return found.below, found.above
