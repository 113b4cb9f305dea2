"""Composition of a total: its terms and their shares at a setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from tensortide.errors import ExpressionError
from tensortide.expr import Expr, constant, text
from tensortide.expr.atoms import KINDS
from tensortide.expr.expr import Opaque
from tensortide.formulas.formulas import Formulas

__all__ = ["Share", "shares"]


@dataclass(frozen=True, slots=True)
class Share:
    """A term of a total, its value at a setting and its part of the total."""

    term: str
    value: float
    share: float


def shares(formulas: Formulas, total: str, /, **at: int) -> tuple[Share, ...]:
    """Every term of a total at a setting, with its share of the total: largest first.

    A maximum stands for the argument that it is at the setting.
    """
    formulas.check(total, formulas.totals, "total")
    setting = formulas.setting(at)
    whole = formulas.evaluate(**at).get(total)
    if whole is None:
        raise ExpressionError(f"{total} does not hold at this setting: it needs {formulas.only[total][0]}")
    parts = [Expr({monomial: c}) for monomial, c in _opened(formulas.totals[total], setting).terms.items()]
    valued = [(text(part), _value(part, setting)) for part in parts]
    ranked = sorted(valued, key=lambda term: (-abs(term[1]), term[0]))
    return tuple(Share(shown, float(value), float(value / whole) if whole else 0.0) for shown, value in ranked)


def _opened(expr: Expr, setting: Mapping[str, int]) -> Expr:
    """The expression with the arguments that win in place of maxima and minima."""
    result = constant(0)
    for monomial, coefficient in expr.terms.items():
        term = constant(coefficient)
        for atom, exponent in monomial:
            base = Expr({((atom, 1),): 1})
            if isinstance(atom, Opaque) and (choose := KINDS[atom.name].choose):
                base = _opened(choose(atom.arguments, key=lambda argument: _value(argument, setting)), setting)
            term = term * base**exponent
        result = result + term
    return result


def _value(expr: Expr, setting: Mapping[str, int]) -> Fraction:
    return Fraction(expr.subs(setting).value or 0)
