"""Crossings of zero: where an expression in one symbol becomes positive, and the proof that it does so once."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from tensortide.errors import ExpressionError
from tensortide.expr import Expr, compiled, nonnegative
from tensortide.expr.atoms import KINDS
from tensortide.expr.expr import Atom, Monomial, Opaque, denominator


class Line:
    """An expression in one symbol, times what makes it whole: the same sign, an integer everywhere."""

    def __init__(self, expr: Expr, symbol: str) -> None:
        self.expr = expr * denominator(expr)
        self.symbol = symbol
        self.direction = crossing(self.expr, symbol)
        self._compiled = compiled([self.expr])

    def __call__(self, value: int) -> int:
        try:
            return self._compiled({self.symbol: value})[0]
        except ArithmeticError as error:
            raise ExpressionError(f"no value at {self.symbol}={value}: {error}") from None


def crossing(expr: Expr, symbol: str) -> int:
    """Classify how ``expr >= 0`` changes as ``symbol`` grows from 1: 1 false to true, -1 true to false, 0 unknown.

    1 and -1 are proofs that it changes once at most: the coefficients change sign once at most (Descartes), or the
    expression never falls, or never rises.
    """
    if expr.atoms <= {symbol}:
        signs = [coefficient.value or 0 for coefficient in expr.coefficients(symbol).values()]
        changes = sum((a < 0) != (b < 0) for a, b in itertools.pairwise(signs))
        if changes < 2:
            return 1 if not signs or signs[0] > 0 else -1
    return 1 if rises(expr, symbol) else -1 if rises(-expr, symbol) else 0


def rises(expr: Expr, symbol: str) -> bool:
    """Return whether the expression provably never falls as ``symbol`` grows."""
    polynomial = Expr({m: c for m, c in expr.terms.items() if not any(isinstance(atom, Opaque) for atom, _ in m)})
    if any(exponent < 0 for monomial in expr.terms for _, exponent in monomial):
        return False
    if not nonnegative(polynomial.subs({symbol: Expr({((symbol, 1),): 1}) + 1}) - polynomial):
        return False
    return all(c > 0 and _monomial_rises(m, symbol) for m, c in (expr - polynomial).terms.items())


def _monomial_rises(monomial: Monomial, symbol: str) -> bool:
    return all(exponent > 0 and _atom_rises(atom, symbol) for atom, exponent in monomial) and (
        (len(monomial) == 1 and monomial[0][1] == 1) or nonnegative(Expr({monomial: 1}))
    )


def _atom_rises(atom: Atom, symbol: str) -> bool:
    if isinstance(atom, str):
        return True
    return KINDS[atom.name].rises(lambda argument: rises(argument, symbol), symbol, *atom.arguments)


def first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The first of ``low..high`` for which ``holds`` is true, where it is for all later ones; ``high + 1`` for none."""
    step = 1
    while low <= high and not holds(probe := min(low + step - 1, high)):
        low, step = probe + 1, step * 2
    high = min(low + step - 1, high)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
