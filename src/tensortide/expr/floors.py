"""Floor and ceil divisions, folded where the quotient is known to be whole."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from fractions import Fraction

from tensortide.expr.expr import (
    UNIT,
    ZERO,
    Atom,
    Coefficient,
    Expr,
    Monomial,
    Number,
    Opaque,
    as_expr,
    common,
    constant,
    content,
    denominator,
    invert,
    multiply,
    opaque,
    order,
)

FLOOR = "floor"


def floor(value: Number) -> Expr:
    """Round ``value``, which may have fractions, down: ``floor(n/2)``.

    Terms known to be whole come out: ``floor(k n / k) = n``, ``floor((2 n + 3)/2) = n + 1``; floors of floors
    are one: ``floor(floor(n/2)/2) = floor(n/4)``.
    """
    expr = as_expr(value)
    if (given := _given_part(expr)).terms:
        return given + floor(expr - given)
    bottom = denominator(expr)
    top, divisor = expr * bottom, bottom.value
    if isinstance(divisor, int):
        return _floor_by_number(top, divisor)
    whole = Expr({m: math.floor(c) for m, c in expr.terms.items() if all(e > 0 for _, e in m)})
    return whole + opaque(FLOOR, (top - whole * bottom, bottom))


_given: ContextVar[tuple[Expr, ...]] = ContextVar("given", default=())


@contextlib.contextmanager
def given_whole(terms: Iterable[Expr]) -> Iterator[None]:
    """Count quotients of single terms (``hidden/heads``, ``image/16``) as whole in the body, and their products too."""
    token = _given.set(tuple(terms))
    try:
        yield
    finally:
        _given.reset(token)


def _given_part(expr: Expr) -> Expr:
    """The terms that are whole because given quotients are."""
    if not _given.get():
        return ZERO
    return Expr({m: c for m, c in expr.terms.items() if any(_broken(m, c)) and not any(_broken(*_mended(m, c)))})


def _mended(monomial: Monomial, coefficient: Coefficient) -> tuple[Monomial, Coefficient]:
    """The term without the given factors that keep it from being whole."""
    for given in _given.get():
        ((factor, number),) = given.terms.items()
        while True:
            smaller = multiply(monomial, invert(factor)), Fraction(coefficient) / number
            if _broken(*smaller) >= _broken(monomial, coefficient):
                break
            monomial, coefficient = smaller
    return monomial, coefficient


def _broken(monomial: Monomial, coefficient: Coefficient) -> tuple[int, int]:
    """Distance of a term from being whole: its negative exponents and its denominator."""
    return sum(-e for _, e in monomial if e < 0), Fraction(coefficient).denominator - 1


def ceil(value: Number) -> Expr:
    """Round ``value`` up."""
    return -floor(-as_expr(value))


def ceil_ratio(numerator: Number, divisor: Number) -> Expr:
    """``ceil(numerator / divisor)``."""
    return -(-as_expr(numerator) // divisor)


def floor_ratio(numerator: Expr, divisor: Expr) -> Expr:
    """``floor(numerator / divisor)``, where the quotient need not be a sum of terms: ``floor(h/(n + 1))``."""
    quotient = numerator.divided(divisor)
    if quotient is not None:
        return floor(quotient)
    factor = Expr({common(numerator, divisor): content(numerator, divisor)})
    return opaque(FLOOR, (numerator / factor, divisor / factor))


def _floor_by_number(top: Expr, divisor: int) -> Expr:
    """``floor(top / divisor)`` for a polynomial with whole coefficients and a positive number."""
    varying = [monomial for monomial in top.terms if monomial]
    if varying and top.terms[max(varying, key=order)] < 0:
        return -_floor_by_number(divisor - 1 - top, divisor)
    whole = Expr({monomial: coefficient // divisor for monomial, coefficient in top.terms.items()})
    rest = top - whole * divisor
    offset = rest.terms.get(UNIT, 0)
    if rest == offset:
        return whole
    scale = math.gcd(divisor, *(int(c) for m, c in rest.terms.items() if m))
    inside, by = (rest - offset) / scale + offset // scale, constant(divisor // scale)
    return whole + (inside if by == 1 else _unnested(inside, by) or opaque(FLOOR, (inside, by)))


def _unnested(top: Expr, divisor: Expr) -> Expr | None:
    """``floor((floor(a/b) + m)/k) = floor((a + b m)/(b k))`` for whole m and k."""
    for monomial in sorted(top.terms, key=order):
        if top.terms[monomial] == 1 and len(monomial) == 1:
            for inner, by in quotients(part := Expr({monomial: 1})):
                return floor_ratio(inner + (top - part) * by, by * divisor)
    return None


def quotients(expr: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Yield numerator and divisor of each floor that is a factor, by itself, of a term of ``expr``."""
    for monomial in expr.terms:
        for atom, exponent in monomial:
            if isinstance(atom, Opaque) and atom.name == FLOOR and exponent == 1:
                top, bottom = atom.arguments
                yield top, bottom


def turned(monomial: Monomial) -> bool:
    """Return whether a term has the other sign where it is written: ``floor(-n/k)`` is ``-ceil(n/k)``."""
    return bool(sum(exponent for atom, exponent in monomial if is_turned(atom)) % 2)


def is_turned(atom: Atom) -> bool:
    """Return whether an atom is a ``ceil`` with the other sign."""
    return isinstance(atom, Opaque) and atom.name == FLOOR and is_negated(atom.arguments[0])


def is_negated(top: Expr) -> bool:
    """Return whether all coefficients are negative."""
    return all(coefficient < 0 for coefficient in top.terms.values())


def written(top: Expr, bottom: Expr) -> tuple[Expr, Expr, str]:
    """Numerator, divisor and name under which a floor is written: ``floor((n + k - 1)/k)`` reads ``ceil(n/k)``.

    So does ``floor(-n/k)``, with the other sign (``turned``).
    """
    if is_negated(top):
        return -top, bottom, "ceil"
    raised = top - bottom + 1
    if bottom.value is not None and () in top.terms and () not in raised.terms:
        return raised, bottom, "ceil"
    return top, bottom, FLOOR
