"""Terms of size expressions: monomials, found by the direction of their vectors, and sums of few terms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from tensortide.expr import Expr, constant, power, symbol
from tensortide.formulas.fit import Matrix

__all__ = ["NICE", "SPARE", "Monomials", "Sums", "Vector", "direction", "monomials"]

Vector: TypeAlias = tuple[int, ...]

SPARE = 2
"""Samples that a fit must have left over after its coefficients are determined."""
NICE = 64
"""Largest denominator of a coefficient in a sum of terms."""


def direction(vector: Sequence[int | Fraction]) -> tuple[Fraction, ...]:
    """The vector without its length: equal for multiples."""
    return tuple(Fraction(value) / vector[0] for value in vector[1:])


Monomials: TypeAlias = dict[tuple[Fraction, ...], tuple[Expr, tuple[Fraction, ...]]]


def monomials(values: Mapping[str, Vector]) -> tuple[Monomials, bool]:
    """Monomials with their vectors, by the vectors' directions, simpler ones first; whether two simple ones have the
    same direction. A number has one too, but is no monomial."""
    highest = 4 if len(values) <= 10 else 3
    table: Monomials = {}
    blurred = False

    def add(above: tuple[str, ...], below: tuple[str, ...]) -> None:
        nonlocal blurred
        columns = zip(*(values[name] for name in (*above, *below)), strict=True)
        split = len(above)
        vector = tuple([Fraction(math.prod(row[:split]), math.prod(row[split:])) for row in columns])
        along = direction(vector)
        if along in table or along == (1,) * len(along):
            blurred = blurred or len(above) + len(below) <= 2
            return
        expr = math.prod((symbol(name) for name in above), start=constant(1))
        table[along] = expr / math.prod((symbol(name) for name in below), start=constant(1)), vector

    for degree in range(1, highest + 1):
        for above in itertools.combinations_with_replacement(values, degree):
            add(above, ())
            if degree < highest:
                for below in values:
                    if below not in above:
                        add(above, (below,))
    # a number over sizes, last: these would be simple, but are rare
    for degree in (1, 2):
        for several in itertools.combinations_with_replacement(values, degree):
            add((), several)
    return table, blurred and len(values) > 0


class Sums:
    """Sums of terms with simple coefficients, in the symbols ``names`` over the settings ``points``."""

    def __init__(self, names: Sequence[str], points: Sequence[Mapping[str, int]]) -> None:
        self._names, self._points = names, points
        self._values = {name: tuple(point[name] for point in points) for name in names}
        self.short = False
        """Whether there were too few points for a sum that was asked for."""

    def simplest(self, vector: Vector, size: int, degree: int) -> Expr | None:
        """The sum of ``size`` terms of at most ``degree`` with the values ``vector``, None if the points bear none
        out."""
        if len(vector) < size + SPARE:
            self.short = True
            return None
        best = min(self._fits(vector, size, degree), key=lambda fit: fit[0], default=None)
        return None if best is None else best[1]

    def _fits(self, vector: Vector, size: int, degree: int) -> Iterator[tuple[Fraction, Expr]]:
        terms = self._terms(degree)
        for chosen in _spanning([values for _, values in terms], vector, size):
            try:
                coefficients = Matrix(list(zip(*(terms[i][1] for i in chosen), strict=True))).solve(vector)
            except ArithmeticError:  # they have several
                continue
            if coefficients is None or any(c.denominator > NICE or c == 0 for c in coefficients):
                continue
            if not self._borne_out({name for i in chosen for name in terms[i][0].symbols}, size):
                self.short = True
                continue
            cost = sum((abs(c) + c.denominator for c in coefficients), Fraction(0))
            yield cost, sum((terms[i][0] * c for i, c in zip(chosen, coefficients, strict=True)), start=constant(0))

    def _borne_out(self, names: set[str], size: int) -> bool:
        """Return whether values of ``names`` remain on which a sum of ``size`` terms could fail."""
        return len({tuple(point[name] for name in names) for point in self._points}) > size

    def _terms(self, degree: int) -> list[tuple[Expr, Vector]]:
        count = len(self._points)
        terms: list[tuple[Expr, Vector]] = [(constant(1), (1,) * count)]
        for d in range(1, degree + 1):
            for names in itertools.combinations_with_replacement(self._names, d):
                values = tuple(math.prod(point[name] for name in names) for point in self._points)
                terms.append((math.prod((symbol(n) for n in names), start=constant(1)), values))
        few = [name for name in self._names if degree == 1 and max(self._values[name]) <= 12]
        return terms + [(power(2, symbol(name)), tuple(2**x for x in self._values[name])) for name in few]


def _spanning(columns: Sequence[Vector], vector: Vector, size: int) -> Iterator[tuple[int, ...]]:
    """Choices of ``size`` columns of which ``vector`` may be a sum: a filter in floating point, for many choices."""
    import numpy as np

    basis = np.array(columns, float)
    basis /= np.linalg.norm(basis, axis=1, keepdims=True)
    right = np.array(vector, float)
    right /= np.linalg.norm(right)
    choices = np.array(list(itertools.combinations(range(len(columns)), size)))
    for start in range(0, len(choices), 1 << 15):
        block = choices[start : start + (1 << 15)]
        # what is left of the vector after projecting it on the columns, orthonormal one after the other
        frame: list[Any] = []
        rest = np.broadcast_to(right, (len(block), len(right))).copy()
        for position in range(size):
            column = basis[block[:, position]].copy()
            for _ in range(2):
                for earlier in frame:
                    column -= (column * earlier).sum(1, keepdims=True) * earlier
            length = np.linalg.norm(column, axis=1, keepdims=True)
            column /= np.where(length > 1e-12, length, 1)
            frame.append(column)
            rest -= (rest * column).sum(1, keepdims=True) * column
        for row in block[np.linalg.norm(rest, axis=1) < 1e-7]:
            yield tuple(row.tolist())
