"""Families of one measured device: three constants each, and products whose rate saturates as their dimensions grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from tensortide.timing.families import OTHER_COMPUTE
from tensortide.timing.models.constants import ANY, Constants, formula
from tensortide.timing.rates import Columns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

PRODUCTS = "products"
"""Key of the constants of products whose family has none of its own."""
_PRODUCTS = ("mm", "addmm", "bmm", "linear", "recurrent", "convolution", "attention")


class Sequel(msgspec.Struct, frozen=True):
    """Time that the sequence of a step adds to an op (``timing/sequence.py``).

    Up to ``refill_ns`` if ops moved many bytes since the last one like it, half of that after ``refill_bytes``, and
    ``page_ns`` for each byte of results in new pages.
    """

    refill_ns: float = 0.0
    refill_bytes: float = 1.0
    page_ns: float = 0.0

    def ns(self, columns: Columns) -> Floats:
        """Nanoseconds that are added to ``columns``."""
        return self.refills(columns) + self.page_ns * columns.fresh_bytes

    def refills(self, columns: Columns) -> Floats:
        """Times of reading code and data again."""
        return refills(columns, self.refill_ns, self.refill_bytes)


def refills(columns: Columns, refill_ns: float, refill_bytes: float) -> Floats:
    """Nanoseconds of reading code and data again that were displaced since the last op of the same kind."""
    displaced = (columns.after_bytes / refill_bytes) ** 2
    found: Floats = refill_ns * displaced / (1 + displaced)
    return found


class Saturating(msgspec.Struct, frozen=True):
    """Constants by family (``PRODUCTS``, ``ANY``: pooled), and the sizes at which products lose half of their rate.

    The arithmetic of an (M,K) by (K,N) product takes ``(1 + m / M) (1 + n / N) (1 + k / K)`` times as long as at the
    rate that only large ones reach; ``saturation`` is ``(m, n, k)``, the same for all families of products. A
    convolution is the product of its patches and its weight, its backward pass two such products: of the gradient for
    the weight, of the gradient for the input. Depthwise ones and recurrent layers have kernels of their own and do not
    saturate. ``sequel`` is what the ops before and new memory add.
    """

    saturation: tuple[float, float, float]
    families: Mapping[str, Constants]
    sequel: Sequel = Sequel()

    def constants(self, family: str) -> Constants:
        """The constants of ``family``, else of its like."""
        for name in (family, family.removesuffix("_small"), family.removesuffix("_backward")):
            if name in self.families:
                return self.families[name]
        return self.families[PRODUCTS if is_product(family) else ANY]

    def ns(self, columns: Columns) -> Floats:
        """Nanoseconds of ``columns``."""
        import numpy as np

        rows = [self.constants(family) for family in columns.families]
        table = np.array([(row.compute, row.memory, row.launch_ns) for row in rows]).reshape(-1, 3)
        return formula(slowed(columns, self.saturation), *table.T) + self.sequel.ns(columns)


def is_product(family: str) -> bool:
    """Tell whether ops of ``family`` multiply matrices."""
    return family.startswith(_PRODUCTS) or family == OTHER_COMPUTE


def slowed(columns: Columns, saturation: tuple[float, float, float] | Floats) -> Columns:
    """``columns`` with the time of their arithmetic at the rates that products of their dimensions reach."""
    import numpy as np

    batch, m, n, k = columns.dims.T
    more_m, more_n, more_k = saturation

    def factor(rows: Floats, cols: Floats, reduced: Floats) -> Floats:
        found: Floats = (1 + more_m / rows) * (1 + more_n / cols) * (1 + more_k / reduced)
        return found

    backward, saturates = np.array([_marks(family) for family in columns.families], bool).reshape(-1, 2).T
    both = columns.matrix_flops > 3 * batch * m * n * k  # of input and weight: four FLOPs per multiply-accumulate
    weight, data = factor(n, k, m), factor(m, k, n)
    slower = np.where(backward, np.where(both, (weight + data) / 2, weight), factor(m, n, k))
    ideal = np.where(columns.matrix_flops > 0, columns.matrix_flops / columns.peak, 0.0)
    return columns._replace(compute_ns=columns.compute_ns + np.where(saturates, ideal * (slower - 1), 0.0))


def _marks(family: str) -> tuple[bool, bool]:
    """Tell whether ``family`` is a backward pass of convolutions, and whether its products saturate."""
    saturates = (
        family.startswith(_PRODUCTS) and not family.startswith("recurrent") and not family.endswith("_depthwise")
    )
    return family.startswith("convolution_backward"), saturates
