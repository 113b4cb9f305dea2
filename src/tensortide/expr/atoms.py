"""The kinds of opaque atoms: one table with a row per kind, and the folding of minima, maxima, powers and roots.

An opaque atom is a function of expressions with an integer value. Everything asked about it is a column of its row:
how it folds, prints, evaluates, compiles, which sign it has, how it grows. A new atom is one row.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from tensortide.expr.expr import (
    UNIT,
    Coefficient,
    Expr,
    Monomial,
    Number,
    Opaque,
    as_expr,
    constant,
    opaque,
    order,
    symbol,
)
from tensortide.expr.floors import FLOOR, ceil_ratio, floor_ratio, is_turned, written

MAX, MIN, POWER, ISQRT, BITS = "max", "min", "power", "isqrt", "bits"


def power(base: int, exponent: Number) -> Expr:
    """``base**exponent`` for a number ``base`` of at least 2."""
    exponent = as_expr(exponent)
    shift = exponent.terms.get(UNIT, 0)
    if not isinstance(shift, int):
        shift = 0
    varying = exponent - shift
    scale = constant(Fraction(base) ** shift)
    if varying.value is not None:
        return scale * _whole_power(base, varying.value)
    times = next(iter(varying.terms.values()))
    if len(varying.terms) == 1 and isinstance(times, int):
        return scale * opaque(POWER, (constant(base), varying / times)) ** times
    return scale * opaque(POWER, (constant(base), varying))


def _whole_power(base: int, exponent: Coefficient) -> int:
    """``base**exponent`` where that is whole. Raises ArithmeticError where it is not."""
    if not isinstance(exponent, int) or exponent < 0:
        raise ArithmeticError(f"{base}**({exponent}) is not a whole number")
    return int(base**exponent)


def isqrt(value: Number) -> Expr:
    """The square root of ``value``, rounded down."""
    expr = as_expr(value)
    return opaque(ISQRT, (expr,)) if expr.value is None else constant(math.isqrt(int(expr.value)))


def bits(value: Number) -> Expr:
    """The number of binary digits of ``value``: the smallest n with ``2**n > value``."""
    expr = as_expr(value)
    return opaque(BITS, (expr,)) if expr.value is None else constant(int(expr.value).bit_length())


def maximum(*values: Number) -> Expr:
    """The largest of ``values``; those that are provably never the largest are left out."""
    return _extreme(MAX, values, nonnegative)


def minimum(*values: Number) -> Expr:
    """The smallest of ``values``; those that are provably never the smallest are left out."""
    return _extreme(MIN, values, lambda difference: nonnegative(-difference))


def _extreme(name: str, values: Iterable[Number], beats: Callable[[Expr], bool]) -> Expr:
    flat: list[Expr] = []
    for value in map(as_expr, values):
        atom = _single(value)
        flat += atom.arguments if atom is not None and atom.name == name else [value]
    kept: list[Expr] = []
    for candidate in flat:
        if isinstance(candidate.value, Fraction):
            raise ArithmeticError(f"{name} of {candidate}, which is not a whole number")
        if any(beats(other - candidate) for other in kept):
            continue
        kept = [other for other in kept if not beats(candidate - other)] + [candidate]
    if len(kept) == 1:
        return kept[0]
    return opaque(name, tuple(sorted(kept, key=str)))


def alternatives(expr: Expr) -> tuple[Expr, ...]:
    """The expressions of which ``expr`` is the maximum or minimum; itself if it is none."""
    atom = _single(expr)
    return atom.arguments if atom is not None and KINDS[atom.name].choose else (expr,)


def _single(expr: Expr) -> Opaque | None:
    """The opaque atom that the expression is, if it is one."""
    if len(expr.terms) == 1:
        ((monomial, coefficient),) = expr.terms.items()
        if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1 and isinstance(monomial[0][0], Opaque):
            return monomial[0][0]
    return None


def nonnegative(expr: Expr) -> bool:
    """Prove that the expression is at least 0 wherever its symbols are at least 1.

    Every term with a negative coefficient must be covered by positive terms that are its multiples (``h^2 >= h``).
    A sufficient test, not a necessary one.
    """
    opaques = [atom for atom in expr.atoms if isinstance(atom, Opaque)]
    if raised_up := {atom: -symbol(repr(atom)) for atom in opaques if is_turned(atom) and _at_least_one(atom)}:
        return nonnegative(replaced(expr, raised_up))
    if not opaques:
        if sum(expr.terms.values()) < 0:
            return False  # where every symbol is 1
    elif not all(KINDS[atom.name].nonnegative(*atom.arguments) for atom in opaques):
        return False
    spare = {m: c for m, c in expr.terms.items() if c > 0}
    for monomial, coefficient in sorted(expr.terms.items(), key=lambda term: order(term[0])):
        owed = max(-coefficient, 0)
        for larger in sorted(spare, key=order):
            if owed and _covers(larger, monomial):
                used = min(owed, spare[larger])
                spare[larger] -= used
                owed -= used
        if owed:
            return False
    return True


def _at_least_one(atom: Opaque) -> bool:
    """Return whether the ``ceil`` that an atom is but for the sign is at least 1, as a symbol is."""
    top, bottom = atom.arguments
    return nonnegative(-top - 1) and nonnegative(bottom - 1)


def _covers(larger: Monomial, smaller: Monomial) -> bool:
    """Tell whether ``larger >= smaller`` wherever symbols are at least 1 (other atoms may be 0)."""
    a, b = dict(larger), dict(smaller)
    return all(
        a.get(atom, 0) >= b.get(atom, 0) and (isinstance(atom, str) or a.get(atom, 0) == b.get(atom, 0))
        for atom in a.keys() | b.keys()
    )


Show: TypeAlias = Callable[[Expr, str], str]
"""Writes an argument: in parentheses if it is a sum or has an operator of the second argument; ``ALONE``: as it is."""
ALONE = ""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A row of the table. Functions take the arguments of an atom, as expressions unless said otherwise.

    ``fold`` is the atom, simplified: a number where the arguments are. ``value`` is the same of numbers; ``source`` is
    a template of Python text for it (default: a call). ``calls`` are the names under which ``parse`` reads it, with
    functions of what is written there: ``arity`` arguments (None: one or more), or, ``of_ratio``, the two sides of one
    quotient.
    ``text`` and ``latex`` write it (``latex`` with an exponent), ``sympy`` makes the object of that library.
    ``nonnegative`` and ``rises`` are proofs that it is at least 0, and that it never falls as a symbol grows, given a
    proof for expressions. ``leading`` is an expression without the atom that has the same leading term, None if there
    is none. ``choose`` picks the argument that is the value (``max``). ``exponential`` atoms outgrow every power
    (but see ``is_exponential``).
    """

    fold: Callable[..., Expr]
    value: Callable[..., int]
    text: Callable[..., str]
    latex: Callable[..., str]
    sympy: Callable[..., Any]
    nonnegative: Callable[..., bool]
    rises: Callable[..., bool]
    source: str = ""
    calls: Mapping[str, Callable[..., Expr]] = field(default_factory=dict)
    arity: int | None = None
    of_ratio: bool = False
    leading: Callable[..., Expr | None] = lambda *arguments: None
    choose: Callable[..., Expr] | None = None
    exponential: bool = False


