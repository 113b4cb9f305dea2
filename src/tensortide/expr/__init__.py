"""Exact expressions in hyperparameters: arithmetic, reading, printing, fast evaluation.

>>> from tensortide.expr import parse, text
>>> text(parse("72*L*b*h**2*s + 12*L*b*h*s**2 + 6*b*h*s*v"))
'6*b*h*s*(2*L*(6*h + s) + v)'
"""

from __future__ import annotations

from tensortide.expr.atoms import maximum, minimum, nonnegative, power
from tensortide.expr.compiled import Compiled, compiled
from tensortide.expr.expr import Expr, as_expr, constant, symbol, total
from tensortide.expr.floors import ceil, ceil_ratio, floor, floor_ratio
from tensortide.expr.parse import parse, parse_condition
from tensortide.expr.show import latex, text, to_sympy
from tensortide.expr.size import Condition, Quotient, Size, computed, conditions, expr_of, sized

__all__ = [
    "Compiled",
    "Condition",
    "Expr",
    "Quotient",
    "Size",
    "as_expr",
    "ceil",
    "ceil_ratio",
    "compiled",
    "computed",
    "conditions",
    "constant",
    "expr_of",
    "floor",
    "floor_ratio",
    "latex",
    "maximum",
    "minimum",
    "nonnegative",
    "parse",
    "parse_condition",
    "power",
    "sized",
    "symbol",
    "text",
    "to_sympy",
    "total",
]
