"""Terms of expressions: monomials, found by the direction of their vectors; sums of few terms; and expressions over
hyperparameters that change the structure, from one expression per structure to one for all.

At each sampled structure (layers = 2, 3, 4) a figure is an expression in the sizes; each of its coefficients is a
sequence of numbers over the structures. A *basis* says what such sequences may be made of, per hyperparameter:
powers (a fixed part and a part per layer), powers of two (a level doubles the width), halves rounded up (a pyramid
over time). The smallest basis that explains every figure, with structures left over to fail on, is taken.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from tensortide.expr import Expr, ceil_ratio, constant, power, symbol
from tensortide.expr.expr import Coefficient, Monomial

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
