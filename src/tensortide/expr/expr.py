"""Exact expressions in positive integer symbols: polynomials over the rationals with opaque atoms.

``Expr`` is a sum of terms ``coefficient * atom**exponent * ...``. An atom is a symbol or an opaque integer:
``floor(a/b)``, ``max(...)``, ``min(...)``, ``2**e``. Exponents may be negative (``hidden/heads``): such a term stands
for a division that is known to be exact. Equal sums of terms are equal objects, so ``==`` is structural, and sums,
products and powers are exact and need no simplification.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import TypeAlias, Union

Coefficient: TypeAlias = int | Fraction
Number: TypeAlias = Union["Expr", int, Fraction]


class Opaque:
    """An atom that is not a symbol: a function of expressions, with an integer value (see ``atoms``)."""

    __slots__ = ("_hash", "arguments", "name")

    def __init__(self, name: str, arguments: tuple[Expr, ...]) -> None:
        self.name = name
        self.arguments = arguments
        self._hash = hash((name, arguments))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Opaque):
            return NotImplemented
        return self is other or (self.name == other.name and self.arguments == other.arguments)

    def number(self, bindings: Mapping[str, int], known: dict[Opaque, Coefficient]) -> Coefficient:
        """The value with every symbol bound, once for all places where the atom is."""
        if self not in known:
            from tensortide.expr.atoms import KINDS

            numbers = [constant(argument._number(bindings, known)) for argument in self.arguments]
            known[self] = KINDS[self.name].fold(*numbers).value or 0
        return known[self]

    def __reduce__(self) -> tuple[type[Opaque], tuple[str, tuple[Expr, ...]]]:
        return Opaque, (self.name, self.arguments)  # hashes of text differ from process to process

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


Atom: TypeAlias = str | Opaque
Monomial: TypeAlias = tuple[tuple[Atom, int], ...]
UNIT: Monomial = ()


def _key(power: tuple[Atom, int]) -> tuple[bool, str]:
    atom = power[0]
    return (False, atom) if isinstance(atom, str) else (True, repr(atom))


@functools.lru_cache(maxsize=1 << 16)
def multiply(a: Monomial, b: Monomial) -> Monomial:
    """The product of two monomials."""
    if not a or not b:
        return a or b
    powers = dict(a)
    for atom, exponent in b:
        powers[atom] = powers.get(atom, 0) + exponent
    return tuple(sorted(((atom, e) for atom, e in powers.items() if e), key=_key))


def invert(monomial: Monomial) -> Monomial:
    """The reciprocal of a monomial."""
    return tuple((atom, -exponent) for atom, exponent in monomial)


def _whole(value: Coefficient) -> Coefficient:
    if type(value) is int:  # the usual case, and a check against Fraction, an abstract class, is slow
        return value
    return value.numerator if isinstance(value, Fraction) and value.denominator == 1 else value


class Expr:
    """An exact sum of terms; immutable and hashable. Made by ``symbol``, ``constant`` and arithmetic."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, Coefficient]) -> None:
        self.terms: dict[Monomial, Coefficient] = {m: _whole(c) for m, c in terms.items() if c}
        self._hash: int | None = None

    # -- what it is ---------------------------------------------------------------------------------

    def __hash__(self) -> int:
        if self._hash is None:
            value = self.value
            self._hash = hash(frozenset(self.terms.items())) if value is None else hash(value)
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Expr):
            return self.terms == other.terms
        if isinstance(other, int | Fraction):
            return self.value == other
        return NotImplemented

    def __reduce__(self) -> tuple[type[Expr], tuple[dict[Monomial, Coefficient]]]:
        return Expr, (self.terms,)

    @property
    def value(self) -> Coefficient | None:
        """The number it is, None if it depends on symbols."""
        if not self.terms:
            return 0
        return self.terms.get(UNIT) if len(self.terms) == 1 else None

    @property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols in it, those inside opaque atoms too."""
        return frozenset(_symbols(self))

    @property
    def atoms(self) -> frozenset[Atom]:
        """Symbols and opaque atoms of its terms."""
        return frozenset(atom for monomial in self.terms for atom, _ in monomial)

    def __repr__(self) -> str:
        return f"Expr({str(self)!r})"

    def __str__(self) -> str:
        """Expanded, highest degree first; ``parse`` reads it back."""
        from tensortide.expr.show import expanded

        return expanded(self)

    # -- arithmetic ---------------------------------------------------------------------------------

    def __add__(self, other: Number) -> Expr:
        right = _terms(other)
        if right is None:
            return NotImplemented
        terms = dict(self.terms)
        for monomial, coefficient in right.items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return Expr(terms)

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Number) -> Expr:
        return self + -other

    def __rsub__(self, other: Number) -> Expr:
        return -self + other

    def __mul__(self, other: Number) -> Expr:
        right = _terms(other)
        if right is None:
            return NotImplemented
        terms: dict[Monomial, Coefficient] = {}
        for a, x in self.terms.items():
            for b, y in right.items():
                product = multiply(a, b)
                terms[product] = terms.get(product, 0) + x * y
        return Expr(terms)

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Expr:
        if exponent < 0:
            return 1 / self**-exponent
        if len(self.terms) == 1:
            ((monomial, coefficient),) = self.terms.items()
            return Expr({tuple((atom, e * exponent) for atom, e in monomial if exponent): coefficient**exponent})
        return functools.reduce(Expr.__mul__, [self] * exponent, ONE)

    def __truediv__(self, other: Number) -> Expr:
        """The exact quotient; ``h/2`` and ``h/n`` are fine. Raises ArithmeticError if there is none: ``h/(n + 1)``."""
        quotient = self.divided(as_expr(other))
        if quotient is None:
            raise ArithmeticError(f"({self}) / ({other}) is no sum of terms")
        return quotient

    def __rtruediv__(self, other: Number) -> Expr:
        return as_expr(other) / self

    def __floordiv__(self, other: Number) -> Expr:
        """``floor(self / other)``; folded where the quotient is known to be whole."""
        from tensortide.expr.floors import floor_ratio

        return floor_ratio(self, as_expr(other))

    def __rfloordiv__(self, other: Number) -> Expr:
        return as_expr(other) // self

    def __mod__(self, other: Number) -> Expr:
        return self - self // other * other

    def __rmod__(self, other: Number) -> Expr:
        return as_expr(other) % self

    def divided(self, divisor: Expr) -> Expr | None:
        """``self / divisor`` if that is a sum of terms, else None."""
        if not divisor.terms:
            raise ZeroDivisionError(f"({self}) / 0")
        if len(divisor.terms) == 1:
            ((monomial, coefficient),) = divisor.terms.items()
            reciprocal = invert(monomial)
            return Expr({multiply(m, reciprocal): Fraction(c) / coefficient for m, c in self.terms.items()})
        return _long_division(self, divisor)

    # -- structure ----------------------------------------------------------------------------------

    def subs(self, bindings: Mapping[str, Number]) -> Expr:
        """The expression with some symbols replaced. Raises ArithmeticError for a division by what became 0."""
        from tensortide.expr.atoms import KINDS

        result = ZERO
        powers: dict[tuple[Atom, int], Expr] = {}
        for monomial, coefficient in self.terms.items():
            term = constant(coefficient)
            for power in monomial:
                if power not in powers:
                    atom = power[0]
                    if isinstance(atom, str):
                        base = as_expr(bindings[atom]) if atom in bindings else symbol(atom)
                    else:
                        base = KINDS[atom.name].fold(*[a.subs(bindings) for a in atom.arguments])
                    powers[power] = base ** power[1]
                term = term * powers[power]
            result = result + term
        return result

    def evaluate(self, bindings: Mapping[str, int]) -> int:
        """The value with every symbol bound.

        Raises KeyError with the names of unbound symbols; ArithmeticError where a division that stands for an exact
        one is not (``hidden/heads`` at 10 and 4).
        """
        unbound = self.symbols - bindings.keys()
        if unbound:
            raise KeyError(*sorted(unbound))
        value = _whole(self._number(bindings, {}))
        if not isinstance(value, int):
            raise ArithmeticError(f"{self} is {value} at {dict(bindings)}: not a whole number")
        return value

    def _number(self, bindings: Mapping[str, int], known: dict[Opaque, Coefficient]) -> Coefficient:
        """The value with every symbol bound; ``known`` has those of atoms."""
        result: Coefficient = 0
        for monomial, coefficient in self.terms.items():
            term = coefficient
            for atom, exponent in monomial:
                base = bindings[atom] if isinstance(atom, str) else atom.number(bindings, known)
                term = term * base**exponent if exponent > 0 else Fraction(term, base**-exponent)
            result += term
        return result

    def degree(self, atom: Atom) -> int:
        """The highest exponent of ``atom`` in any term (0 for an expression without it)."""
        return max((dict(m).get(atom, 0) for m in self.terms), default=0)

    def coefficients(self, atom: Atom) -> dict[int, Expr]:
        """The expression as a polynomial in ``atom``: exponent -> coefficient, highest exponent first."""
        groups: dict[int, dict[Monomial, Coefficient]] = {}
        for monomial, coefficient in self.terms.items():
            exponent = dict(monomial).get(atom, 0)
            rest = tuple(power for power in monomial if power[0] != atom)
            groups.setdefault(exponent, {})[rest] = coefficient
        return {exponent: Expr(groups[exponent]) for exponent in sorted(groups, reverse=True)}


def _terms(other: object) -> Mapping[Monomial, Coefficient] | None:
    if isinstance(other, Expr):
        return other.terms
    return {UNIT: other} if isinstance(other, int | Fraction) else None


def _symbols(expr: Expr) -> Iterator[str]:
    for monomial in expr.terms:
        for atom, _ in monomial:
            if isinstance(atom, str):
                yield atom
            else:
                for argument in atom.arguments:
                    yield from _symbols(argument)


def _long_division(dividend: Expr, divisor: Expr) -> Expr | None:
    """The quotient of two sums if there is no remainder."""
    above, below = common(dividend), common(divisor)
    rest, by = dividend / Expr({above: 1}), divisor / Expr({below: 1})
    lead = max(by.terms, key=order)
    quotient: dict[Monomial, Coefficient] = {}
    while rest.terms:
        highest = max(rest.terms, key=order)
        step = multiply(highest, invert(lead))
        if any(exponent < 0 for _, exponent in step):
            return None
        quotient[step] = Fraction(rest.terms[highest]) / by.terms[lead]
        rest = rest - Expr({step: quotient[step]}) * by
    return Expr(quotient) * Expr({multiply(above, invert(below)): 1})


@functools.lru_cache(maxsize=1 << 16)
def order(monomial: Monomial) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Sort key of a monomial order: by degree, then alphabetically; symbols before other atoms."""
    degree = sum(exponent for _, exponent in monomial)
    keys = [(*_key(power), power[1]) for power in monomial]
    return degree, tuple((-opaque, *(-ord(c) for c in name), 0, exponent) for opaque, name, exponent in keys)