def _power_of(base: Expr, exponent: Expr) -> Expr:
    number, times = base.value, exponent.value
    assert isinstance(number, int)
    return power(number, exponent) if times is None else constant(_whole_power(number, times))


def _floor_text(show: Show, top: Expr, bottom: Expr) -> str:
    top, bottom, name = written(top, bottom)
    return f"{name}({show(top, '/')}/{show(bottom, '*/')})"


def _floor_latex(show: Show, exponent: int, top: Expr, bottom: Expr) -> str:
    top, bottom, name = written(top, bottom)
    return raised(rf"\left\l{name} \frac{{{show(top, ALONE)}}}{{{show(bottom, ALONE)}}} \right\r{name}", exponent)


def raised(latex: str, exponent: int) -> str:
    """LaTeX of a power."""
    return latex if exponent == 1 else f"{latex}^{{{exponent}}}"


def _extreme_kind(name: str, **columns: Any) -> Kind:
    """The row of a maximum or minimum."""
    return Kind(
        text=lambda show, *parts: f"{name}({', '.join(show(part, ALONE) for part in parts)})",
        latex=lambda show, exponent, *parts: raised(
            rf"\{name}\left({', '.join(show(part, ALONE) for part in parts)}\right)", exponent
        ),
        rises=lambda rises, symbol, *parts: all(map(rises, parts)),
        **columns,
    )


