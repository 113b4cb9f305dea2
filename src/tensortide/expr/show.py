"""Expressions as text, as LaTeX, as sympy objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tensortide.expr.expr import Coefficient, Expr, Monomial, Opaque, order
from tensortide.expr.factor import Factored, factored

if TYPE_CHECKING:
    import sympy  # type: ignore[import-untyped]

__all__ = ["expanded", "latex", "text", "to_sympy"]

Atomic = Callable[[str, int], str]


def expanded(expr: Expr) -> str:
    """Sum of terms, highest degree first: ``3*b*h + h/2 - 1``."""
    terms = [Factored(expr.terms[m], m) for m in sorted(expr.terms, key=order, reverse=True)]
    return _sum(terms) if terms else "0"


def text(expr: Expr) -> str:
    """Factored: ``6*b*h*s*(2*L*(6*h + s) + v)``. ``parse`` reads it back."""
    form = factored(expr)
    return _sum(form.parts) if _bare(form) else _product(form)


def _bare(form: Factored) -> bool:
    """Whether the form is nothing but a sum, which needs no parentheses where it stands alone."""
    return bool(form.parts) and form.coefficient == 1 and not form.powers


def _leading(parts: Iterable[Factored]) -> list[Factored]:
    """The parts with one that is not negative in front, if there is one."""
    parts = list(parts)
    first = next((part for part in parts if part.coefficient > 0), parts[0])
    return [first, *(part for part in parts if part is not first)]


def _sum(parts: Iterable[Factored]) -> str:
    joined = ""
    for part in _leading(parts):
        term = _product(part)
        if not joined:
            joined = term
        else:
            joined += f" - {term[1:]}" if term.startswith("-") else f" + {term}"
    return joined


def _product(form: Factored) -> str:
    number = Fraction(form.coefficient)
    above = [_power(_atom(atom), e) for atom, e in form.powers if e > 0]
    below = [_power(_atom(atom), -e) for atom, e in form.powers if e < 0]
    if form.parts:
        above.append(f"({_sum(form.parts)})")
    if abs(number.numerator) != 1 or not above:
        above.insert(0, str(abs(number.numerator)))
    if number.denominator != 1:
        below.insert(0, str(number.denominator))
    sign = "-" if number < 0 else ""
    return sign + "*".join(above) + "".join(f"/{factor}" for factor in below)


def _power(base: str, exponent: int) -> str:
    return base if exponent == 1 else f"{base}**{exponent}"


def _atom(atom: str | Opaque) -> str:
    if isinstance(atom, str):
        return atom
    if atom.name == "power":
        return f"({text(atom.arguments[0])}**{_operand(atom.arguments[1], '*/')})"
    if atom.name == "floor":
        top, bottom, name = _rounding(atom)
        return f"{name}({_operand(top, '/')}/{_operand(bottom, '*/')})"
    return f"{atom.name}({', '.join(map(text, atom.arguments))})"


def _rounding(atom: Opaque) -> tuple[Expr, Expr, str]:
    """``floor((n + k - 1)/k)`` reads ``ceil(n/k)``."""
    top, bottom = atom.arguments
    raised = top - bottom + 1
    if bottom.value is not None and () in top.terms and () not in raised.terms:
        return raised, bottom, "ceil"
    return top, bottom, "floor"


def _operand(expr: Expr, tight: str) -> str:
    """Text of an operand: in parentheses if it is a sum or has an operator of ``tight``."""
    shown = text(expr)
    return f"({shown})" if any(sign in shown for sign in (" ", "**", *tight)) else shown


# -- LaTeX ------------------------------------------------------------------------------------------


def latex(expr: Expr, names: Mapping[str, str] | None = None) -> str:
    """The factored form in LaTeX math. ``names`` says how symbols are written (default: upright names)."""
    form = factored(expr)
    return _latex_sum(form.parts, names or {}) if _bare(form) else _latex_product(form, names or {})


def _latex_sum(parts: Iterable[Factored], names: Mapping[str, str]) -> str:
    joined = ""
    for part in _leading(parts):
        term = _latex_product(part, names)
        if not joined:
            joined = term
        else:
            joined += f" - {term[1:]}" if term.startswith("-") else f" + {term}"
    return joined


def _latex_product(form: Factored, names: Mapping[str, str]) -> str:
    number = Fraction(form.coefficient)
    above = [_latex_power(_latex_atom(atom, names), e) for atom, e in form.powers if e > 0]
    below = [_latex_power(_latex_atom(atom, names), -e) for atom, e in form.powers if e < 0]
    if form.parts:
        above.append(rf"\left({_latex_sum(form.parts, names)}\right)")
    if abs(number.numerator) != 1 or not above:
        above.insert(0, str(abs(number.numerator)))
    if number.denominator != 1:
        below.insert(0, str(number.denominator))
    shown = r" \, ".join(above)
    if below:
        shown = rf"\frac{{{shown}}}{{{' '.join(below)}}}"
    return ("-" if number < 0 else "") + shown


def _latex_power(base: str, exponent: int) -> str:
    return base if exponent == 1 else f"{base}^{{{exponent}}}"


def _latex_atom(atom: str | Opaque, names: Mapping[str, str]) -> str:
    if isinstance(atom, str):
        escaped = atom.replace("_", r"\_")
        return names.get(atom) or (atom if len(atom) == 1 else rf"\mathrm{{{escaped}}}")
    if atom.name == "power":
        return f"{latex(atom.arguments[0], names)}^{{{latex(atom.arguments[1], names)}}}"
    if atom.name == "floor":
        top, bottom, name = _rounding(atom)
        return rf"\left\l{name} \frac{{{latex(top, names)}}}{{{latex(bottom, names)}}} \right\r{name}"
    return rf"\{atom.name}\left({', '.join(latex(a, names) for a in atom.arguments)}\right)"


# -- sympy ------------------------------------------------------------------------------------------


def to_sympy(expr: Expr) -> sympy.Expr:
    """The expression as a sympy object in positive integer symbols. Needs sympy."""
    import sympy

    symbols = {name: sympy.Symbol(name, integer=True, positive=True) for name in expr.symbols}
    return _sympy(expr, symbols, sympy)


def _sympy(expr: Expr, symbols: Mapping[str, sympy.Symbol], sympy: Any) -> Any:
    def atom(value: str | Opaque) -> Any:
        if isinstance(value, str):
            return symbols[value]
        arguments = [_sympy(a, symbols, sympy) for a in value.arguments]
        if value.name == "floor":
            return sympy.floor(arguments[0] / arguments[1])
        if value.name == "power":
            return arguments[0] ** arguments[1]
        return (sympy.Max if value.name == "max" else sympy.Min)(*arguments)

    def term(monomial: Monomial, coefficient: Coefficient) -> Any:
        number = sympy.Rational(*Fraction(coefficient).as_integer_ratio())
        return sympy.Mul(number, *(atom(a) ** e for a, e in monomial))

    return sympy.Add(*(term(m, c) for m, c in expr.terms.items()))
