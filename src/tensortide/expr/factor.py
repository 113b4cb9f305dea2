"""Factored form: the shape in which an expression is read, printed and compiled.

A Factored is a product of a number, powers of atoms and sums, where a sum's parts are Factored again. Common
factors come out first; a sum is then split on the atom that most of its terms share, so that
``72*L*b*h**2*s + 12*L*b*h*s**2 + 6*b*h*s*v`` reads ``6*b*h*s*(2*L*(6*h + s) + v)``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tensortide.expr.expr import Atom, Coefficient, Expr, Monomial, common, content, order

__all__ = ["Factored", "factored"]


@dataclass(frozen=True, slots=True)
class Factored:
    """``coefficient * powers * (sum of parts)``; without parts the last factor is absent."""

    coefficient: Coefficient
    powers: Monomial
    parts: tuple[Factored, ...] = ()


def factored(expr: Expr) -> Factored:
    """The factored form of ``expr``; exact: multiplied out it is ``expr``."""
    if len(expr.terms) < 2:
        ((monomial, coefficient),) = expr.terms.items() or [((), 0)]
        return Factored(coefficient, monomial)
    powers = common(expr)
    scale = content(expr)
    if all(coefficient < 0 for coefficient in expr.terms.values()):
        scale = -scale
    rest = expr / Expr({powers: scale})
    return Factored(scale, powers, tuple(_parts(rest)))


def _parts(expr: Expr) -> list[Factored]:
    """The summands of a sum without common factor: groups of terms that share an atom, then what is left."""
    shared = Counter[Atom](atom for monomial in expr.terms for atom, exponent in monomial if exponent > 0)
    best = max(shared, key=lambda atom: (shared[atom], repr(atom)), default=None)
    if best is None or shared[best] < 2:
        return [Factored(expr.terms[m], m) for m in sorted(expr.terms, key=order, reverse=True)]
    inside = Expr({m: c for m, c in expr.terms.items() if dict(m).get(best, 0) > 0})
    outside = expr - inside
    return [factored(inside), *(_parts(outside) if outside.terms else ())]