KINDS: dict[str, Kind] = {
    FLOOR: Kind(
        fold=floor_ratio,
        value=operator.floordiv,
        source="({})//({})",
        calls={"floor": floor_ratio, "ceil": ceil_ratio},
        arity=1,
        of_ratio=True,
        text=_floor_text,
        latex=_floor_latex,
        sympy=lambda sympy, top, bottom: sympy.floor(top / bottom),
        nonnegative=lambda top, bottom: nonnegative(top) and nonnegative(bottom),
        rises=lambda rises, symbol, top, bottom: symbol not in bottom.symbols and nonnegative(bottom) and rises(top),
        leading=lambda top, bottom: top.divided(bottom),
    ),
    MAX: _extreme_kind(
        MAX,
        fold=maximum,
        value=max,
        choose=max,
        calls={MAX: maximum},
        sympy=lambda sympy, *parts: sympy.Max(*parts),
        nonnegative=lambda *parts: any(map(nonnegative, parts)),
    ),
    MIN: _extreme_kind(
        MIN,
        fold=minimum,
        value=min,
        choose=min,
        calls={MIN: minimum},
        sympy=lambda sympy, *parts: sympy.Min(*parts),
        nonnegative=lambda *parts: all(map(nonnegative, parts)),
    ),
    POWER: Kind(
        fold=_power_of,
        value=_whole_power,
        text=lambda show, base, exponent: f"({show(base, ALONE)}**{show(exponent, '*/')})",
        latex=lambda show, times, base, exponent: f"{show(base, ALONE)}^{{{show(exponent * times, ALONE)}}}",
        sympy=lambda sympy, base, exponent: base**exponent,
        nonnegative=lambda base, exponent: True,
        rises=lambda rises, symbol, base, exponent: rises(exponent),
        exponential=True,
    ),
    ISQRT: Kind(
        fold=isqrt,
        value=math.isqrt,
        calls={ISQRT: isqrt},
        arity=1,
        text=lambda show, square: f"{ISQRT}({show(square, ALONE)})",
        latex=lambda show, exponent, square: raised(
            rf"\left\lfloor \sqrt{{{show(square, ALONE)}}} \right\rfloor", exponent
        ),
        sympy=lambda sympy, square: sympy.floor(sympy.sqrt(square)),
        nonnegative=lambda square: True,
        rises=lambda rises, symbol, square: rises(square),
    ),
    BITS: Kind(
        fold=bits,
        value=int.bit_length,
        calls={BITS: bits},
        arity=1,
        text=lambda show, number: f"{BITS}({show(number, ALONE)})",
        latex=lambda show, exponent, number: raised(
            rf"\left\lceil \log_2 \left({show(number + 1, ALONE)}\right) \right\rceil", exponent
        ),
        sympy=lambda sympy, number: sympy.ceiling(sympy.log(number + 1, 2)),
        nonnegative=lambda number: True,
        rises=lambda rises, symbol, number: rises(number),
    ),
}
"""The kinds by name."""


def is_exponential(atom: Opaque) -> bool:
    """Return whether an atom outgrows every power of its symbols: ``2**n`` does, ``2**bits(n)`` does not."""
    inside = {part for argument in atom.arguments for part in argument.atoms}
    counts = all(isinstance(part, Opaque) and part.name == BITS for part in inside)
    return KINDS[atom.name].exponential and not counts


def replaced(expr: Expr, values: Mapping[Opaque, Expr]) -> Expr:
    """The expression with ``values`` in the places of opaque atoms, of their arguments too."""
    if not any(isinstance(atom, Opaque) for atom in expr.atoms):
        return expr
    result = constant(0)
    for monomial, coefficient in expr.terms.items():
        term = constant(coefficient)
        for atom, exponent in monomial:
            if isinstance(atom, Opaque):
                known = values.get(atom)
                base = known if known is not None else _refolded(atom, values)
                term = term * base**exponent if exponent > 0 else term / base**-exponent
            else:
                term = term * Expr({((atom, exponent),): 1})
        result = result + term
    return result


def _refolded(atom: Opaque, values: Mapping[Opaque, Expr]) -> Expr:
    parts = [replaced(part, values) for part in atom.arguments]
    return Expr({((atom, 1),): 1}) if tuple(parts) == atom.arguments else KINDS[atom.name].fold(*parts)


def called(name: str) -> tuple[Kind, Callable[..., Expr]] | None:
    """The kind that ``parse`` reads under ``name``, and the function of what is written; None if there is none."""
    return next(((kind, kind.calls[name]) for kind in KINDS.values() if name in kind.calls), None)
