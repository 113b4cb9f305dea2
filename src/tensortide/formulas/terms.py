"""Terms of expressions: monomials and roundings with what they say at every sample; and expressions over
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from tensortide.expr import Expr, ceil_ratio, constant, floor_ratio, maximum, minimum, power, symbol, total
from tensortide.expr.atoms import replaced
from tensortide.expr.expr import Coefficient, Monomial, Opaque
from tensortide.expr.floors import FLOOR
from tensortide.expr.show import text

Vector: TypeAlias = tuple[int, ...]

DIVISORS = (2, 3, 4, 8, 16, 32, 64)
"""Numbers that a symbol in a sum may be divided by, rounded."""
_MORE = 2
"""Terms in a coefficient besides the usual ones."""
_SPARE = 3
"""Structures that must be left over then."""


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
        """True of a term that is no monomial: half of it would not be whole where it is not rounded twice."""
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


Basis: TypeAlias = tuple[Callable[[Expr], Expr], ...]


def _periodic(period: int) -> Basis:
    """The terms of sequences whose steps repeat: ``floor((n + 1)/3)`` counts what comes with every third layer."""
    return (lambda n: n, *(functools.partial(_shifted, shift=shift, by=period) for shift in range(1, period)))


def _shifted(n: Expr, shift: int, by: int) -> Expr:
    return floor_ratio(n + shift, constant(by))


BASES: tuple[Basis, ...] = (
    (lambda n: n,),
    (lambda n: n, lambda n: n**2),
    (lambda n: n, lambda n: power(2, n)),
    _periodic(2),
    _periodic(3),
    (lambda n: n, lambda n: n**2, lambda n: n**3),
    (lambda n: n, lambda n: power(2, n), lambda n: power(2, n) ** 2, lambda n: 1 / power(2, n)),
    (lambda n: n, lambda n: ceil_ratio(n, 2), lambda n: ceil_ratio(n, 4)),
    (lambda n: n, lambda n: n**2, lambda n: ceil_ratio(n, 2), lambda n: n * ceil_ratio(n, 2)),
)
"""Functions that a coefficient may depend on, besides a constant, simplest first."""


def basis_terms(bases: Mapping[str, Basis]) -> list[Expr]:
    """All products of one term of each hyperparameter's basis (or none)."""
    choices = [[constant(1), *(term(symbol(name)) for term in basis)] for name, basis in bases.items()]
    return [math.prod(choice, start=constant(1)) for choice in itertools.product(*choices)]


def joint_terms(names: Sequence[str]) -> list[Expr]:
    """Terms that a coefficient may have besides products of the hyperparameters, where these repeat something together:
    every k-th of n layers, as many layers as there are groups. Those in single ones are last."""
    found: list[Expr] = []
    for one, other in itertools.permutations(map(symbol, names), 2):
        for rounded in (ceil_ratio(one, other), floor_ratio(one, other), minimum(one, other)):
            found += [rounded, other * rounded, one * rounded, rounded**2]
    for n in map(symbol, names):
        found += [term(n) for basis in BASES[1:5] for term in basis[1:]]
    return list(dict.fromkeys(found))


def determined(points: Sequence[Mapping[str, int]], terms: Sequence[Expr]) -> bool:
    """Return whether the points tell the terms apart: on odd numbers alone, ``ceil(n/2)`` is ``n/2 + 1/2``."""
    try:
        _matrix(tuple([tuple(point.items()) for point in points]), tuple(terms))
    except ArithmeticError:
        return False
    return True


def fitted(
    values: Sequence[Expr], points: Sequence[Mapping[str, int]], terms: Sequence[Expr], more: Sequence[Expr] = ()
) -> Expr | None:
    """The expression that is ``values[i]`` at structure ``points[i]``, its coefficients sums of ``terms``, each with up
    to two of ``more``.

    None if there is none. The points must determine the coefficients. A size rounded at each structure by the number of
    repetitions there (``ceil(seq/2)``, ``ceil(seq/3)``) counts as one term: ``ceil(seq/pieces)``.
    """
    found = _fitted(values, points, terms, more)
    for halves in (False, True):
        if found is None:
            pairs = [_by_repetitions(*pair, halves) for pair in zip(values, points, strict=True)]
            whole = {text(part): part for _, parts in pairs for part in parts}
            found = _fitted([value for value, _ in pairs], points, terms, more) if whole else None
            found = None if found is None else found.subs(whole)
    return found


def _by_repetitions(value: Expr, point: Mapping[str, int], halves: bool) -> tuple[Expr, list[Expr]]:
    """``value`` with texts as symbols for roundings whose divisor is a multiple of a repetition's number; what these
    are as quotients by that. ``halves``: ``floor(n/2)`` counts as ``n - ceil(n/2)``."""
    shown: dict[Opaque, Expr] = {}
    parts: list[Expr] = []
    for atom in _opaque(value):
        if atom.name != FLOOR or not isinstance(divisor := atom.arguments[1].value, int):
            continue
        number = atom.arguments[0].terms.get((), 0)
        top, half = atom.arguments[0] - number, halves and not number and divisor == 2
        for name, count in point.items():
            if count > 1 and divisor % count == 0 and number in (0, divisor - 1):
                part = (ceil_ratio if number or half else floor_ratio)(top, symbol(name) * (divisor // count))
                parts.append(part)
                shown[atom] = top - symbol(text(part)) if half else symbol(text(part))
    return replaced(value, shown), parts


def _opaque(expr: Expr) -> Iterator[Opaque]:
    """The opaque atoms of an expression, those inside others too."""
    for atom in expr.atoms:
        if isinstance(atom, Opaque):
            yield atom
            for argument in atom.arguments:
                yield from _opaque(argument)


def _fitted(
    values: Sequence[Expr], points: Sequence[Mapping[str, int]], terms: Sequence[Expr], more: Sequence[Expr]
) -> Expr | None:
    at = tuple([tuple(point.items()) for point in points])
    result = constant(0)
    monomials: dict[Monomial, None] = dict.fromkeys(m for value in values for m in value.terms)
    for monomial in monomials:
        vector = tuple([value.terms.get(monomial, 0) for value in values])
        found = _combined(vector, at, tuple(terms), tuple(more))
        if found is None:
            return None
        result = result + found * Expr({monomial: 1})
    return result


Points: TypeAlias = tuple[tuple[tuple[str, int], ...], ...]


@functools.lru_cache(maxsize=1 << 14)
def _combined(
    vector: tuple[Coefficient, ...], points: Points, terms: tuple[Expr, ...], more: tuple[Expr, ...]
) -> Expr | None:
    """The sum of multiples of ``terms`` and few of ``more`` that is ``vector`` at the points, None if there is none."""
    for count in range(_MORE + 1 if more else 1):
        if count and len(terms) + count + _SPARE > len(points):
            break
        for chosen in itertools.combinations(more, count):
            every = (*terms, *chosen)
            try:
                times = _matrix(points, every).solve(vector)
            except ArithmeticError:
                if not count:
                    raise
                continue
            if times is not None:
                return total(term * times for term, times in zip(every, times, strict=True) if times)
    return None


@functools.lru_cache(maxsize=1 << 10)
def _matrix(points: Points, terms: tuple[Expr, ...]) -> Matrix:
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
