"""Symbolic dimensions of a program: expressions as PyTorch writes them, and the values of their symbols."""

from __future__ import annotations

import ast
import difflib
import itertools
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from tensortide.errors import TraceError, WorkloadError
from tensortide.expr import Expr, as_expr, ceil_ratio, constant, floor_ratio, maximum, minimum, sized, symbol
from tensortide.expr.floors import ceil, floor
from tensortide.importers.textfile import shown

_LONGEST = 4096
"""Characters of an expression."""
_DEEPEST = 60
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": lambda *terms: reduce(operator.add, terms),
    "Mul": lambda *factors: reduce(operator.mul, factors),
    "FloorDiv": floor_ratio,
    "CleanDiv": floor_ratio,
    "CeilDiv": ceil_ratio,
    "IntTrueDiv": operator.truediv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "ModularIndexing": lambda base, divisor, modulus: floor_ratio(base, divisor) % modulus,
    "Max": maximum,
    "Min": minimum,
    "CeilToInt": ceil,
    "FloorToInt": floor,
    "TruncToInt": floor,
    "TruncToFloat": floor,
    "ToFloat": lambda value: value,
    "Identity": lambda value: value,
    "ceiling": ceil,
    "floor": floor,
}
_POWERS = ("Pow", "PowByNatural")
_LARGEST = 1 << 62


class Unreadable(ValueError):
    """An expression of a form that sizes do not have."""


def read_expression(text: str) -> Expr:
    """The expression that PyTorch writes, in its plain form (``(s0 + 1)//2``) or sympy's long one
    (``Mul(Integer(2), Symbol('s0', positive=True))``). Raises Unreadable."""
    if len(text) > _LONGEST:
        raise Unreadable(f"an expression of {len(text)} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the parser, about the text
            return _read(ast.parse(text.strip(), mode="eval").body, _DEEPEST)
    except (SyntaxError, ArithmeticError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise Unreadable(str(error)) from None


def _read(node: ast.expr, depth: int) -> Expr:
    if not depth:
        raise Unreadable("it is too deeply nested")
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool) and abs(value) < _LARGEST:
            return constant(value)
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_read(operand, depth - 1)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _raised(_read(left, depth - 1), _read(right, depth - 1))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return as_expr(_OPERATORS[type(op)](_read(left, depth - 1), _read(right, depth - 1)))
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str() as name)]):
            return symbol(name)
        case ast.Call(func=ast.Name(id="Integer"), args=[value], keywords=[]):
            return _read(value, depth - 1)
        case ast.Call(func=ast.Name(id="Rational"), args=[top, bottom], keywords=[]):
            return _read(top, depth - 1) / _read(bottom, depth - 1)
        case ast.Call(func=ast.Name(id=name), args=[left, right], keywords=[]) if name in _POWERS:
            return _raised(_read(left, depth - 1), _read(right, depth - 1))
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as arguments) if name in _FUNCTIONS:
            return as_expr(_FUNCTIONS[name](*(_read(argument, depth - 1) for argument in arguments)))
    raise Unreadable(f"{ast.unparse(node)[:60]!r} is none that sizes have")


def _raised(base: Expr, exponent: Expr) -> Expr:
    power = exponent.value
    if not isinstance(power, int) or abs(power) > 16 or len(base.terms) > 8:
        raise Unreadable(f"the power {power}")
    return base**power if power >= 0 else constant(1) / base**-power


