"""Sizes that remember where they come from: integers that carry an exact expression through plain Python arithmetic.

A cost rule is plain arithmetic on integers. Called with Sizes it computes the number it always did and, beside it,
the expression of that number in hyperparameters; so does a division with a fraction, until it is rounded. Anything but
arithmetic (``range(n)``, ``int(n)``) drops the expression, never the number. A comparison is answered by the numbers
and is remembered as a condition under which the expression holds.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from tensortide.expr.atoms import bits, isqrt, nonnegative, power
from tensortide.expr.expr import Coefficient, Expr, constant, denominator
from tensortide.expr.floors import ceil, floor, is_negated, quotients, turned
from tensortide.expr.show import text

Relation: TypeAlias = Literal["==", "!=", ">=", ">"]
T = TypeVar("T")
_HOLDS = {"==": operator.eq, "!=": operator.ne, ">=": operator.ge, ">": operator.gt}


class Condition(NamedTuple):
    """``expr relation 0``: something a traced computation relied on."""

    expr: Expr
    relation: Relation

    def __str__(self) -> str:
        """Readable: ``hidden <= 1024``, ``positions >= seq``, ``hidden % heads == 0``."""
        divided = self.divisor or (self.opposite.divisor if self.relation == "!=" else None)
        if divided is not None:
            by, of = map(text, divided)
            of = f"({of})" if len(divided[1].terms) > 1 else of
            return f"{of} % {by if by.isalnum() or by.isidentifier() else f'({by})'} {self.relation} 0"
        left, right = self.sides
        if self.relation in (">=", ">") and left.value is not None and right.value is None:
            return f"{text(right)} {self.relation.replace('>', '<')} {text(left)}"
        return f"{text(left)} {self.relation} {text(right)}"

    @property
    def sides(self) -> tuple[Expr, Expr]:
        """Two expressions with whole or positive terms that the relation is between."""
        offset = self.expr.terms.get((), 0)
        if len(self.expr.terms) == 1:
            return self.expr, constant(0)
        varying = self.expr - offset
        right = Expr({monomial: -c for monomial, c in varying.terms.items() if (c < 0) != turned(monomial)})
        left = varying + right
        if not left.terms:
            return constant(offset), right
        return (left, right - offset) if not right.terms or offset < 0 else (left + offset, right)

    @property
    def divisor(self) -> tuple[Expr, Expr] | None:
        """``(d, n)`` if it says that ``d`` divides ``n``: ``n - d*floor(n/d) == 0``."""
        return _divisor(self.expr) if self.relation == "==" else None

    @property
    def opposite(self) -> Condition:
        """The condition that holds where this one does not."""
        match self.relation:
            case "==":
                return Condition(self.expr, "!=")
            case "!=":
                return Condition(self.expr, "==")
            case ">=":
                return Condition(-self.expr, ">")
        return Condition(-self.expr, ">=")

    def holds(self, value: int | Fraction) -> bool:
        """Tell whether it holds where ``expr`` is ``value``."""
        return bool(_HOLDS[self.relation](value, 0))


@functools.lru_cache(maxsize=1024)
def _divisor(remainder: Expr) -> tuple[Expr, Expr] | None:
    """Two expressions of whose division ``remainder``, or minus it, is the remainder.

    Kept: settings are drawn by the thousand under the same few conditions.
    """
    for top, bottom in quotients(remainder):
        if remainder in (top % bottom, -(top % bottom)):
            return bottom, -top if is_negated(top) else top
    return None


_FINEST = 1 << 10
"""Largest denominator of a float that is taken for an exact number."""
_EXACT = Fraction(1, 1 << 54)
"""Relative distance up to which a float stands for a fraction."""
_made: ContextVar[dict[Expr, None] | None] = ContextVar("made", default=None)
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


@contextlib.contextmanager
def computed() -> Iterator[dict[Expr, None]]:
    """Collects, in order, the expressions of the Sizes that the computations in its body make."""
    found: dict[Expr, None] = {}
    token = _made.set(found)
    try:
        yield found
    finally:
        _made.reset(token)


def _ratio(name: str) -> Callable[[Any, Any], Any]:
    """Arithmetic whose result has a fraction: a Quotient, or a plain number where that is not exact."""
    plain, on_exprs = getattr(float, name), getattr(Expr, name)

    def method(self: Any, other: Any) -> Any:
        value = plain(float(self), other)
        exact = _exact(other)
        if value is NotImplemented or exact is None:
            return value
        try:
            return quotient(on_exprs(self.expr, exact), value)
        except ArithmeticError:
            return value

    method.__name__ = name
    return method


def _exact(value: object) -> Expr | None:
    """The expression of a number; None for a float that is no simple fraction, as 0.1 is and 0.7 is not."""
    if isinstance(value, (Size, Quotient)):
        return value.expr
    if isinstance(value, (int, float)) and math.isfinite(value):
        fraction = Fraction(value).limit_denominator(_FINEST)
        return constant(fraction) if stands_for(value, fraction) else None
    return None


def stands_for(value: float, fraction: Coefficient) -> bool:
    """Return whether a float times an integer is whole wherever ``fraction`` times that is: 0.1 and 0.9, not 0.7."""
    return abs(Fraction(value) - fraction) <= abs(Fraction(fraction)) * _EXACT


def _combined(name: str) -> Callable[[Size, Any], Any]:
    plain = getattr(int, name)
    on_exprs = getattr(Expr, name)
    on_ratios = _ratio(name) if hasattr(float, name) and "div" not in name and "mod" not in name else plain

    def method(self: Size, other: Any) -> Any:
        value = plain(self, other)
        if not isinstance(other, int):
            return on_ratios(self, other)
        return sized(on_exprs(self.expr, expr_of(other)), value)

    method.__name__ = name
    return method


def _compared(name: str, yes: tuple[int, Relation], no: tuple[int, Relation]) -> Callable[[Any, Any], Any]:
    """A comparison, with the condition that each answer is: the sign of the difference, and its relation to 0."""
    plain, on_floats = getattr(int, name), getattr(float, name)

    def method(self: Any, other: Any) -> Any:
        is_whole = isinstance(self, int) and isinstance(other, int)
        answer = plain(self, other) if is_whole else on_floats(float(self), other)
        exact = _exact(other)
        if answer is not NotImplemented and exact is not None:
            sign, relation = yes if answer else no
            difference = self.expr - exact
            difference *= denominator(difference)
            _ask(Condition(difference if sign > 0 else -difference, relation))
        return answer

    method.__name__ = name
    return method


_COMPARISONS: dict[str, tuple[tuple[int, Relation], tuple[int, Relation]]] = {
    "__eq__": ((1, "=="), (1, "!=")),
    "__ne__": ((1, "!="), (1, "==")),
    "__ge__": ((1, ">="), (-1, ">")),
    "__gt__": ((1, ">"), (-1, ">=")),
    "__le__": ((-1, ">="), (1, ">")),
    "__lt__": ((-1, ">"), (1, ">=")),
}
"""Comparisons by name: the sign of the difference and its relation to 0 where the answer is yes, and where it is no."""


def _comparable(kind: type[T]) -> type[T]:
    """Give a class of numbers the comparisons that are remembered."""
    for name, (yes, no) in _COMPARISONS.items():
        setattr(kind, name, _compared(name, yes, no))
    return kind


def _ask(condition: Condition) -> None:
    found = _asked.get()
    if found is not None and condition not in found and condition.expr.value is None and not _certain(*condition):
        found[condition] = None


def _certain(expr: Expr, relation: Relation) -> bool:
    positive = relation in (">", "!=") and nonnegative(expr - 1)
    return positive or (relation == ">=" and nonnegative(expr)) or (relation == "!=" and nonnegative(-expr - 1))


@_comparable
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

    def __lshift__(self, other: Any) -> Any:
        return self * 2**other if isinstance(other, int) and other >= 0 else int(self) << other

    def __rlshift__(self, other: Any) -> Any:
        return other * 2**self if isinstance(other, int) and self >= 0 else other << int(self)

    def __rshift__(self, other: Any) -> Any:
        return self // 2**other if isinstance(other, int) and other >= 0 else int(self) >> other

    def __rrshift__(self, other: Any) -> Any:
        return other // 2**self if isinstance(other, int) and self >= 0 else other >> int(self)

    __truediv__ = _ratio("__truediv__")
    __rtruediv__ = _ratio("__rtruediv__")

    def __neg__(self) -> int:
        return sized(-self.expr, -int(self))

    def __pos__(self) -> int:
        return self

    def __pow__(self, exponent: Any, modulus: Any = None) -> Any:
        value = pow(int(self), exponent, modulus)
        if exponent == 0.5 and modulus is None and self >= 0:
            return square_root(self)
        if isinstance(exponent, Size) or modulus is not None or not isinstance(exponent, int) or exponent < 0:
            return value
        return sized(self.expr**exponent, value)

    def __rpow__(self, base: Any, modulus: Any = None) -> Any:
        value = pow(base, int(self), modulus)
        if modulus is not None or type(base) is not int or base < 2 or self < 0:
            return value
        return sized(power(base, self.expr), value)

    def __trunc__(self) -> int:
        return self

    def __floor__(self) -> int:
        return self

    def __ceil__(self) -> int:
        return self

    def __round__(self, *digits: Any) -> Any:
        return round(int(self), *digits) if digits else self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __abs__(self) -> int:
        return self if self >= 0 else -self

    def bit_length(self) -> int:
        return sized(bits(self.expr if self >= 0 else -self.expr), int(self).bit_length())

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __reduce__(self) -> tuple[Callable[..., int], tuple[Expr, int]]:
        return sized, (self.expr, int(self))


@_comparable
class Quotient(float):
    """A number with a fraction, with the expression that it is a value of. Made by dividing Sizes."""

    expr: Expr

    __add__ = __radd__ = _ratio("__add__")
    __sub__ = _ratio("__sub__")
    __rsub__ = _ratio("__rsub__")
    __mul__ = __rmul__ = _ratio("__mul__")
    __truediv__ = _ratio("__truediv__")
    __rtruediv__ = _ratio("__rtruediv__")

    def __floor__(self) -> int:
        return sized(floor(self.expr), math.floor(float(self)))

    def __ceil__(self) -> int:
        return sized(ceil(self.expr), math.ceil(float(self)))

    def __round__(self, *digits: Any) -> Any:
        if digits:
            return round(float(self), *digits)
        expr = floor(self.expr + Fraction(1, 2))
        if not int(denominator(self.expr).value or 0) % 2:  # halves go to the even side
            expr += ceil((2 * self.expr - 1) / 4) - floor((2 * self.expr - 1) / 4) - 1
        return sized(expr, round(float(self)))

    def __int__(self) -> int:
        return int(self.__trunc__())

    def __trunc__(self) -> int:
        return self.__floor__() if self >= 0 else math.trunc(float(self))

    def __neg__(self) -> float:
        return quotient(-self.expr, -float(self))

    def __hash__(self) -> int:
        return float.__hash__(self)

    def __reduce__(self) -> tuple[Callable[..., float], tuple[Expr, float]]:
        return quotient, (self.expr, float(self))


class Root(float):
    """The square root of a Size, whose expression is kept where it is rounded down. Made by ``square_root``."""

    square: Size

    def __trunc__(self) -> int:
        return isqrt_of(self.square)

    __floor__ = __int__ = __trunc__


def square_root(size: Size) -> float:
    """The square root of a Size that is not negative."""
    root = Root(math.sqrt(int(size)))
    root.square = size
    return root


def isqrt_of(size: int) -> int:
    """The square root of an integer, rounded down."""
    return sized(isqrt(expr_of(size)), math.isqrt(size))


def quotient(expr: Expr, value: float) -> float:
    """``value`` as a Quotient of ``expr``; a plain number if ``expr`` is one."""
    if expr.value is not None:
        return value
    made = Quotient(value)
    made.expr = expr
    return made


def sized(expr: Expr, value: int) -> int:
    """``value`` as a Size of ``expr``; a plain integer if ``expr`` is a number."""
    if expr.value is not None:
        return int(value)
    size = Size(value)
    size.expr = expr
    if (made := _made.get()) is not None:
        made[expr] = None
    return size


def expr_of(value: int) -> Expr:
    """The expression of an integer: of a Size what it carries, else the number."""
    return value.expr if isinstance(value, Size) else constant(value)
