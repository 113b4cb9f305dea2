"""Expressions from text: names, integers, ``+ - * / // ** %``, ``floor``, ``ceil``, ``min`` and ``max``."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from tensortide.errors import ExpressionError
from tensortide.expr.atoms import ceil, floor, maximum, minimum, power
from tensortide.expr.expr import Expr, as_expr, constant, symbol

__all__ = ["parse"]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Expr]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_CALLS: dict[str, Callable[..., Expr]] = {"floor": floor, "ceil": ceil, "max": maximum, "min": minimum}
_LONGEST = 100_000


def parse(text: str) -> Expr:
    """The expression that ``text`` says. Raises ExpressionError with the place that is wrong."""
    try:
        if len(text) > _LONGEST:
            raise ExpressionError(f"an expression of {len(text)} characters is too long")
        return _read(ast.parse(text.strip(), mode="eval").body, text)
    except SyntaxError as error:
        raise ExpressionError(f"cannot read {text!r} as an expression: {error.msg}") from None
    except (ArithmeticError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"cannot read {text!r} as an expression: {error}") from None


def _read(node: ast.expr, text: str) -> Expr:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return constant(value)
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_read(operand, text)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _raised(_read(left, text), _read(right, text), text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_read(left, text), _read(right, text))
        case ast.Call(func=ast.Name(id=name), args=[first, *rest], keywords=[]) if name in _CALLS:
            if rest and name in ("floor", "ceil"):
                raise ExpressionError(f"{name} takes one argument, in {text!r}")
            # a ratio inside floor or ceil need not be a sum of terms
            if name in ("floor", "ceil") and isinstance(first, ast.BinOp) and isinstance(first.op, ast.Div):
                top, bottom = _read(first.left, text), _read(first.right, text)
                return top // bottom if name == "floor" else -(-top // bottom)
            return _CALLS[name](*(_read(argument, text) for argument in (first, *rest)))
    raise ExpressionError(f"cannot read {ast.unparse(node)!r} in the expression {text!r}")


def _raised(base: Expr, exponent: Expr, text: str) -> Expr:
    number = exponent.value
    if isinstance(number, int) and abs(number) <= 64:
        return as_expr(base**number)
    bottom = base.value
    if isinstance(bottom, int) and bottom >= 2 and number is None:
        return power(bottom, exponent)
    raise ExpressionError(f"cannot read the power {base}**({exponent}) in the expression {text!r}")
