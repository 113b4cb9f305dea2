"""Times that rise with size, of a model whose times need not: boosted trees have noise, most where launches dominate.

No work is predicted shorter than the same work with one dimension halved a few times, nor than any on a coarse grid of
sizes that it exceeds in every dimension. What remains: steps down of a few percent between sizes of a grid's cell.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tensortide.timing.catalogue import Device
from tensortide.timing.rates import Columns, columns
from tensortide.timing.work import Work, elementwise, item_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Predict = Callable[[Columns], "Floats"]

STRIDE = 4
"""Factor between neighbouring sizes of the grid."""
EXTENT = (11, 9, 9)
"""Sizes of the grid along M, N and K, from 1."""
BATCHES = (1, 8, 64, 512)
_BATCH, _M, _N, _K = range(4)
_NOWHERE = Device(name="nowhere", memory_gbytes_per_s=1.0)


class _Alike(NamedTuple):
    """Works that have one grid: of a family, and of as many operands or products."""

    family: str
    dtype: str
    times: int
    batch: int


Grids = dict[tuple[Device, _Alike], "Floats"]
"""Grids of a model, by device."""


def rising(predict: Predict, works: Columns, halvings: int, grids: Grids) -> Floats:
    """``predict(works)``, as much more as it takes for times to rise with size.

    Each dimension is halved so many times; ``grids`` are kept for the next works.
    """
    import numpy as np

    smaller = []
    for axis in (_BATCH, _M, _N, _K):
        half = _halved(works, axis)
        for _ in range(halvings):
            if half is not None:
                smaller.append(half)
                half = _halved(half, axis)
    # one prediction of all: of few works, most of the time is that of the calls
    longest = predict(works.followed_by(smaller)).reshape(1 + len(smaller), len(works.nbytes)).max(axis=0)
    found: Floats = np.maximum(longest, _floor(predict, works, grids))
    return found


# -- half of a work ---------------------------------------------------------------------------------


def _halved(works: Columns, axis: int) -> Columns | None:
    """``works`` with the dimension ``axis`` halved where it is more than 1; None if it is nowhere.

    The last dimension of works that are no products counts operands, and stays.
    """
    import numpy as np

    product, whole = works.matrix_flops > 0, works.dims[:, axis]
    half = np.where(product | (axis != _K), np.maximum(1.0, np.floor(whole / 2)), whole)
    if (half == whole).all():
        return None
    dims = works.dims.copy()
    dims[:, axis] = half
    share = half / whole
    kept = np.where(product, _kept(works, axis) / np.maximum(works.nbytes, 1.0), 0.0)
    moved = share + (1 - share) * np.clip(kept, 0.0, 1.0)
    return works._replace(
        dims=dims,
        matrix_flops=works.matrix_flops * share,
        vector_flops=works.vector_flops * share,
        compute_ns=works.compute_ns * share,
        nbytes=works.nbytes * moved,
        memory_ns=works.memory_ns * moved,
    )


def _kept(works: Columns, axis: int) -> Floats:
    """Bytes of the operand of products that has no dimension ``axis``: of weight, input or output; 0 of the batch.

    A backward pass of a convolution reads the weight and writes its gradient, and so with the input.
    """
    batch, m, n, k = works.dims.T
    weight, output = (works.item * batch * size for size in (_products(works) * n * k, m * n))
    kept: Floats = {_BATCH: 0 * m, _M: weight, _N: works.nbytes - weight - output, _K: output}[axis]
    return kept


def _products(works: Columns) -> Floats:
    """Return how many products of its dimensions each work is; 1 for others."""
    import numpy as np

    found: Floats = np.maximum(1.0, np.round(works.matrix_flops / (2 * works.dims.prod(axis=1))))
    return found


# -- the grid ---------------------------------------------------------------------------------------


def _floor(predict: Predict, works: Columns, grids: Grids) -> Floats:
    """The longest time of the works of the grid that each of ``works`` exceeds in every dimension."""
    import numpy as np

    found = np.zeros(len(works.nbytes))
    batches = np.searchsorted(BATCHES, works.dims[:, _BATCH], side="right") - 1
    times = np.where(works.matrix_flops > 0, _products(works), works.dims[:, _K]).astype(int)
    kinds = [_Alike(*row) for row in zip(works.families, works.dtypes, times.tolist(), batches.tolist(), strict=True)]
    last = np.array(EXTENT) - 1
    places = np.minimum(np.floor(np.log(works.dims[:, 1:]) / np.log(STRIDE) + 1e-9).astype(int), last)
    for kind in dict.fromkeys(kinds):
        rows = np.array([other == kind for other in kinds])
        product = works.matrix_flops[rows][0] > 0
        grid = _grid(predict, works, kind, bool(product), grids)
        m, n, k = places[rows].T
        found[rows] = grid[m, n, k if product else 0]
    return found


def _grid(predict: Predict, works: Columns, kind: _Alike, product: bool, grids: Grids) -> Floats:
    import numpy as np

    key = (works.device, kind)
    if key not in grids:
        shape = EXTENT if product else (*EXTENT[:2], 1)
        found = predict(_asked(kind, shape, product).on(works.device)).reshape(shape)
        for axis in range(3):
            found = np.maximum.accumulate(found, axis=axis)
        if kind.batch:
            found = np.maximum(found, _grid(predict, works, kind._replace(batch=kind.batch - 1), product, grids))
        grids[key] = found
    return grids[key]


@functools.cache
def _asked(kind: _Alike, shape: tuple[int, ...], product: bool) -> Columns:
    """The works of a grid, on no device in particular."""
    import numpy as np

    sizes = [(STRIDE**m, STRIDE**n, STRIDE**k) for m, n, k in np.ndindex(*shape)]
    made = _product if product else _elementwise
    return columns([made(kind, *size) for size in sizes], _NOWHERE)


def _product(kind: _Alike, m: int, n: int, k: int) -> Work:
    """Products, or a convolution whose patches have 3 x 3 taps unless it is of 1 x 1."""
    batch, item = BATCHES[kind.batch], item_bytes(kind.dtype)
    overlap = 9 if kind.family.startswith("convolution") and not kind.family.endswith("1x1") else 1
    inputs, written = kind.times * (n * k + m * k / overlap), m * n
    flops = 2 * kind.times * batch * m * n * k
    dims = (batch, m, n, k)
    return Work(kind.family, kind.dtype, flops, 0, round(item * batch * inputs), round(item * batch * written), dims)


def _elementwise(kind: _Alike, rows: int, width: int, _: int) -> Work:
    return elementwise(rows, width, operands=kind.times, family=kind.family, dtype=kind.dtype)
