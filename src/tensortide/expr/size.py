"""Sizes that remember where they come from: integers that carry an exact expression through plain Python arithmetic.

A cost rule is plain arithmetic on integers. Called with Sizes it computes the number it always did and, beside it,
the expression of that number in hyperparameters. Anything but arithmetic (``range(n)``, ``bit_length``) drops the
expression, never the number. A comparison is answered by the numbers and is remembered as a condition under which
the expression holds.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, TypeAlias

from tensortide.expr.atoms import nonnegative
from tensortide.expr.expr import Expr, constant
from tensortide.expr.floors import quotients
from tensortide.expr.show import text

Relation: TypeAlias = Literal["==", "!=", ">=", ">"]
_HOLDS = {"==": operator.eq, "!=": operator.ne, ">=": operator.ge, ">": operator.gt}


class Condition(NamedTuple):
    """``expr relation 0``: something a traced computation relied on."""

    expr: Expr
    relation: Relation

    def __str__(self) -> str:
        """Readable: the number on the right."""
        offset = self.expr.terms.get((), 0)
        if not isinstance(offset, int) or len(self.expr.terms) == 1:
            offset = 0
        left = self.expr - offset
        if self.relation in (">=", ">") and left.terms and all(c < 0 for c in left.terms.values()):
            return f"{text(-left)} {self.relation.replace('>', '<')} {offset}"
        return f"{text(left)} {self.relation} {-offset}"

    @property
    def divisor(self) -> tuple[Expr, Expr] | None:
        """``(d, n)`` if it says that ``d`` divides ``n``: ``n - d*floor(n/d) == 0``."""
        for top, bottom in quotients(self.expr) if self.relation == "==" else ():
            if self.expr in (top % bottom, -(top % bottom)):
                return bottom, top
        return None

    def holds(self, value: int) -> bool:
        """Tell whether it holds where ``expr`` is ``value``."""
        return bool(_HOLDS[self.relation](value, 0))


_asked: ContextVar[dict[Condition, None] | None] = ContextVar("asked", default=None)


@contextlib.contextmanager
def conditions() -> Iterator[dict[Condition, None]]:
    """Collects, in order, the conditions on which the computations in its body depend."""
    found: dict[Condition, None] = {}
    token = _asked.set(found)
    try:
        yield found
    finally:
        _asked.reset(token)


def _combined(name: str) -> Callable[[Size, Any], Any]:
    plain = getattr(int, name)
    on_exprs = getattr(Expr, name)

    def method(self: Size, other: Any) -> Any:
        value = plain(self, other)
        if value is NotImplemented or not isinstance(other, int):
            return value
        return sized(on_exprs(self.expr, expr_of(other)), value)

    method.__name__ = name
    return method


def _compared(name: str, yes: tuple[int, Relation], no: tuple[int, Relation]) -> Callable[[Size, Any], Any]:
    """A comparison, with the condition that each answer is: the sign of the difference, and its relation to 0."""
    plain = getattr(int, name)

    def method(self: Size, other: Any) -> Any:
        answer = plain(self, other)
        if answer is not NotImplemented and isinstance(other, int):
            sign, relation = yes if answer else no
            difference = self.expr - expr_of(other)
            _ask(Condition(difference if sign > 0 else -difference, relation))
        return answer

    method.__name__ = name
    return method


def _ask(condition: Condition) -> None:
    found = _asked.get()
    if found is not None and condition not in found and condition.expr.value is None and not _certain(*condition):
        found[condition] = None


def _certain(expr: Expr, relation: Relation) -> bool:
    positive = relation in (">", "!=") and nonnegative(expr - 1)
    return positive or (relation == ">=" and nonnegative(expr)) or (relation == "!=" and nonnegative(-expr - 1))


class Size(int):
    """An integer with the expression that it is a value of. Made by ``sized``."""

    expr: Expr

    __add__ = __radd__ = _combined("__add__")
    __sub__ = _combined("__sub__")
    __rsub__ = _combined("__rsub__")
    __mul__ = __rmul__ = _combined("__mul__")
    __floordiv__ = _combined("__floordiv__")
    __rfloordiv__ = _combined("__rfloordiv__")
    __mod__ = _combined("__mod__")
    __rmod__ = _combined("__rmod__")

    __eq__ = _compared("__eq__", (1, "=="), (1, "!="))
    __ne__ = _compared("__ne__", (1, "!="), (1, "=="))
    __ge__ = _compared("__ge__", (1, ">="), (-1, ">"))
    __gt__ = _compared("__gt__", (1, ">"), (-1, ">="))
    __le__ = _compared("__le__", (-1, ">="), (1, ">"))
    __lt__ = _compared("__lt__", (-1, ">"), (1, ">="))

    def __neg__(self) -> int:
        return sized(-self.expr, -int(self))

    def __pos__(self) -> int:
        return self

    def __pow__(self, exponent: Any, modulus: Any = None) -> Any:
        value = int(self).__pow__(exponent, modulus) if modulus is not None else int(self).__pow__(int(exponent))
        if isinstance(exponent, Size) or modulus is not None or not isinstance(exponent, int) or exponent < 0:
            return value
        return sized(self.expr**exponent, value)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __abs__(self) -> int:
        return self if self >= 0 else -self

    def bit_length(self) -> int:
        bits = int(self).bit_length()
        if self > 0:
            _ask(Condition(self.expr - 2 ** (bits - 1), ">="))
            _ask(Condition(2**bits - self.expr, ">"))
        else:
            _ask(Condition(self.expr - int(self), "=="))
        return bits

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __reduce__(self) -> tuple[Callable[..., int], tuple[Expr, int]]:
        return sized, (self.expr, int(self))


def sized(expr: Expr, value: int) -> int:
    """``value`` as a Size of ``expr``; a plain integer if ``expr`` is a number."""
    if expr.value is not None:
        return int(value)
    size = Size(value)
    size.expr = expr
    return size


def expr_of(value: int) -> Expr:
    """The expression of an integer: of a Size what it carries, else the number."""
    return value.expr if isinstance(value, Size) else constant(value)