class Symbols:
    """The symbols of a program's sizes with the values that they have here.

    ``ranges`` are the least and the largest value that the export allows, None where there is no limit.
    """

    def __init__(self, origin: str, ranges: Mapping[str, tuple[int | None, int | None]]) -> None:
        self.origin, self.ranges = origin, ranges
        self.values: dict[str, int] = {}
        self.where: dict[str, str] = {}
        """Of each symbol the input and its dimension that show it first."""
        self.guessed: list[str] = []
        self.unread: dict[str, int] = {}
        """Expressions that cannot be read, with the size that they are in the example."""
        self._names: dict[str, str] = {}
        self._read: dict[str, Expr | None] = {}

    def expression(self, text: str) -> Expr | None:
        """The expression that ``text`` says; None if it is unreadable."""
        if text not in self._read:
            try:
                self._read[text] = read_expression(text)
            except Unreadable:
                self._read[text] = None
        return self._read[text]

    def learn(self, text: str, hint: int | None, where: str = "") -> None:
        """Note the value that an expression has in the example, from which those of its symbols follow."""
        expr = self.expression(text)
        if expr is None:
            return
        if where and str(expr).isidentifier():
            self.where.setdefault(str(expr), where)
        missing = [name for name in sorted(expr.symbols) if name not in self.values]
        if hint is None or len(missing) != 1:
            return
        parts = expr.subs(self.values).coefficients(missing[0]) if not _opaque(expr) else {}
        slope, rest = parts.get(1), parts.get(0, constant(0))
        if slope is None or not set(parts) <= {0, 1} or slope.value is None or rest.value is None or not slope.value:
            return
        value = (hint - rest.value) / slope.value
        if value == int(value) and 0 <= value < _LARGEST:
            self.values[missing[0]] = int(value)

    def settle(
        self,
        given: Mapping[str, int],
        bind: Iterable[str],
        inputs: Mapping[str, Sequence[str]],
        bounds: Iterable[tuple[str, Callable[[], int]]],
    ) -> None:
        """Decide values and names: those ``given``, and of a symbol without an example the most that it can be.

        ``bind`` names dimensions of ``inputs``, whose sizes are texts. ``bounds`` are expressions with what they are at
        most. Raises WorkloadError for a value of a symbol that there is not, or that the program excludes.
        """
        self._name(bind, inputs)
        found = list(dict.fromkeys([*self.values, *self._mentioned()]))
        known = {name: old for old in found for name in (self.where.get(old), self._names.get(old), old) if name}
        for name, value in given.items():
            if name not in known:
                raise WorkloadError(self._no_such(name, found))
            for old in (old for old in found if name in (old, self.where.get(old), self._names.get(old))):
                self._require(old, value)
                self.values[old] = value
        limits: dict[str, Callable[[], int]] = {}
        for expr, limit in bounds:
            limits.setdefault(expr, limit)  # what follows may depend on it
        for old in (old for old in found if old not in self.values):
            self._guess(old, limits.get(old))

    def _mentioned(self) -> Iterator[str]:
        return (name for expr in self._read.values() if expr is not None for name in sorted(expr.symbols))

    def _guess(self, old: str, limit: Callable[[], int] | None) -> None:
        """Give a symbol that data decide the most that it can be, or 1 where nothing says that."""
        most = self.ranges.get(old, (None, None))[1]
        try:
            bound = limit() if limit is not None else most if most is not None and most < 1 << 31 else None
        except TraceError:  # it depends on a symbol that comes later
            bound = None
        self.values[old] = bound or 1
        how = "the most that it can be" if bound else "a guess"
        self.guessed.append(f"{old} = {self.values[old]:,}, {how}: data decide it (--set {old}=VALUE gives it)")

    def _name(self, bind: Iterable[str], inputs: Mapping[str, Sequence[str]]) -> None:
        for pattern, names in named_dims(bind):
            found = {name: dims for name, dims in inputs.items() if pattern.fullmatch(name)}
            if not found:
                raise WorkloadError(
                    f"{self.origin}: --bind {pattern.pattern}: no input of that name; there are: {', '.join(inputs)}"
                )
            for (name, dims), (place, new) in itertools.product(found.items(), enumerate(names)):
                old = str(self.expression(dims[place])) if place < len(dims) else ""
                if new != "_" and not old.isidentifier():
                    raise WorkloadError(f"{self.origin}: dimension {place} of {name} is {old or 'none'}, no symbol")
                if new != "_":
                    self._rename(old, new)

    def _rename(self, old: str, new: str) -> None:
        """Call the symbol ``old`` by another name. Raises WorkloadError if two differ in value and share one."""
        for other in (other for other, name in self._names.items() if name == new and other != old):
            if self.values.get(other) != self.values.get(old):
                raise WorkloadError(f"{self.origin}: {new} would be two sizes, {other} and {old}, that differ")
        self._names[old] = new

    def said(self, given: Mapping[str, int]) -> list[str]:
        """A note of the symbols that have the values of the example."""
        kept = [name for name, value in self.shown.items() if name not in given and value]
        kept = [name for name in kept if not any(text.startswith(f"{name} = ") for text in self.guessed)]
        values = ", ".join(f"{name} = {self.shown[name]:,}" for name in sorted(kept))
        notes = [f"sizes are those of the example that it was exported with: {values} (--set)"] if values else []
        unread = [f"the size {shown(text)} stays {size:,}, as in its example" for text, size in self.unread.items()]
        return [*notes, *unread]

    def size(self, text: str, hint: int | None = None) -> int:
        """The size that an expression is now. Raises TraceError for one that is none."""
        expr = self.expression(text)
        if expr is None:
            if hint is None:
                raise TraceError(f"{self.origin}: the size {shown(text)} cannot be read")
            self.unread[text] = hint
            return hint
        try:
            value = expr.evaluate(self.values)
        except (ArithmeticError, ValueError, KeyError) as error:
            raise TraceError(f"{self.origin}: the size {shown(text)} has no value: {error}") from None
        named = expr.subs({old: symbol(new) for old, new in self._names.items() if old in expr.symbols})
        return sized(named, value)

    @property
    def shown(self) -> dict[str, int]:
        """The values of all symbols by the names that they have in the graph."""
        return {self._names.get(old, old): value for old, value in self.values.items()}

    def _require(self, old: str, value: int) -> None:
        least, most = self.ranges.get(old, (None, None))
        if (least is not None and least > 2 and value < least) or (most is not None and value > most):
            raise WorkloadError(
                f"{self.origin}: {self._names.get(old, old)} = {value} is none that the program was exported for: "
                f"it may be {least if least is not None else 0} to {most if most is not None else 'any number'}"
            )

    def _no_such(self, name: str, found: list[str]) -> str:
        listed = ", ".join(
            f"{self._names.get(old, old)} ({self.where[old]})" if old in self.where else self._names.get(old, old)
            for old in found
        )
        near = difflib.get_close_matches(name, [*found, *self.where.values(), *self._names.values()], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"{self.origin} has no symbol {name!r}{hint}\nIts symbols are: {listed or 'none'}." + (
            "\n--bind INPUT=name,name names those of an input's dimensions." if found else ""
        )


def _opaque(expr: Expr) -> bool:
    return any(not isinstance(atom, str) for atom in expr.atoms)


def named_dims(texts: Iterable[str]) -> list[tuple[re.Pattern[str], list[str]]]:
    """Patterns of inputs with the names of their dimensions, of ``PATTERN=name,name`` texts; ``_`` names none.

    Raises WorkloadError for a text of another form.
    """
    found: list[tuple[re.Pattern[str], list[str]]] = []
    for text in texts:
        pattern, equals, dims = text.rpartition("=")
        names = [name.strip() for name in dims.split(",")]
        try:
            made = re.compile(pattern)
        except re.error as error:
            raise WorkloadError(f"--bind {text!r}: {error}") from None
        if not (pattern and equals and all(name.isidentifier() for name in names)):
            raise WorkloadError(f"--bind takes INPUT=name,name,..., not {text!r}")
        found.append((made, names))
    return found
