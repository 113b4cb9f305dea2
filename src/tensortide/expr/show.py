"""Expressions as text, as LaTeX, as sympy objects."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from tensortide.expr.atoms import KINDS, raised
from tensortide.expr.expr import Atom, Coefficient, Expr, Monomial, Opaque, order
from tensortide.expr.factor import Factored, factored
from tensortide.expr.floors import turned

if TYPE_CHECKING:
    import sympy


class Style(NamedTuple):
    """A notation: a power of an atom, the sign between factors, a sum that is a factor, a fraction."""

    power: Callable[[Atom, int], str]
    times: str
    factor: str
    ratio: Callable[[list[str], list[str]], str]


def expanded(expr: Expr) -> str:
    """Sum of terms, highest degree first: ``3*b*h + h/2 - 1``."""
    terms = [Factored(expr.terms[m], m) for m in sorted(expr.terms, key=order, reverse=True)]
    return _sum(terms, _PLAIN) if terms else "0"


def text(expr: Expr) -> str:
    """Factored: ``6*b*h*s*(2*L*(6*h + s) + v)``. ``parse`` reads it back."""
    return _shown(factored(expr), _PLAIN)


def latex(expr: Expr, names: Mapping[str, str] | None = None) -> str:
    """The factored form in LaTeX math. ``names`` says how symbols are written (default: upright names)."""
    return _shown(factored(expr), Style(_LatexPowers(names or {}), _LATEX_TIMES, r"\left({}\right)", _fraction))


def _shown(form: Factored, style: Style) -> str:
    return _sum(form.sums[0], style) if form.is_sum else _product(form, style)


def _sum(parts: Iterable[Factored], style: Style) -> str:
    """The sum of ``parts``, with one that is not negative in front, if there is one."""
    parts = list(parts)
    first = next((part for part in parts if _number(part) > 0), parts[0])
    signed = ((_number(part) < 0, _product(part, style)) for part in parts if part is not first)
    return _product(first, style) + "".join(f" - {t[1:]}" if negative else f" + {t}" for negative, t in signed)


def _product(form: Factored, style: Style) -> str:
    number = _number(form)
    above = [style.power(atom, e) for atom, e in form.powers if e > 0]
    below = [style.power(atom, -e) for atom, e in form.powers if e < 0]
    above += [style.factor.format(_sum(parts, style)) for parts in form.sums]
    if abs(number.numerator) != 1 or not above:
        above.insert(0, str(abs(number.numerator)))
    if number.denominator != 1:
        below.insert(0, str(number.denominator))
    return ("-" if number < 0 else "") + (style.ratio(above, below) if below else style.times.join(above))


def _number(form: Factored) -> Fraction:
    """The coefficient with the sign that it is written with."""
    return Fraction(-form.coefficient if turned(form.powers) else form.coefficient)


# -- plain text -------------------------------------------------------------------------------------


def _power(atom: Atom, exponent: int) -> str:
    return _atom(atom) if exponent == 1 else f"{_atom(atom)}**{exponent}"


def _atom(atom: Atom) -> str:
    if isinstance(atom, str):  # names that a parser would not take for names are quoted
        return atom if atom.isascii() and atom.isidentifier() and not keyword.iskeyword(atom) else repr(atom)
    return KINDS[atom.name].text(_operand, *atom.arguments)


def _operand(expr: Expr, tight: str) -> str:
    """Text of an argument: in parentheses if it is a sum or has an operator of ``tight``, if that has any."""
    shown = text(expr)
    lone = len(expr.terms) == 1 and len(atoms := tuple(expr.atoms)) == 1 and expr == Expr({((atoms[0], 1),): 1})
    return f"({shown})" if tight and not lone and any(sign in shown for sign in (" ", *tight)) else shown


def _slashed(above: list[str], below: list[str]) -> str:
    bottom = "*".join(below)
    return f"{'*'.join(above)}/{bottom}" if len(below) == 1 else f"{'*'.join(above)}/({bottom})"


_PLAIN = Style(_power, "*", "({})", _slashed)


# -- LaTeX ------------------------------------------------------------------------------------------


_LATEX_TIMES = r" \, "


class _LatexPowers:
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def __call__(self, atom: Atom, exponent: int) -> str:
        if isinstance(atom, Opaque):
            return KINDS[atom.name].latex(lambda expr, tight: latex(expr, self._names), exponent, *atom.arguments)
        escaped = re.sub(r"([_#$%&{}~^\\])", r"\\\1", atom)
        return raised(self._names.get(atom) or (atom if len(atom) == 1 else rf"\mathrm{{{escaped}}}"), exponent)


def _fraction(above: list[str], below: list[str]) -> str:
    if len(above) == 1 and above[0].startswith(r"\left("):  # a sum that is the whole numerator
        above = [above[0].removeprefix(r"\left(").removesuffix(r"\right)")]
    return rf"\frac{{{_LATEX_TIMES.join(above)}}}{{{_LATEX_TIMES.join(below)}}}"


# -- sympy ------------------------------------------------------------------------------------------


def to_sympy(expr: Expr) -> sympy.Expr:
    """The expression as a sympy object in positive integer symbols. Needs sympy."""
    import sympy

    symbols = {name: sympy.Symbol(name, integer=True, positive=True) for name in expr.symbols}
    return _sympy(expr, symbols, sympy)


def _sympy(expr: Expr, symbols: Mapping[str, sympy.Symbol], sympy: Any) -> Any:
    def atom(value: Atom) -> Any:
        if isinstance(value, str):
            return symbols[value]
        arguments = [_sympy(a, symbols, sympy) for a in value.arguments]
        return KINDS[value.name].sympy(sympy, *arguments)

    def term(monomial: Monomial, coefficient: Coefficient) -> Any:
        number = sympy.Rational(*Fraction(coefficient).as_integer_ratio())
        return sympy.Mul(number, *(atom(a) ** e for a, e in monomial))

    return sympy.Add(*(term(m, c) for m, c in expr.terms.items()))
