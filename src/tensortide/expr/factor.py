"""Factored form: the shape in which an expression is read, printed and compiled.

A Factored is a product of a number, powers of atoms and sums, where a sum's parts are Factored again. Common
factors come out first; a sum is then split on the atom that most of its terms share, so that
``72*L*b*h**2*s + 12*L*b*h*s**2 + 6*b*h*s*v`` reads ``6*b*h*s*(2*L*(6*h + s) + v)``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tensortide.expr.expr import Atom, Coefficient, Expr, Monomial, common, content, order


@dataclass(frozen=True, slots=True)
class Factored:
    """``coefficient * powers * (sum of parts) * ...``, with any number of sums."""

    coefficient: Coefficient
    powers: Monomial
    sums: tuple[tuple[Factored, ...], ...] = ()

    @property
    def is_sum(self) -> bool:
        """True for a form that is nothing but one sum, which needs parentheses as a factor."""
        return len(self.sums) == 1 and self.coefficient == 1 and not self.powers


def factored(expr: Expr) -> Factored:
    """The factored form of ``expr``; exact: multiplied out it is ``expr``."""
    if len(expr.terms) < 2:
        ((monomial, coefficient),) = expr.terms.items() or [((), 0)]
        return Factored(coefficient, monomial)
    powers, scale = common(expr), _scale(expr)
    return Factored(scale, powers, tuple(_sums(expr / Expr({powers: scale}))))


def _scale(expr: Expr) -> Coefficient:
    """The common number of all coefficients; negative if they all are."""
    scale = content(expr)
    return -scale if all(coefficient < 0 for coefficient in expr.terms.values()) else scale


def _sums(expr: Expr) -> list[tuple[Factored, ...]]:
    """Sums whose product is ``expr``, which has no common factor."""
    inside, outside = _split(expr)
    if len(inside.terms) > 1 and outside.terms:
        lead = Expr({common(inside): _scale(inside)})
        shared = inside / lead
        others = outside.divided(shared)
        if others is not None and all(isinstance(c, int) for c in others.terms.values()):
            return [*_sums(shared), *_sums(lead + others)]
    return [tuple(_parts(expr))]


def _parts(expr: Expr) -> list[Factored]:
    """The summands: groups of terms that share an atom, then what is left."""
    inside, outside = _split(expr)
    if not inside.terms:
        return [Factored(expr.terms[m], m) for m in sorted(expr.terms, key=order, reverse=True)]
    return [factored(inside), *(_parts(outside) if outside.terms else ())]


def _split(expr: Expr) -> tuple[Expr, Expr]:
    """The terms with the atom that most terms share, and the rest; none and all if no two share one."""
    shared = Counter[Atom](atom for monomial in expr.terms for atom, exponent in monomial if exponent > 0)
    best = max(shared, key=lambda atom: (shared[atom], repr(atom)), default=None)
    if best is None or shared[best] < 2:
        return Expr({}), expr
    inside = Expr({m: c for m, c in expr.terms.items() if dict(m).get(best, 0) > 0})
    return inside, expr - inside
