"""Recovery of one exact expression from numbers at several settings: the inverse of evaluation.

A *vector* is the value of one size at every sampled setting. ``Solver.solve`` finds an expression that has exactly
these values, the simplest kind first: a number, a multiple of a monomial, a product of sizes nearby, a rounded
division, a sum of few terms, a minimum or maximum. Every kind leaves samples over that it could fail on; where the
samples cannot tell two expressions apart, ``wanted`` says at which value of a hyperparameter they would.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from tensortide.expr import Expr, ceil, constant, floor, floor_ratio, maximum, minimum, symbol
from tensortide.formulas.terms import NICE, SPARE, Sums, Vector, direction, monomials

_LARGEST_DIVISOR = 64


class Solver:
    """Expressions in the symbols ``names`` for vectors over the settings ``points``."""

    def __init__(self, names: Sequence[str], points: Sequence[Mapping[str, int]]) -> None:
        self.names = tuple(names)
        self.points = [dict(point) for point in points]
        self.wanted: dict[str, set[int]] = {}
        self._short = False
        self._known: dict[Vector, Expr | None] = {}
        self._taught: dict[Vector, Expr] = {}
        self._distinct = True
        self._settled: set[Vector] = set()
        self._values = {name: tuple(point[name] for point in self.points) for name in self.names}
        self._floats: Any = None
        self._sums = Sums(self.names, self.points)
        self._monomials, self.blurred = monomials(self._values)
        """``blurred``: the points do not tell some simple monomials apart."""

    def teach(self, expr: Expr) -> None:
        """Make ``expr`` known, whatever kind it is."""
        try:
            vector = tuple(expr.evaluate(point) for point in self.points)
        except ArithmeticError:
            return
        self._known.setdefault(vector, expr)
        is_constant = len(set(vector)) == 1 and expr.value is None
        self._distinct = self._distinct and not is_constant and self._taught.setdefault(vector, expr) == expr

    @property
    def novel(self) -> bool:
        """True if more was found than was taught, or the points do not tell apart what was taught. Without teaching
        everything is new."""
        known = self._known.items()
        return not self._distinct or any(e is None or e.value is None for v, e in known if v not in self._taught)

    @property
    def short(self) -> bool:
        """True if more points could separate or confirm what these cannot."""
        return self._short or self._sums.short

    @property
    def found(self) -> tuple[Expr, ...]:
        """All expressions that were found."""
        return tuple([expr for expr in self._known.values() if expr is not None])

    def solve(self, vector: Vector, near: Iterable[Vector] = ()) -> Expr | None:
        """The expression with the values ``vector``, None if there is none that the samples bear out.

        ``near`` are vectors whose products it may be: the sizes of the same tensor or op.
        """
        known = self._known.get(vector)
        if known is None and vector not in self._known:
            known = self._known[vector] = self._simple(vector)
        if known is None:
            # not kept where it fails: other neighbours may know better
            known = self._product(vector, near)
            if known is not None:
                self._known[vector] = known
        return known

    def settle(self, vector: Vector) -> Expr | None:
        """``solve`` with the kinds that take a search: for what its neighbours did not explain."""
        if vector not in self._settled:
            self._settled.add(vector)
            self._known[vector] = (
                self._known.get(vector)
                or self._floor_of_symbol(vector)
                or self._sum_of_known(vector)
                or self._sum(vector)
                or self._multiple_of_sum(vector)
                or self._floor_of_known(vector)
                or self._rounded(vector)
                or self._extreme(vector)
            )
        return self._known[vector]

    # -- the kinds ----------------------------------------------------------------------------------

    def _simple(self, vector: Vector) -> Expr | None:
        """A number or a multiple of a monomial."""
        if len(set(vector)) == 1:
            return constant(vector[0])
        if 0 in vector:
            return None
        found = self._monomials.get(direction(vector))
        if found is None:
            return None
        expr, values = found
        return expr * (Fraction(vector[0]) / values[0])

    def _product(self, vector: Vector, near: Iterable[Vector]) -> Expr | None:
        """A multiple of a product of neighbours that stand together."""
        sizes = [size for size in near if 0 not in size]
        if 0 in vector:
            return None
        for start in range(len(sizes)):
            product = (1,) * len(vector)
            for stop in range(start, len(sizes)):
                product = tuple(a * b for a, b in zip(product, sizes[stop], strict=True))
                ratio = Fraction(vector[0], product[0])
                if all(v * ratio.denominator == p * ratio.numerator for v, p in zip(vector, product, strict=True)):
                    parts = [self._known.get(size) for size in sizes[start : stop + 1]]
                    if all(part is not None for part in parts):
                        return math.prod((part for part in parts if part is not None), start=constant(1)) * ratio
        return None

    def _floor_of_symbol(self, vector: Vector) -> Expr | None:
        """``scale * floor((v + shift) / divisor)`` of one symbol: a strided or padded dimension."""
        scales = [1] + [q for q in range(2, 33) if all(value % q == 0 for value in vector)]
        for scale in scales:
            reduced = tuple(value // scale for value in vector)
            for name in self.names:
                found = self._floor(name, reduced, doubtful=len(scales) > 1)
                if found is not None:
                    return found * scale
        return None

    def _floor(self, name: str, vector: Vector, *, doubtful: bool) -> Expr | None:
        """``doubtful``: twice a division by 30 may look like a division by 15, so one step further is asked for."""
        values = self._values[name]
        if len(set(values)) < 3 or len(set(vector)) < 2:
            return None
        fits = []
        for divisor in range(2, _LARGEST_DIVISOR + 1):
            shifts = [divisor * y - x for x, y in zip(values, vector, strict=True)]
            low, high = max(shifts), min(shifts) + divisor - 1
            if low <= high:
                fits.append((divisor, low, high))
        if not fits:
            return None
        # of several that fit, the one that halves most often is tried, and the others are asked about
        divisor, low, high = max(fits, key=lambda fit: (fit[0] & -fit[0], -fit[0]))
        asked = None
        if len(fits) > 1:
            asked = 4 * max(values) + 3
        elif low < high:
            middle, near = (low + high + 1) // 2, sorted(values)[len(values) // 2]
            asked = near + (-middle - near) % divisor
        elif doubtful:
            asked = values[0] + divisor
        if asked is not None and asked not in values:
            self.wanted.setdefault(name, set()).add(asked)
        return floor_ratio(symbol(name) + min(max(0, low), high), constant(divisor))

    def _sum(self, vector: Vector) -> Expr | None:
        """A sum of two or three terms with simple coefficients."""
        for size, degree in ((2, 1), (3, 1), (2, 2), (3, 2)):
            found = self._sums.simplest(vector, size, degree)
            if found is not None:
                return found
        return None

    def _sum_of_known(self, vector: Vector) -> Expr | None:
        """The sum or difference of two sizes of the step, or of one and a number: a concatenation, a slice."""
        if len(vector) < 1 + SPARE:
            return None
        simple = [(v, e) for v, e in self._known.items() if e is not None and e.value is None]
        for values, expr in simple:
            rest = tuple(y - x for x, y in zip(values, vector, strict=True))
            if len(set(rest)) == 1:
                return expr + rest[0]
        for values, expr in simple:
            for sign in (1, -1):
                rest = tuple(sign * (y - x) for x, y in zip(values, vector, strict=True))
                other = self._known.get(rest)
                if other is not None:
                    return expr + sign * other
        return None

    def _multiple_of_sum(self, vector: Vector) -> Expr | None:
        """A monomial times a sum of two or three terms: ``skips*batch*(seq - 2*window)``."""
        if len(vector) < 2 + SPARE or 0 in vector:
            return None
        for expr, values in self._monomials.values():
            reduced = [y / x for x, y in zip(values, vector, strict=True)]
            if len(expr.terms) == 1 and _degree(expr) <= 2 and all(r.denominator == 1 for r in reduced):
                found = self._sums.simplest(tuple(map(int, reduced)), 2, 1)
                if found is not None:
                    return expr * found
        return None

    def _rounded(self, vector: Vector) -> Expr | None:
        """A simple multiple of a monomial, rounded up or down: ``ceil(5*batch*seq/(4*experts))``."""
        if len(vector) < 1 + SPARE or min(vector) < 1:
            return None
        fits = []
        for make, lower, upper in ((ceil, -1, 0), (floor, 0, 1)):
            for expr, values in self._multiples(vector, lower, upper):
                # every sample confines the multiple to an interval
                least = max((y + lower) / x for x, y in zip(values, vector, strict=True))
                most = min((y + upper) / x for x, y in zip(values, vector, strict=True))
                if least <= most:
                    multiple = _simplest(least, most)
                    found = make(expr * multiple)
                    if multiple.denominator <= NICE and self._has(found, vector):
                        fits.append(found)
        self._short = self._short or len(fits) > 1
        return fits[0] if len(fits) == 1 else None

    def _multiples(self, vector: Vector, lower: int, upper: int) -> Iterator[tuple[Expr, tuple[Fraction, ...]]]:
        """Monomials of which a multiple may be within the bounds of the vector: a filter in floating point."""
        import numpy as np

        if self._floats is None:
            self._floats = np.array([values for _, values in self._monomials.values()], float)
        if not len(self._floats):
            return
        y = np.array(vector, float)
        least, most = ((y + lower) / self._floats).max(1), ((y + upper) / self._floats).min(1)
        chosen = set(np.flatnonzero(least <= most * (1 + 1e-9)).tolist())
        yield from (found for index, found in enumerate(self._monomials.values()) if index in chosen)

    def _floor_of_known(self, vector: Vector) -> Expr | None:
        """A size of the step divided by a number and rounded down: half of the channels that were joined."""
        if len(vector) < 2 + SPARE or len(set(vector)) < 2 + SPARE or min(vector) < 1:
            return None
        fits: dict[Expr, None] = {}
        largest = vector.index(max(vector))
        for values, expr in self._known.items():
            divisor = values[largest] // vector[largest]
            if expr is None or expr.value is not None or not 2 <= divisor <= _LARGEST_DIVISOR:
                continue
            if all(x // divisor == y for x, y in zip(values, vector, strict=True)):
                fits[floor_ratio(expr, constant(divisor))] = None
        self._short = self._short or len(fits) > 1
        return next(iter(fits)) if len(fits) == 1 else None

    def _has(self, expr: Expr, vector: Vector) -> bool:
        return all(expr.evaluate(point) == value for point, value in zip(self.points, vector, strict=True))

    def _extreme(self, vector: Vector) -> Expr | None:
        """The smaller or larger of two sizes, or of a size and a number."""
        if len(vector) < 1 + SPARE:
            return None
        known = {self._values[name]: symbol(name) for name in self.names} | self._known
        simple = [(v, e) for v, e in known.items() if e is not None and len(e.terms) <= 2][:200]
        for a, expr in simple:
            others = [y for x, y in zip(a, vector, strict=True) if x != y]
            if len(set(others)) == 1 and len(set(a)) > 1 and len(others) < len(a):
                number = others[0]
                # seen once it may be the value of another size
                self._short = self._short or len(others) < SPARE
                for choose, make in ((min, minimum), (max, maximum)):
                    if len(others) >= SPARE and all(choose(x, number) == y for x, y in zip(a, vector, strict=True)):
                        return make(expr, number)
        for (a, left), (b, right) in itertools.combinations(simple, 2):
            if all(min(x, y) == z for x, y, z in zip(a, b, vector, strict=True)):
                return minimum(left, right)
            if all(max(x, y) == z for x, y, z in zip(a, b, vector, strict=True)):
                return maximum(left, right)
        return None


def _degree(monomial: Expr) -> int:
    return sum(exponent for powers in monomial.terms for _, exponent in powers)


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """The fraction of the smallest denominator from ``low`` to ``high``, which are not negative."""
    whole = math.ceil(low)
    if whole <= high:
        return Fraction(whole)
    base = whole - 1
    return base + 1 / _simplest(1 / (high - base), 1 / (low - base))