def common(*exprs: Expr) -> Monomial:
    """The largest monomial that divides every term: what it leaves has no negative exponents."""
    powers = [dict(monomial) for expr in exprs for monomial in expr.terms]
    lowest = {atom: min(monomial.get(atom, 0) for monomial in powers) for atom in {a for m in powers for a in m}}
    return tuple(sorted(((atom, exponent) for atom, exponent in lowest.items() if exponent), key=_key))


def denominator(*exprs: Expr) -> Expr:
    """The smallest single term that makes polynomials with whole coefficients of all of them."""
    below = tuple((atom, -exponent) for atom, exponent in common(*exprs, ONE) if exponent < 0)
    return Expr({below: math.lcm(*(Fraction(c).denominator for expr in exprs for c in expr.terms.values()))})


# -- making expressions -----------------------------------------------------------------------------


@functools.cache
def symbol(name: str) -> Expr:
    """The symbol ``name``: a positive integer."""
    return Expr({((name, 1),): 1})


def constant(value: Coefficient) -> Expr:
    """A number as an expression."""
    return Expr({UNIT: value})


def opaque(name: str, arguments: tuple[Expr, ...]) -> Expr:
    """The opaque atom ``name`` of ``arguments``, as it is: nothing is folded."""
    return Expr({((Opaque(name, arguments), 1),): 1})


def as_expr(value: Number | str) -> Expr:
    """An expression, a number, or the text of an expression, as an expression."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, str):
        from tensortide.expr.parse import parse

        return parse(value)
    return constant(value)


def total(parts: Iterable[Number]) -> Expr:
    """The sum of ``parts``, in time linear in their terms."""
    terms: dict[Monomial, Coefficient] = {}
    for part in parts:
        for monomial, coefficient in (part.terms if isinstance(part, Expr) else {UNIT: part}).items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
    return Expr(terms)


def content(*exprs: Expr) -> Coefficient:
    """The largest number that divides every coefficient into a whole one, positive (0 for the expression 0)."""
    coefficients = [Fraction(c) for expr in exprs for c in expr.terms.values()]
    top = math.gcd(*(c.numerator for c in coefficients))
    return _whole(Fraction(top, math.lcm(*(c.denominator for c in coefficients))))


ZERO = constant(0)
ONE = constant(1)
