"""The opaque atoms: floor and ceil divisions, minima and maxima, powers of a number; folded where they can be."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from fractions import Fraction

from tensortide.expr.expr import (
    UNIT,
    ZERO,
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
    order,
)

__all__ = [
    "alternatives",
    "ceil",
    "ceil_ratio",
    "floor",
    "floor_ratio",
    "given_whole",
    "maximum",
    "minimum",
    "nonnegative",
    "power",
    "rebuilt",
    "whole_power",
]

FLOOR, MAX, MIN, POWER = "floor", "max", "min", "power"


def floor(value: Number) -> Expr:
    """The largest integer up to ``value``, which may have fractions: ``floor(n/2)``.

    What is known to be whole comes out: ``floor(k n / k) = n``, ``floor((2 n + 3)/2) = n + 1``; floors of floors
    are one: ``floor(floor(n/2)/2) = floor(n/4)``.
    """
    expr = as_expr(value)
    if (given := _given_part(expr)).terms:
        return given + floor(expr - given)
    bottom = denominator(expr)
    top, divisor = expr * bottom, bottom.value
    if isinstance(divisor, int):
        return _floor_by_number(top, divisor)
    whole = Expr({m: math.floor(c) for m, c in expr.terms.items() if is_whole(m)})
    return whole + _atom(FLOOR, (top - whole * bottom, bottom))


_given: ContextVar[tuple[Expr, ...]] = ContextVar("given", default=())


@contextlib.contextmanager
def given_whole(terms: Iterable[Expr]) -> Iterator[None]:
    """In the body, quotients of single terms (``hidden/heads``, ``image/16``) count as whole, and so do products."""
    token = _given.set(tuple(terms))
    try:
        yield
    finally:
        _given.reset(token)


def _given_part(expr: Expr) -> Expr:
    """The terms that are whole because of what is given."""
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
    """How far a term is from being whole: its negative exponents and its denominator."""
    return sum(-e for _, e in monomial if e < 0), Fraction(coefficient).denominator - 1


def ceil(value: Number) -> Expr:
    """The smallest integer from ``value`` on."""
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
    return _atom(FLOOR, (numerator / factor, divisor / factor))


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
    return whole + (inside if by == 1 else _unnested(inside, by) or _atom(FLOOR, (inside, by)))


def _unnested(top: Expr, divisor: Expr) -> Expr | None:
    """``floor((floor(a/b) + m)/k) = floor((a + b m)/(b k))`` for whole m and k."""
    for monomial in sorted(top.terms, key=order):
        if top.terms[monomial] == 1 and len(monomial) == 1 and monomial[0][1] == 1:
            atom = monomial[0][0]
            if isinstance(atom, Opaque) and atom.name == FLOOR:
                inner, by = atom.arguments
                return floor_ratio(inner + (top - Expr({monomial: 1})) * by, by * divisor)
    return None


def is_whole(monomial: Monomial) -> bool:
    """Whether a monomial is an integer whatever its atoms are."""
    return all(exponent > 0 for _, exponent in monomial)


def power(base: int, exponent: Number) -> Expr:
    """``base**exponent`` for a number ``base`` of at least 2."""
    exponent = as_expr(exponent)
    shift = exponent.terms.get(UNIT, 0)
    if not isinstance(shift, int):
        shift = 0
    varying = exponent - shift
    scale = constant(Fraction(base) ** shift)
    if varying.value is not None:
        return scale * whole_power(base, varying.value)
    times = next(iter(varying.terms.values()))
    if len(varying.terms) == 1 and isinstance(times, int):
        return scale * _atom(POWER, (constant(base), varying / times)) ** times
    return scale * _atom(POWER, (constant(base), varying))


def whole_power(base: int, exponent: Coefficient) -> int:
    """``base**exponent`` where that is whole. Raises ArithmeticError where it is not."""
    if not isinstance(exponent, int) or exponent < 0:
        raise ArithmeticError(f"{base}**({exponent}) is not a whole number")
    return int(base**exponent)


def maximum(*values: Number) -> Expr:
    """The largest of ``values``; those that cannot be are left out."""
    return _extreme(MAX, values, nonnegative)


def minimum(*values: Number) -> Expr:
    """The smallest of ``values``; those that cannot be are left out."""
    return _extreme(MIN, values, lambda difference: nonnegative(-difference))


def _extreme(name: str, values: Iterable[Number], beats: Callable[[Expr], bool]) -> Expr:
    flat: list[Expr] = []
    for value in map(as_expr, values):
        atom = _single(value)
        flat += atom.arguments if atom is not None and atom.name == name else [value]
    kept: list[Expr] = []
    for candidate in flat:
        if isinstance(candidate.value, Fraction):
            raise ArithmeticError(f"{name} of {candidate}, which is not a whole number")
        if any(beats(other - candidate) for other in kept):
            continue
        kept = [other for other in kept if not beats(candidate - other)] + [candidate]
    if len(kept) == 1:
        return kept[0]
    return _atom(name, tuple(sorted(kept, key=str)))


def alternatives(expr: Expr) -> tuple[Expr, ...]:
    """The expressions of which ``expr`` is the maximum or minimum; itself if it is none."""
    atom = _single(expr)
    return atom.arguments if atom is not None and atom.name in (MAX, MIN) else (expr,)


def _single(expr: Expr) -> Opaque | None:
    """The opaque atom that the expression is, if it is one."""
    if len(expr.terms) == 1:
        ((monomial, coefficient),) = expr.terms.items()
        if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1 and isinstance(monomial[0][0], Opaque):
            return monomial[0][0]
    return None


def nonnegative(expr: Expr) -> bool:
    """Whether the expression is provably at least 0 wherever its symbols are at least 1.

    Every term with a negative coefficient must be covered by positive terms that are its multiples (``h^2 >= h``).
    A sufficient test, not a necessary one.
    """
    if not (opaque := [atom for atom in expr.atoms if isinstance(atom, Opaque)]):
        if sum(expr.terms.values()) < 0:
            return False  # where every symbol is 1
    elif not all(map(_never_negative, opaque)):
        return False
    spare = {m: c for m, c in expr.terms.items() if c > 0}
    for monomial, coefficient in sorted(expr.terms.items(), key=lambda term: order(term[0])):
        owed = max(-coefficient, 0)
        for larger in sorted(spare, key=order):
            if owed and _covers(larger, monomial):
                used = min(owed, spare[larger])
                spare[larger] -= used
                owed -= used
        if owed:
            return False
    return True


def _never_negative(atom: Opaque) -> bool:
    if atom.name in (FLOOR, MIN):
        return all(map(nonnegative, atom.arguments))
    return any(map(nonnegative, atom.arguments))  # a power is of a positive number


def _covers(larger: Monomial, smaller: Monomial) -> bool:
    """Whether ``larger >= smaller`` wherever symbols are at least 1 (other atoms may be 0)."""
    a, b = dict(larger), dict(smaller)
    return all(
        a.get(atom, 0) >= b.get(atom, 0) and (isinstance(atom, str) or a.get(atom, 0) == b.get(atom, 0))
        for atom in a.keys() | b.keys()
    )


def _atom(name: str, arguments: tuple[Expr, ...]) -> Expr:
    return Expr({((Opaque(name, arguments), 1),): 1})


def rebuilt(name: str, arguments: tuple[Expr, ...]) -> Expr:
    """The atom ``name`` of other arguments, folded anew."""
    if name == FLOOR:
        return floor_ratio(*arguments)
    if name == POWER:
        base = arguments[0].value
        exponent = arguments[1].value
        assert isinstance(base, int)
        return power(base, arguments[1]) if exponent is None else constant(whole_power(base, exponent))
    return (maximum if name == MAX else minimum)(*arguments)
