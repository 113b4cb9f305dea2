"""The opaque atoms: floor and ceil divisions, minima and maxima, powers of a number; folded where they can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
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
    constant,
    content,
    order,
)

__all__ = ["ceil", "ceil_ratio", "floor", "floor_ratio", "maximum", "minimum", "nonnegative", "power", "rebuilt"]

FLOOR, MAX, MIN, POWER = "floor", "max", "min", "power"


def floor(value: Number) -> Expr:
    """The largest integer up to ``value``, which may have fractions: ``floor(n/2)``."""
    expr = as_expr(value)
    scale = math.lcm(*(Fraction(c).denominator for c in expr.terms.values()))
    return floor_ratio(expr * scale, constant(scale))


def ceil(value: Number) -> Expr:
    """The smallest integer from ``value`` on."""
    return -floor(-as_expr(value))


def ceil_ratio(numerator: Number, denominator: Number) -> Expr:
    """``ceil(numerator / denominator)``."""
    return -(-as_expr(numerator) // denominator)


def floor_ratio(numerator: Expr, denominator: Expr) -> Expr:
    """``floor(numerator / denominator)``.

    What is known to be whole comes out: ``floor(k n / k) = n``, ``floor((2 n + 3)/2) = n + 1``; floors of floors
    are one: ``floor(floor(n/2)/2) = floor(n/4)``.
    """
    divisor = denominator.value
    if divisor is None:
        return _floor_by_expr(numerator, denominator)
    if divisor == 0:
        raise ZeroDivisionError(f"floor(({numerator}) / 0)")
    scaled = numerator / divisor
    scale = math.lcm(*(Fraction(c).denominator for c in scaled.terms.values()))
    return _floor_by_number(scaled * scale, scale)


def _floor_by_number(numerator: Expr, divisor: int) -> Expr:
    """``numerator`` has whole coefficients, ``divisor`` is positive."""
    numerator, divisor = _unnested(numerator, divisor)
    varying = [monomial for monomial in numerator.terms if monomial]
    if varying and numerator.terms[max(varying, key=order)] < 0:
        return -_floor_by_number(divisor - 1 - numerator, divisor)
    whole: dict[Monomial, Coefficient] = {}
    rest: dict[Monomial, Coefficient] = {}
    for monomial, coefficient in numerator.terms.items():
        quotient, left = divmod(coefficient, divisor) if is_whole(monomial) else (0, coefficient)
        whole[monomial], rest[monomial] = quotient, left
    outside = Expr(whole)
    offset = rest.pop(UNIT, 0)
    moving = Expr(rest)
    if not moving.terms:
        return outside + math.floor(Fraction(offset, divisor))
    common = math.gcd(divisor, *(int(c) for c in moving.terms.values())) if _all_whole(moving) else 1
    inside = moving / common + math.floor(Fraction(offset, common))
    divisor //= common
    if divisor == 1:
        return outside + inside
    return outside + _atom(FLOOR, (inside, constant(divisor)))


def _unnested(numerator: Expr, divisor: int) -> tuple[Expr, int]:
    """``floor((floor(a/b) + m)/k) = floor((a + b m)/(b k))`` for whole b, m, k."""
    for monomial, coefficient in numerator.terms.items():
        if len(monomial) != 1 or coefficient != 1 or monomial[0][1] != 1:
            continue
        atom = monomial[0][0]
        if isinstance(atom, Opaque) and atom.name == FLOOR:
            inner, by = atom.arguments
            others = numerator - Expr({monomial: 1})
            if isinstance(by.value, int) and _all_whole(others):
                return _unnested(inner + others * by, divisor * by.value)
    return numerator, divisor


def _floor_by_expr(numerator: Expr, denominator: Expr) -> Expr:
    quotient = numerator.divided(denominator)
    if quotient is not None:
        whole = {m: c for m, c in quotient.terms.items() if isinstance(c, int) and is_whole(m)}
        numerator = numerator - Expr(whole) * denominator
        outside = Expr(whole)
    else:
        outside = ZERO
    if not numerator.terms:
        return outside
    common = math.gcd(*(int(c) for c in (content(numerator), content(denominator)) if isinstance(c, int)))
    if isinstance(content(numerator), Fraction) or isinstance(content(denominator), Fraction) or common == 0:
        common = 1
    return outside + _atom(FLOOR, (numerator / common, denominator / common))


def is_whole(monomial: Monomial) -> bool:
    """Whether a monomial is an integer whatever its atoms are."""
    return all(exponent > 0 for _, exponent in monomial)


def _all_whole(expr: Expr) -> bool:
    return all(isinstance(c, int) and is_whole(m) for m, c in expr.terms.items())


def power(base: int, exponent: Number) -> Expr:
    """``base**exponent`` for a number ``base`` of at least 2."""
    exponent = as_expr(exponent)
    shift = exponent.terms.get(UNIT, 0)
    if not isinstance(shift, int):
        shift = 0
    varying = exponent - shift
    scale = constant(Fraction(base) ** shift)
    if not varying.terms:
        return scale
    ((monomial, times),) = [*varying.terms.items()][:1]
    if len(varying.terms) == 1 and isinstance(times, int):
        return scale * _atom(POWER, (constant(base), Expr({monomial: 1}))) ** times
    return scale * _atom(POWER, (constant(base), varying))


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
        if any(beats(other - candidate) for other in kept):
            continue
        kept = [other for other in kept if not beats(candidate - other)] + [candidate]
    if len(kept) == 1:
        return kept[0]
    return _atom(name, tuple(sorted(kept, key=str)))


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
    if all(c >= 0 for c in expr.terms.values()):
        return True
    spare = {m: c for m, c in expr.terms.items() if c > 0}
    for monomial, coefficient in sorted(expr.terms.items(), key=lambda term: order(term[0])):
        if coefficient > 0:
            continue
        owed = -coefficient
        for larger in sorted(spare, key=order):
            if owed and _covers(larger, monomial):
                used = min(owed, spare[larger])
                spare[larger] -= used
                owed -= used
        if owed:
            return False
    return True


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
        assert isinstance(base, int)
        return power(base, arguments[1])
    return (maximum if name == MAX else minimum)(*arguments)
