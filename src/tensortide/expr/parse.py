"""Expressions from text: names (quoted if they are no identifiers), integers, arithmetic, floor, ceil, min and max;
and from plain lists."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

from tensortide.errors import ExpressionError
from tensortide.expr.atoms import KINDS, Kind, called, power
from tensortide.expr.expr import ONE, Atom, Expr, Monomial, Opaque, as_expr, constant, symbol
from tensortide.expr.size import Condition, Relation

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Expr]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_RELATIONS: dict[type[ast.cmpop], tuple[Relation, bool]] = {
    ast.Eq: ("==", False),
    ast.NotEq: ("!=", False),
    ast.GtE: (">=", False),
    ast.Gt: (">", False),
    ast.LtE: (">=", True),
    ast.Lt: (">", True),
}
"""Comparisons as relations; the sides of those that point the other way are swapped."""
_LONGEST = 1_000_000

T = TypeVar("T")


def parse(text: str) -> Expr:
    """The expression that ``text`` says. Raises ExpressionError with the place that is wrong."""
    return _parsed(text, "an expression", _read)


def parse_condition(text: str) -> Condition:
    """The condition that ``text`` says: ``hidden % heads == 0``, ``seq <= positions``. Raises ExpressionError."""
    return _parsed(text, "a condition", _condition)


def _parsed(text: str, what: str, read: Callable[[ast.expr, str], T]) -> T:
    try:
        if len(text) > _LONGEST:
            raise ExpressionError(f"{what} of {len(text)} characters is too long")
        return read(ast.parse(text.strip(), mode="eval").body, text)
    except SyntaxError as error:
        raise ExpressionError(f"cannot read {text!r} as {what}: {error.msg}") from None
    except (ArithmeticError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"cannot read {text!r} as {what}: {error}") from None


def _condition(node: ast.expr, text: str) -> Condition:
    match node:
        case ast.Compare(left=left, ops=[operation], comparators=[right]) if type(operation) in _RELATIONS:
            relation, swapped = _RELATIONS[type(operation)]
            difference = _read(left, text) - _read(right, text)
            return Condition(-difference if swapped else difference, relation)
    raise ExpressionError(f"cannot read {text!r} as a condition: write one comparison, like hidden % heads == 0")


def _read(node: ast.expr, text: str) -> Expr:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return constant(value)
        case ast.Name(id=name) | ast.Constant(value=str() as name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_read(operand, text)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _raised(_read(left, text), _read(right, text), text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_read(left, text), _read(right, text))
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as arguments, keywords=[]) if found := called(name):
            return _called(name, *found, arguments, text)
    raise ExpressionError(f"cannot read {ast.unparse(node)!r} in the expression {text!r}")


def _called(name: str, kind: Kind, make: Callable[..., Expr], arguments: list[ast.expr], text: str) -> Expr:
    if kind.arity is not None and len(arguments) != kind.arity:
        count = "one argument" if kind.arity == 1 else f"{kind.arity} arguments"
        raise ExpressionError(f"{name} takes {count}, in the expression {text!r}")
    if kind.of_ratio:
        match arguments[0]:
            case ast.BinOp(left=left, op=ast.Div(), right=right):  # a quotient that need not be a sum of terms
                return make(_read(left, text), _read(right, text))
        return make(_read(arguments[0], text), ONE)
    return make(*(_read(argument, text) for argument in arguments))


def _raised(base: Expr, exponent: Expr, text: str) -> Expr:
    number = exponent.value
    if isinstance(number, int) and abs(number) <= (64 if len(base.terms) > 1 or base.value is not None else 9999):
        return as_expr(base**number)
    bottom = base.value
    if isinstance(bottom, int) and bottom >= 2 and number is None:
        return power(bottom, exponent)
    raise ExpressionError(f"cannot read the power {base}**({exponent}) in the expression {text!r}")


# -- plain lists, for files: whatever the names of the symbols are ----------------------------------------


def to_plain(expr: Expr) -> list[Any]:
    """Terms ``[coefficient, [[atom, exponent], ...]]``; an atom is a symbol's name or ``[function, argument, ...]``."""
    return [[str(c), [[_plain_atom(atom), exponent] for atom, exponent in m]] for m, c in expr.terms.items()]


def _plain_atom(atom: Atom) -> Any:
    return atom if isinstance(atom, str) else [atom.name, *map(to_plain, atom.arguments)]


def from_plain(plain: Any) -> Expr:
    """The expression of ``to_plain``'s lists. Raises ValueError or TypeError for anything else."""
    terms: dict[Monomial, Fraction] = {}
    for coefficient, powers in plain:
        terms[tuple((_plain_to_atom(atom), int(exponent)) for atom, exponent in powers)] = Fraction(coefficient)
    return Expr(terms)


def _plain_to_atom(plain: Any) -> Atom:
    if isinstance(plain, str):
        return plain
    name, *arguments = plain
    if name not in KINDS:
        raise ValueError(f"{name!r} is no function of expressions")
    return Opaque(name, tuple(map(from_plain, arguments)))
