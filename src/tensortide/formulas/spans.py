"""Choices of few columns that span a vector, of very many: by elimination modulo a prime, on random projections.

A vector is a combination of k columns if its k + 1 projections are, but for a chance of 1 in 2**31; callers solve for
the coefficients exactly, and so learn of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from tensortide.expr.expr import Coefficient

PRIME = (1 << 31) - 1
_ALIKE = 12
"""Columns of which any two would do: no more of them are paired."""


def residues(values: Sequence[Coefficient]) -> list[int]:
    """The values modulo the prime."""
    return [v % PRIME if isinstance(v, int) else v.numerator * pow(v.denominator, -1, PRIME) % PRIME for v in values]


def projected(columns: Any, size: int) -> Any:
    """Rows of ``columns`` (each the residues of one column), mapped at random to ``size + 1`` numbers."""
    import numpy as np

    weights = np.random.default_rng(0).integers(1, PRIME, (columns.shape[1], size + 1))
    result = np.zeros((len(columns), size + 1), np.int64)
    for sample, row in enumerate(weights):
        result = (result + columns[:, sample : sample + 1] * row) % PRIME
    return result


def spanning(rows: Any, target: Any, size: int) -> Iterator[tuple[int, ...]]:
    """Choices of ``size`` of the projected ``rows`` that span the projected ``target``, one by one needless of none."""
    yield from _dependent(_reduced(rows, target), size)


def _dependent(rows: Any, size: int) -> Iterator[tuple[int, ...]]:
    """Choices of ``size`` rows of as many numbers each that are linearly dependent, and no fewer of them."""
    if size == 1:
        yield from ((int(index),) for index in (rows[:, 0] == 0).nonzero()[0])
    elif size == 2:
        yield from _parallel(rows)
    else:
        for first in range(len(rows) - size + 1):
            if rows[first, 0]:
                for others in _dependent(_reduced(rows[first + 1 :], rows[first]), size - 1):
                    yield first, *(first + 1 + index for index in others)


def _parallel(rows: Any) -> Iterator[tuple[int, int]]:
    """Pairs of rows of two numbers that are multiples of each other."""
    import numpy as np

    some = rows.any(1).nonzero()[0]
    ratios = rows[some, 0] * _inverse(rows[some, 1]) % PRIME
    ratios[rows[some, 1] == 0] = -1
    order = np.argsort(ratios, kind="stable")
    equal = np.flatnonzero(ratios[order][1:] == ratios[order][:-1])
    for start in equal[np.diff(equal, prepend=-2) > 1].tolist():
        stop = start + 1
        while stop < len(order) and ratios[order[stop]] == ratios[order[start]]:
            stop += 1
        yield from itertools.combinations(some[order[start : min(stop, start + _ALIKE)]].tolist(), 2)


def _reduced(rows: Any, by: Any) -> Any:
    """The rows modulo multiples of the row ``by``, whose first number is not 0."""
    factors = rows[:, 0] * pow(int(by[0]), -1, PRIME) % PRIME
    return (rows[:, 1:] - factors[:, None] * by[1:]) % PRIME


def _inverse(numbers: Any) -> Any:
    """The reciprocals modulo the prime; 0 of 0."""
    result, power, exponent = numbers * 0 + 1, numbers, PRIME - 2
    while exponent:
        if exponent & 1:
            result = result * power % PRIME
        power, exponent = power * power % PRIME, exponent >> 1
    return result
