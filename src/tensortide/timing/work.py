"""Work: what one op asks of a device, whatever framework it comes from: family, dtype, FLOPs, bytes and dimensions."""

from __future__ import annotations

import math
from typing import NamedTuple

from tensortide.dtypes import DTYPES, Kind, kind_of

Dimensions = tuple[int, int, int, int]


class Work(NamedTuple):
    """Work of one call.

    ``matrix_flops`` run on the matrix units where there are some (two per multiply-accumulate that is computed),
    ``vector_flops`` elsewhere. ``dims`` of products, convolutions and attention are (batch, M, N, K): M and N of the
    output, K reduced; of other ops (1, rows, columns, operands). ``known`` is false where no rule prices the op: its
    bytes count, its FLOPs do not. ``after_bytes`` were moved since the last op like it, ``fresh_bytes`` are those of
    results in new pages, where a Work is one of a step in sequence. ``kernel`` is that of fused attention, if known.
    """

    family: str
    dtype: str = "float32"
    matrix_flops: int = 0
    vector_flops: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    dims: Dimensions = (1, 1, 1, 1)
    known: bool = True
    after_bytes: int = 0
    fresh_bytes: int = 0
    kernel: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes read and written."""
        return self.read_bytes + self.write_bytes


def item_bytes(dtype: str) -> float:
    """Bytes of one element of ``dtype``, with its share of scales; 4 of one that is not known."""
    return DTYPES[dtype].element_bytes if dtype in DTYPES else 4


def product(m: int, n: int, k: int, *, batch: int = 1, dtype: str = "float32", family: str = "mm") -> Work:
    """``batch`` products of (m,k) and (k,n) matrices of ``dtype``; a complex multiply-accumulate is four real ones.

    Raises ValueError unless the sizes are positive.
    """
    _check(batch, m, n, k)
    item = item_bytes(dtype)
    read, written = round(item * batch * (m * k + k * n)), round(item * batch * m * n)
    flops = (8 if kind_of(dtype) is Kind.COMPLEX else 2) * batch * m * n * k
    return Work(family, dtype, flops, 0, read, written, (batch, m, n, k))


def elementwise(
    rows: int, columns: int, *, operands: int = 1, family: str = "pointwise", dtype: str = "float32", flops: int = 1
) -> Work:
    """An op on ``operands`` tensors of ``rows`` x ``columns`` elements that writes one, at ``flops`` per element.

    Raises ValueError unless the sizes are positive.
    """
    _check(rows, columns, operands)
    count, item = rows * columns, item_bytes(dtype)
    read, written = round(item * count * operands), round(item * count)
    return Work(family, dtype, 0, flops * count, read, written, (1, rows, columns, operands))


def _check(*sizes: int) -> None:
    if math.prod(sizes) <= 0 or min(sizes) <= 0:
        raise ValueError(f"sizes are positive, not {', '.join(map(str, sizes))}")
