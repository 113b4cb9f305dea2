"""Expressions as fast functions: Python source in factored form, compiled once, evaluated in microseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tensortide.expr.atoms import KINDS
from tensortide.expr.expr import Atom, Expr, Opaque, denominator
from tensortide.expr.factor import Factored, factored

Function: TypeAlias = Callable[..., list[int]]


@dataclass(frozen=True, eq=False, slots=True)
class Compiled:
    """A list of expressions that is evaluated at many bindings; see ``compiled``."""

    expressions: tuple[Expr, ...]
    symbols: tuple[str, ...]
    _function: Function

    def __call__(self, bindings: Mapping[str, int]) -> list[int]:
        """The values, in the order of the expressions.

        Raises KeyError for an unbound symbol, ArithmeticError where an exact division is not exact.
        """
        return self._function(*[bindings[name] for name in self.symbols])

    def arrays(self, bindings: Mapping[str, Any]) -> list[Any]:
        """The values at many bindings at once: numpy arrays of Python integers, so that nothing overflows."""
        import numpy as np

        arrays = np.broadcast_arrays(*(np.asarray(bindings[name], dtype=object) for name in self.symbols))
        if not arrays:
            return [np.asarray(value, dtype=object) for value in self._function()]
        points = zip(*(a.ravel().tolist() for a in arrays), strict=True)
        columns = zip(*(self._function(*point) for point in points), strict=True)
        return [np.array(column, dtype=object).reshape(arrays[0].shape) for column in columns]


def compiled(expressions: Iterable[Expr]) -> Compiled:
    """The expressions as one function of their symbols. Powers and opaque atoms that recur are computed once."""
    expressions = list(expressions)
    symbols = sorted({name for expr in expressions for name in expr.symbols})
    source = _Source({name: f"s{i}" for i, name in enumerate(symbols)})
    results = [source.exact(expr) for expr in expressions]
    names = ", ".join(source.names.values())
    lines = [f"def evaluate({names}):", *(f"    {line}" for line in source.lines), f"    return [{', '.join(results)}]"]
    space: dict[str, Any] = {"exact": _exact, **{name: kind.value for name, kind in KINDS.items()}}
    exec(compile("\n".join(lines), "<expressions>", "exec"), space)  # our own text: numbers and names s0, s1, ...
    return Compiled(tuple(expressions), tuple(symbols), space["evaluate"])


def _exact(numerator: int, denominator: int) -> int:
    quotient, remainder = divmod(numerator, denominator)
    if remainder:
        raise ArithmeticError(f"{numerator}/{denominator} is not a whole number: a division that must be exact is not")
    return quotient


class _Source:
    """Lines of a function's body. ``names`` are the symbols' variables."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.lines: list[str] = []
        self._known: dict[tuple[Atom, int], str] = {}

    def exact(self, expr: Expr) -> str:
        """Source of the value of ``expr``, over one common denominator if it has any."""
        below = denominator(expr)
        return self.sum_of(expr) if below == 1 else f"exact({self.sum_of(expr * below)}, {self.sum_of(below)})"

    def sum_of(self, expr: Expr) -> str:
        """Source of an expression without divisions."""
        return self._product(factored(expr))

    def _product(self, form: Factored) -> str:
        factors = [self._power(atom, exponent) for atom, exponent in form.powers]
        factors += [f"({' + '.join(map(self._product, parts))})" for parts in form.sums]
        if form.coefficient != 1 or not factors:
            factors.insert(0, f"({form.coefficient})" if form.coefficient < 0 else str(form.coefficient))
        return "*".join(factors)

    def _power(self, atom: Atom, exponent: int) -> str:
        if isinstance(atom, str) and exponent == 1:
            return self.names[atom]
        known = self._known.get((atom, exponent))
        if known is None:
            line = f"{self._power(atom, 1)}**{exponent}" if exponent > 1 else self._opaque(atom)
            known = self._known[atom, exponent] = f"t{len(self._known)}"
            self.lines.append(f"{known} = {line}")
        return known

    def _opaque(self, atom: Atom) -> str:
        assert isinstance(atom, Opaque)
        arguments, template = map(self.exact, atom.arguments), KINDS[atom.name].source
        return template.format(*arguments) if template else f"{atom.name}({', '.join(arguments)})"
