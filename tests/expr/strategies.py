"""Expressions at random, each built together with the same value in plain Python fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from hypothesis import strategies as st

from tensortide.expr import Expr, ceil, constant, floor, maximum, minimum, power, symbol

NAMES = ("b", "h", "n")


class Case(NamedTuple):
    """An expression and, independently, its value at a binding; ``why`` it is this one."""

    expr: Expr
    value: Callable[[Mapping[str, int]], Fraction]
    why: str

    def __repr__(self) -> str:
        return self.why


class NotWhole(ArithmeticError):
    """An atom that must be an integer is not, at this binding."""


def leaf_symbol(name: str) -> Case:
    return Case(symbol(name), lambda at: Fraction(at[name]), name)


def leaf_number(number: int) -> Case:
    return Case(constant(number), lambda at: Fraction(number), str(number))


def plus(a: Case, b: Case) -> Case:
    return Case(a.expr + b.expr, lambda at: a.value(at) + b.value(at), f"({a.why} + {b.why})")


def minus(a: Case, b: Case) -> Case:
    return Case(a.expr - b.expr, lambda at: a.value(at) - b.value(at), f"({a.why} - {b.why})")


def times(a: Case, b: Case) -> Case:
    return Case(a.expr * b.expr, lambda at: a.value(at) * b.value(at), f"({a.why} * {b.why})")


def part(a: Case, by: int) -> Case:
    return Case(a.expr / by, lambda at: a.value(at) / by, f"({a.why} / {by})")


def over(a: Case, name: str) -> Case:
    return Case(a.expr / symbol(name), lambda at: a.value(at) / at[name], f"({a.why} / {name})")


def floored(a: Case) -> Case:
    return Case(floor(a.expr), lambda at: Fraction(math.floor(a.value(at))), f"floor({a.why})")


def ceiled(a: Case) -> Case:
    return Case(ceil(a.expr), lambda at: Fraction(math.ceil(a.value(at))), f"ceil({a.why})")


def modulo(a: Case, by: int) -> Case:
    return Case(a.expr % by, lambda at: a.value(at) % by, f"({a.why} % {by})")


def quotient(a: Case, b: Case) -> Case:
    """``a // (b*b + 1)``: a divisor that is a sum and never 0."""
    return Case(
        a.expr // (b.expr * b.expr + 1),
        lambda at: Fraction(math.floor(a.value(at) / (b.value(at) ** 2 + 1))),
        f"({a.why} // ({b.why}**2 + 1))",
    )


def extreme(name: str, a: Case, b: Case) -> Case:
    function, plain = (maximum, max) if name == "max" else (minimum, min)
    return Case(
        function(floor(a.expr), floor(b.expr)),
        lambda at: Fraction(plain(math.floor(a.value(at)), math.floor(b.value(at)))),
        f"{name}(floor({a.why}), floor({b.why}))",
    )


def raised(a: Case) -> Case:
    """``2**(a mod 7)``."""
    return Case(power(2, a.expr % 7), lambda at: Fraction(2) ** int(a.value(at) % 7), f"2**({a.why} % 7)")


leaves = st.one_of(st.sampled_from(NAMES).map(leaf_symbol), st.integers(-9, 12).map(leaf_number))


def _pairs(
    inner: st.SearchStrategy[Case], functions: Sequence[Callable[[Case, Case], Case]]
) -> st.SearchStrategy[Case]:
    return st.builds(lambda f, a, b: f(a, b), st.sampled_from(functions), inner, inner)


def _polynomial(inner: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    return _pairs(inner, (plus, plus, minus, times))


def _any(inner: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    whole = inner.map(floored)
    return st.one_of(
        _pairs(inner, (plus, minus, times, quotient)),
        st.builds(part, inner, st.integers(1, 6)),
        st.builds(modulo, whole, st.integers(1, 6)),
        st.builds(over, inner, st.sampled_from(NAMES)),
        whole,
        inner.map(ceiled),
        st.builds(extreme, st.sampled_from(("max", "min")), inner, inner),
        whole.map(raised),
    )


polynomials = st.recursive(leaves, _polynomial, max_leaves=8)
cases = st.recursive(leaves, _any, max_leaves=9)
bindings = st.fixed_dictionaries({name: st.integers(1, 40) for name in NAMES})
