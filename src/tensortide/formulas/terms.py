"""Terms of sums: monomials and roundings, with their values at every sample."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from tensortide.expr import Expr, ceil_ratio, constant, floor_ratio, maximum, minimum, power
from tensortide.expr.expr import Coefficient, Opaque
from tensortide.expr.floors import FLOOR

Vector: TypeAlias = tuple[int, ...]

DIVISORS = (2, 3, 4, 8, 16, 32, 64)
"""Numbers that a symbol in a sum may be divided by, rounded."""


class Term(NamedTuple):
    """An expression, its values at the samples, and the length of its description in bits.

    ``doubts`` are other expressions that have these values too.
    """

    expr: Expr
    values: tuple[Coefficient, ...]
    bits: float
    doubts: tuple[Expr, ...] = ()

    @property
    def rounded(self) -> bool:
        """True for a term that is no monomial: half of it would not be whole where it is not rounded twice."""
        return self.expr.value is not None or any(not isinstance(atom, str) for atom in self.expr.atoms)

    def times(self, other: Term) -> Term:
        """The product of two terms."""
        values = tuple([a * b for a, b in zip(self.values, other.values, strict=True)])
        doubts = tuple([doubt * other.expr for doubt in self.doubts])
        return Term(self.expr * other.expr, values, self.bits + other.bits, doubts)

    def over(self, other: Term) -> Term:
        """The quotient of two terms, which is not rounded."""
        values = tuple([Fraction(a) / b for a, b in zip(self.values, other.values, strict=True)])
        return Term(self.expr / other.expr, values, self.bits + other.bits + 1)


def length_of(coefficient: Coefficient) -> float:
    """Bits of a coefficient."""
    return math.log2(1 + abs(coefficient.numerator)) + 2 * math.log2(coefficient.denominator)


def number(value: int, count: int) -> Term:
    """The number ``value`` at ``count`` samples."""
    return Term(constant(value), (value,) * count, length_of(value) - 1)


def direction(values: Sequence[Coefficient]) -> tuple[Fraction, ...]:
    """The vector without its length: equal for multiples."""
    lead: Coefficient = next((value for value in values if value), 1)
    return tuple([Fraction(value, lead) for value in values])


def monomials(symbols: Sequence[Term]) -> Iterator[Term]:
    """Products and quotients of symbols, those of low degree first."""
    highest = 5 if len(symbols) <= 4 else 4 if len(symbols) <= 10 else 3
    divisors = [term for term in symbols if all(term.values)]
    products: list[tuple[int, Term]] = list(enumerate(symbols))
    for degree in range(1, highest + 1):
        for _, product in products:
            yield product
            for below in divisors if degree < highest else ():
                if not below.expr.symbols <= product.expr.symbols:
                    yield product.over(below)
        products = [(i, product.times(symbols[i])) for first, product in products for i in range(first, len(symbols))]
    # a number over sizes, last: these would be simple, but are rare
    for degree in (1, 2):
        for several in itertools.combinations_with_replacement(divisors, degree):
            yield functools.reduce(Term.over, several, number(1, len(several[0].values)))


def roundings(symbols: Sequence[Term], numbers: Iterable[int]) -> Iterator[Term]:
    """Terms that are no monomials: powers of two, the smaller and larger of two, quotients by symbols and ``numbers``,
    rounded up and down."""
    for x in symbols:
        if max(x.values) <= 40:
            yield Term(power(2, x.expr), tuple([1 << int(value) for value in x.values]), x.bits + 2)
            yield Term(1 / power(2, x.expr), tuple([Fraction(1, 1 << int(v)) for v in x.values]), x.bits + 3)
    count = len(symbols[0].values) if symbols else 0
    divisors = (*symbols, *(number(value, count) for value in numbers))
    for x, y in itertools.product(symbols, divisors):
        if x is not y and all(y.values):
            down = tuple([a // b for a, b in zip(x.values, y.values, strict=True)])
            up = tuple([-(-a // b) for a, b in zip(x.values, y.values, strict=True)])
            low, high, bits = floor_ratio(x.expr, y.expr), ceil_ratio(x.expr, y.expr), x.bits + y.bits + 3
            yield Term(low, down, bits, tuple(_shifted_quotients(x, y, down, 0)))
            less = tuple([value - 1 for value in up])  # ceil(x/y) is floor((x - 1)/y) + 1
            yield Term(high, up, bits, tuple([doubt + 1 for doubt in _shifted_quotients(x, y, less, -1)]))
    for x, y in itertools.combinations(symbols, 2):
        smaller = sum(a < b for a, b in zip(x.values, y.values, strict=True))
        larger = sum(a > b for a, b in zip(x.values, y.values, strict=True))
        if min(smaller, larger) >= 2:
            pairs = list(zip(x.values, y.values, strict=True))
            yield Term(minimum(x.expr, y.expr), tuple([min(pair) for pair in pairs]), x.bits + y.bits + 3)
            yield Term(maximum(x.expr, y.expr), tuple([max(pair) for pair in pairs]), x.bits + y.bits + 3)


def _shifted_quotients(x: Term, y: Term, values: Vector, own: int) -> Iterator[Expr]:
    """Quotients ``floor((x + shift)/(y + more))`` with the given values, ``more`` being 0, 1 or -1, but that with the
    shift ``own`` and none ``more``.

    The pairs of ``shift`` and ``more`` that fit are convex: where no neighbour does, none farther away does.
    """
    for more in (0, 1, -1) if min(y.values) > 1 else (0, 1):
        shifts = [
            (value * (b + more) - a, (value + 1) * (b + more) - 1 - a)
            for a, b, value in zip(x.values, y.values, values, strict=True)
        ]
        low, high = int(max(low for low, _ in shifts)), int(min(high for _, high in shifts))
        for shift in sorted({low, high} - ({own} if not more else set())) if low <= high else ():
            yield floor_ratio(x.expr + shift, y.expr + more)


def rounds(expr: Expr) -> bool:
    """Return whether a quotient in an expression is rounded."""
    return any(isinstance(atom, Opaque) and atom.name == FLOOR for atom in expr.atoms)
