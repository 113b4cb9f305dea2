"""Expressions over hyperparameters that change the structure: from one expression per structure to one for all.

At each sampled structure (layers = 2, 3, 4) a figure is an expression in the sizes; each of its coefficients is a
sequence of numbers over the structures. A *basis* says what such sequences may be made of, per hyperparameter:
powers (a fixed part and a part per layer), powers of two (a level doubles the width), halves rounded up (a pyramid
over time). The smallest basis that explains every figure, with structures left over to fail on, is taken.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from tensortide.expr import Expr, ceil_ratio, constant, power, symbol
from tensortide.expr.expr import Coefficient, Monomial

__all__ = ["BASES", "Basis", "Matrix", "basis_terms", "determined", "fitted"]

Basis: TypeAlias = tuple[Callable[[Expr], Expr], ...]

BASES: tuple[Basis, ...] = (
    (lambda n: n,),
    (lambda n: n, lambda n: n**2),
    (lambda n: n, lambda n: power(2, n)),
    (lambda n: n, lambda n: ceil_ratio(n, 2)),
    (lambda n: n, lambda n: n**2, lambda n: n**3),
    (lambda n: n, lambda n: power(2, n), lambda n: power(2, n) ** 2, lambda n: 1 / power(2, n)),
    (lambda n: n, lambda n: ceil_ratio(n, 2), lambda n: ceil_ratio(n, 4)),
)
"""What a coefficient may depend on, besides a constant, simplest first."""


def basis_terms(bases: Mapping[str, Basis]) -> list[Expr]:
    """All products of one term of each hyperparameter's basis (or none)."""
    choices = [[constant(1), *(term(symbol(name)) for term in basis)] for name, basis in bases.items()]
    return [math.prod(choice, start=constant(1)) for choice in itertools.product(*choices)]


def determined(points: Sequence[Mapping[str, int]], terms: Sequence[Expr]) -> bool:
    """Return whether the points tell the terms apart: on odd numbers alone, ``ceil(n/2)`` is ``n/2 + 1/2``."""
    try:
        _matrix(tuple([tuple(point.items()) for point in points]), tuple(terms))
    except ArithmeticError:
        return False
    return True


def fitted(values: Sequence[Expr], points: Sequence[Mapping[str, int]], terms: Sequence[Expr]) -> Expr | None:
    """The expression that is ``values[i]`` at structure ``points[i]``, its coefficients sums of ``terms``.

    None if there is none. The points must determine the coefficients.
    """
    matrix = _matrix(tuple([tuple(point.items()) for point in points]), tuple(terms))
    result = constant(0)
    monomials: dict[Monomial, None] = dict.fromkeys(m for value in values for m in value.terms)
    for monomial in monomials:
        coefficients = matrix.solve(tuple([value.terms.get(monomial, 0) for value in values]))
        if coefficients is None:
            return None
        scale = Expr({monomial: 1})
        for term, coefficient in zip(terms, coefficients, strict=True):
            if coefficient:
                result = result + term * coefficient * scale
    return result


@functools.lru_cache(maxsize=64)
def _matrix(points: tuple[tuple[tuple[str, int], ...], ...], terms: tuple[Expr, ...]) -> Matrix:
    """The values of the terms at the points; the same for all figures of a step."""
    return Matrix([[Fraction(term.subs(dict(point)).value or 0) for term in terms] for point in points])


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
            work[pivot] = [x / head for x in work[pivot]]
            for r in range(count):
                factor = work[r][pivot]
                if r != pivot and factor:
                    work[r] = [x - factor * y for x, y in zip(work[r], work[pivot], strict=True)]
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
