"""Least time of a matrix product on a GPU that computes its output in tiles: whole waves of tiles, or memory.

A product is cut into tiles of the output, and perhaps along K; a wave is as many tiles as the device has compute
units. The last wave may be nearly empty, so time grows in stairs. Libraries choose among tile shapes; so does this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tensortide.timing.figures import compute_units, last_level_bytes, sustained
from tensortide.timing.rates import Columns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

TILES = ((256, 128), (128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64), (32, 32))
SPLITS = (1, 2, 4, 8, 16)
"""Parts into which K is cut; their sums meet in memory."""
LEAST_SPLIT_K = 32
_REUSE = 24.0
"""Tiles of side s reach 1 / (1 + 2 * _REUSE / s) of the rate that only infinite ones would, by reuse of operands."""
_REFERENCE = 128.0
PARTIAL_BYTES = 8
"""A partial sum is written and read back, in fp32."""
_CHUNK = 512
"""Products whose tilings are compared together, so that the tables stay in the cache."""


class Tiled(NamedTuple):
    """``ns`` of the best tiling, and how many ``waves`` it has (2.1: two full ones and a tenth)."""

    ns: Floats
    waves: Floats


def tiled(columns: Columns) -> Tiled:
    """Least nanoseconds of the products in ``columns`` over all tilings."""
    import numpy as np

    units, bandwidth = compute_units(columns.device), columns.device.memory_gbytes_per_s
    rows, cols, split = np.array([(*tile, split) for tile in TILES for split in SPLITS], float).T
    share = np.minimum(1.0, _reuse(rows, cols) / _reuse(_REFERENCE, _REFERENCE))
    rate = columns.peak * sustained(columns.device) / units
    best, waves = np.empty(len(rate)), np.empty(len(rate))
    for start in range(0, len(rate), _CHUNK):
        part = slice(start, start + _CHUNK)
        batch, m, n, k = columns.dims[part].T[..., None]
        full = batch * np.ceil(m / rows) * np.ceil(n / cols) * split / units
        arithmetic = np.ceil(full) * 2 * rows * cols * np.maximum(k / split, 16) / (rate[part, None] * share)
        partial = np.where(split == 1, 0.0, PARTIAL_BYTES * split * batch * m * n)
        ns = np.maximum(arithmetic, (columns.nbytes[part, None] + partial) / bandwidth)
        ns = np.where((k / split >= LEAST_SPLIT_K) | (split == 1), ns, np.inf)
        found = np.arange(len(ns)), ns.argmin(axis=1)
        best[part], waves[part] = ns[found], full[found]
    return Tiled(best, waves)


def _reuse(rows: Floats | float, cols: Floats | float) -> Floats | float:
    return 1 / (1 + _REUSE / rows + _REUSE / cols)


def _trailing_zeros(numbers: Floats) -> Floats:
    """Powers of two that divide ``numbers``, at most 6: kernels load aligned rows in larger pieces."""
    import numpy as np

    whole = numbers.astype(np.int64)
    found: Floats = np.minimum(6.0, np.log2(np.maximum(whole & -whole, 1)))
    return found


def patch_features(columns: Columns) -> tuple[Floats, Floats]:
    """Features of convolutions as the products of patches and weights that they are, and the tiled least time.

    A backward pass is as many such products as its FLOPs say.
    """
    import numpy as np

    products = np.maximum(1.0, np.round(columns.matrix_flops / (2 * columns.dims.prod(axis=1))))
    features, bound = matrix_features(columns._replace(matrix_flops=columns.matrix_flops / products))
    return features, bound * products


MATRIX_FEATURES = 22


def matrix_features(columns: Columns) -> tuple[Floats, Floats]:
    """Features of products for the learned correction, shape (works, ``MATRIX_FEATURES``), and the tiled least time.

    Logarithms, but for ratios and alignments. Everything is known of any device of the catalogue.
    """
    import numpy as np

    device, dims = columns.device, columns.dims
    batch, m, n, k = dims.T
    units, bandwidth, cache = compute_units(device), device.memory_gbytes_per_s, last_level_bytes(device)
    found = tiled(columns)
    peak = columns.peak * sustained(device)
    compute = columns.matrix_flops / peak
    blocks = batch * np.ceil(m / 128) * np.ceil(n / 128) / units
    tails = [np.ceil(waves) / np.maximum(waves, 1e-9) for waves in (blocks, found.waves)]
    logs = [*dims.T, blocks, found.waves, compute, columns.memory_ns, compute / columns.memory_ns]
    logs += [columns.nbytes / cache, peak / bandwidth, found.ns, columns.item]
    logs += [np.full(len(m), float(constant)) for constant in (units, cache)]
    plain = [*tails, compute / found.ns, columns.memory_ns / found.ns, *map(_trailing_zeros, (m, n, k))]
    return np.column_stack([*map(np.log, logs), *plain]), found.ns
