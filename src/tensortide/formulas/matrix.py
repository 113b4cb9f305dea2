"""Exact linear systems with many right sides."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tensortide.expr.expr import Coefficient


class Matrix:
    """A matrix with at least as many rows as columns, eliminated once for many right sides."""

    def __init__(self, rows: Sequence[Sequence[Coefficient]]) -> None:
        self._width = len(rows[0])
        count = len(rows)
        work = [[*map(Fraction, row), *(Fraction(i == j) for j in range(count))] for i, row in enumerate(rows)]
        for pivot in range(self._width):
            chosen = next((r for r in range(pivot, count) if work[r][pivot]), None)
            if chosen is None:
                raise ArithmeticError("the sampled structures do not determine the coefficients")
            work[pivot], work[chosen] = work[chosen], work[pivot]
            head = work[pivot][pivot]
            work[pivot] = [x / head if x else x for x in work[pivot]]
            for r in range(count):
                factor = work[r][pivot]
                if r != pivot and factor:
                    work[r] = [x - factor * y if y else x for x, y in zip(work[r], work[pivot], strict=True)]
        self._transform = [row[self._width :] for row in work]
        self._solved: dict[tuple[Coefficient, ...], list[Fraction] | None] = {}

    def solve(self, right: tuple[Coefficient, ...]) -> list[Fraction] | None:
        """The coefficients of the columns that give ``right``, None if none do. Each is found once."""
        if right not in self._solved:
            image = [
                sum((t * x for t, x in zip(row, right, strict=True) if t and x), Fraction(0)) for row in self._transform
            ]
            self._solved[right] = None if any(image[self._width :]) else image[: self._width]
        return self._solved[right]
