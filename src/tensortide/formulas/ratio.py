"""Quotients of expressions, and terms of an expansion: a quotient times a root times a power of the parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from tensortide.expr import Expr, constant, symbol, text
from tensortide.expr.expr import common, content, denominator
from tensortide.expr.factor import factored

__all__ = ["ONE", "Ratio", "Term"]

ONE = constant(1)


@dataclass(frozen=True, slots=True)
class Ratio:
    """``top / bottom``, which need not be a sum of terms."""

    top: Expr
    bottom: Expr = ONE

    def reduced(self) -> Ratio:
        """The same without common factors that are found by division: ``bottom`` is 1 if it divides ``top``."""
        quotient = self.top.divided(self.bottom)
        if quotient is not None:
            return Ratio(quotient)
        inverse = self.bottom.divided(self.top) if self.top.terms else None
        if inverse is not None and denominator(inverse).value is not None:
            return Ratio(ONE, inverse)
        factor = Expr({common(self.top, self.bottom): content(self.top, self.bottom)})
        return Ratio(self.top / factor, self.bottom / factor)

    def __mul__(self, other: Ratio) -> Ratio:
        return Ratio(self.top * other.top, self.bottom * other.bottom).reduced()

    def __truediv__(self, other: Ratio) -> Ratio:
        return Ratio(self.top * other.bottom, self.bottom * other.top).reduced()

    def value(self, setting: Mapping[str, int]) -> Fraction:
        """The number at a setting."""
        top, bottom = (Fraction(part.subs(setting).value or 0) for part in (self.top, self.bottom))
        return top / bottom

    def __str__(self) -> str:
        return str(Term(self))


@dataclass(frozen=True, slots=True)
class Term:
    """``coefficient * radicand**radical * p**power`` for the number of parameters ``p``."""

    coefficient: Ratio
    radicand: Expr = ONE
    radical: Fraction = Fraction(0)
    power: Fraction = Fraction(0)

    @classmethod
    def of(cls, coefficient: Ratio, base: Expr, exponent: Fraction) -> Term:
        """``coefficient * (base/p)**exponent``, with what has an exact root taken out."""
        whole = math.floor(exponent)
        factor = Ratio(base**whole) if whole >= 0 else Ratio(ONE, base**-whole)
        root = _root(base, (exponent - whole).denominator)
        radical = exponent - whole
        if root is not None and radical:
            factor, radical = factor * Ratio(root**radical.numerator), Fraction(0)
        return cls((coefficient * factor).reduced(), base if radical else ONE, radical, -exponent)

    def value(self, setting: Mapping[str, int], parameters: float = 1.0) -> float:
        """The number at a setting and a number of parameters."""
        root = math.pow(Ratio(self.radicand).value(setting), self.radical)
        return float(self.coefficient.value(setting)) * root * math.pow(parameters, self.power)

    def __str__(self) -> str:
        scale = denominator(self.coefficient.top)
        above, below = _factors(self.coefficient.top * scale), _factors(self.coefficient.bottom * scale)
        if self.radical:
            above.append(_raised(self.radicand, self.radical))
        if self.power:
            (above if self.power > 0 else below).append(_raised(_P, abs(self.power)))
        if not below:
            return "*".join(above) if self.radical or self.power else text(self.coefficient.top)
        bottom = "*".join(below)
        plain = len(below) == 1 and re.fullmatch(r"\w+(\*\*\S+)?|\(.*\)|sqrt\(.*\)", bottom)
        return f"{'*'.join(above) or '1'}/{bottom if plain else f'({bottom})'}"


_P = symbol("p")


def _factors(expr: Expr) -> list[str]:
    """Text of an expression as a factor of a product: in parentheses if it is a sum, absent if it is 1."""
    if expr == 1:
        return []
    return [f"({text(expr)})" if factored(expr).is_sum else text(expr)]


def _raised(base: Expr, exponent: Fraction) -> str:
    shown = text(base)
    if exponent == Fraction(1, 2):
        return f"sqrt({shown})"
    shown = shown if shown.isidentifier() else f"({shown})"
    return shown if exponent == 1 else f"{shown}**{exponent if exponent.denominator == 1 else f'({exponent})'}"


def _root(expr: Expr, degree: int) -> Expr | None:
    """The exact root of a single term, if it has one."""
    if len(expr.terms) != 1:
        return None
    ((monomial, coefficient),) = expr.terms.items()
    parts = []
    for number in Fraction(coefficient).as_integer_ratio():
        root = round(number ** (1 / degree))
        if root**degree != number:
            return None
        parts.append(root)
    if any(exponent % degree for _, exponent in monomial):
        return None
    return Expr({tuple((atom, exponent // degree) for atom, exponent in monomial): Fraction(parts[0], parts[1])})
