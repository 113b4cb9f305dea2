"""Expressions over hyperparameters that change the structure: from one per structure to one for all.

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
from typing import TypeAlias

from tensortide.expr import Expr, ceil_ratio, constant, floor_ratio, minimum, power, symbol, total
from tensortide.expr.atoms import replaced
from tensortide.expr.expr import Coefficient, Monomial, Opaque
from tensortide.expr.floors import FLOOR
from tensortide.expr.show import text
from tensortide.formulas.matrix import Matrix

_MORE = 2
"""Terms in a coefficient besides the usual ones."""
_SPARE = 3
"""Structures that must be left over then."""

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
