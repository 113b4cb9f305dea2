"""Shares of the terms of a total."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tensortide.errors import ExpressionError
from tensortide.expr import Condition, Expr, constant, text
from tensortide.expr.atoms import KINDS
from tensortide.expr.expr import Opaque
from tensortide.formulas.formulas import Formulas, shown, value_at


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
    setting = formulas.setting(at)
    formulas = formulas.piece(setting)
    formulas.check(total, formulas.totals, "total")
    whole = formulas.totals_at(setting).get(total)
    if whole is None:
        raise ExpressionError(
            f"{total} is not claimed at {shown(setting)}: it needs {_missed(formulas, total, setting)}"
        )
    parts = [Expr({monomial: c}) for monomial, c in _opened(formulas.totals[total], setting).terms.items()]
    valued = [(text(part), value_at(part, setting)) for part in parts]
    ranked = sorted(valued, key=lambda term: (-abs(term[1]), term[0]))
    return tuple(Share(term, float(value), float(value / whole) if whole else 0.0) for term, value in ranked)


def _missed(formulas: Formulas, total: str, setting: Mapping[str, int]) -> Condition:
    """The first condition of a total that does not hold at a setting."""
    return next(c for c in formulas.only[total] if not c.holds(value_at(c.expr, setting)))


def _opened(expr: Expr, setting: Mapping[str, int]) -> Expr:
    """The expression with the arguments that win in place of maxima and minima."""

    def opened(atom: Opaque) -> Expr | None:
        choose = KINDS[atom.name].choose
        won = choose and choose(atom.arguments, key=lambda argument: value_at(argument, setting))
        return won and _opened(won, setting)

    return with_atoms(expr, opened)


def with_atoms(expr: Expr, instead: Callable[[Opaque], Expr | None]) -> Expr:
    """The expression with other ones in place of its opaque atoms; None: the atom stays."""
    result = constant(0)
    for monomial, coefficient in expr.terms.items():
        term = constant(coefficient)
        for atom, exponent in monomial:
            base = instead(atom) if isinstance(atom, Opaque) else None
            term = term * (Expr({((atom, 1),): 1}) if base is None else base) ** exponent
        result = result + term
    return result
