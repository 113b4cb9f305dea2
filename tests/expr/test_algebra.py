"""The algebra against plain fractions and against sympy: a ring, exact division, folding that changes no value."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from fractions import Fraction

import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tensortide.expr import (
    Expr,
    ceil,
    ceil_ratio,
    compiled,
    constant,
    floor,
    maximum,
    minimum,
    nonnegative,
    parse,
    power,
    symbol,
    to_sympy,
    total,
)
from tests.expr.strategies import NAMES, Case, bindings, cases, polynomials

b, h, n, k = map(symbol, "bhnk")


def same(a: Expr, reference: sympy.Expr) -> bool:
    return bool(sympy.expand(to_sympy(a) - reference) == 0)


def value(expr: Expr, at: Mapping[str, int]) -> Fraction:
    found = expr.subs(at).value
    assert found is not None
    return Fraction(found)


@given(polynomials, polynomials, polynomials)
def test_ring(x: Case, y: Case, z: Case) -> None:
    a, b, c = x.expr, y.expr, z.expr
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a - a == 0
    assert a + 0 == a * 1 == a
    assert a * 0 == 0
    assert 0 - (-a) == a
    assert a**3 == a * a * a
    assert hash(a + b) == hash(b + a)
    assert total([a, b, c, 4]) == a + b + c + 4


@settings(max_examples=25)
@given(polynomials, polynomials)
def test_sympy_agrees(x: Case, y: Case) -> None:
    assert same(x.expr * y.expr, to_sympy(x.expr) * to_sympy(y.expr))
    assert same(x.expr - y.expr, to_sympy(x.expr) - to_sympy(y.expr))


@given(polynomials, polynomials)
def test_division_is_exact_or_refused(x: Case, y: Case) -> None:
    assume(y.expr != 0)
    assert (x.expr * y.expr) / y.expr == x.expr
    assert (x.expr * y.expr / h) / (y.expr / (b * n)) == x.expr * b * n / h
    quotient = x.expr.divided(y.expr)
    if quotient is not None:
        assert quotient * y.expr == x.expr


def test_division_that_leaves_a_rest_is_refused() -> None:
    with pytest.raises(ArithmeticError, match="no sum of terms"):
        h / (n + 1)
    with pytest.raises(ZeroDivisionError):
        h / (n - n)
    assert (h**300 - 1) / (h - 1) == total(h**i for i in range(300))
    assert (h / n + 1) / (h + n) == 1 / n


@settings(max_examples=300)
@given(cases, bindings)
def test_folding_changes_no_value(case: Case, at: dict[str, int]) -> None:
    expected = case.value(at)
    with contextlib.suppress(ArithmeticError):  # an atom over what must be whole and is not
        assert value(case.expr, at) == expected


@settings(max_examples=200)
@given(cases, bindings)
def test_compiled_is_evaluate(case: Case, at: dict[str, int]) -> None:
    try:
        (found,) = compiled([case.expr])(at)
    except ArithmeticError:
        return
    assert type(found) is int
    assert found == case.expr.evaluate(at) == case.value(at)


@settings(max_examples=40)
@given(cases, bindings)
def test_sympy_evaluates_alike(case: Case, at: dict[str, int]) -> None:
    shown = to_sympy(case.expr).subs({sympy.Symbol(s, integer=True, positive=True): at[s] for s in at})
    with contextlib.suppress(ArithmeticError):
        assert sympy.Rational(*value(case.expr, at).as_integer_ratio()) == shown


@settings(max_examples=150)
@given(cases, bindings)
def test_partial_bindings_compose(case: Case, at: dict[str, int]) -> None:
    with contextlib.suppress(ArithmeticError):
        partial = case.expr.subs({"h": at["h"]})
        assert "h" not in partial.symbols
        assert value(partial, at) == value(case.expr, at)
        doubled = case.expr.subs({"h": 2 * symbol("n") + 1})
        assert value(doubled, at) == value(case.expr, {**at, "h": 2 * at["n"] + 1})


def test_known_folds() -> None:
    assert floor(floor(n / 2) / 2) == floor(n / 4)
    assert floor(k * n / k) == n
    assert (k * n) // k == n
    assert (2 * n + 3) // 2 == n + 1
    assert (n + 3) // 1 == n + 3
    assert ceil(ceil(n / 2) / 2) == ceil(n / 4) == ceil_ratio(n, 4)
    assert -(-n // 2) == ceil(n / 2) == (n + 1) // 2
    assert (5 * n) // 2 == 2 * n + n // 2
    assert (n // k) // 2 == n // (2 * k)
    assert (4 * n + 6) // 8 == (2 * n + 3) // 4
    assert (n + 1) // (2 * n + 2) == 0
    assert (h * n + n) // (k * n + n) == (h + 1) // (k + 1)
    assert (h / n + 1) // 2 == (h + n) // (2 * n)
    assert (3 * n) % 3 == 0
    assert constant(-7) // 2 == -4
    assert n // -2 == -ceil(n / 2)
    with pytest.raises(ZeroDivisionError):
        n // 0


def test_extremes_leave_out_what_cannot_be() -> None:
    assert maximum(h, 2 * h, h * n, 1) == maximum(2 * h, h * n)
    assert minimum(h, 2 * h, h * n + 1) == h
    assert maximum(h, n) == maximum(n, h) == maximum(maximum(h, 1), n, n)
    assert maximum(3, 7) == 7
    # n - 3 may be negative, and so may what it multiplies
    assert maximum(n - 3, 0) != n - 3
    assert maximum(floor((n - 9) / 2), 0).evaluate({"n": 1}) == 0
    with pytest.raises(ArithmeticError, match="not a whole number"):
        maximum(h / 2, n).evaluate({"h": 3, "n": 1})


def test_powers_of_a_number() -> None:
    assert power(2, h - n).evaluate({"h": 9, "n": 5}) == 16
    assert power(2, 3 * n - 2) == power(2, n) ** 3 / 4
    assert power(2, n).subs({"n": 10}) == 1024
    assert power(2, n / 2).subs({"n": 10}) == 32
    with pytest.raises(ArithmeticError):
        power(2, Fraction(1, 2))
    with pytest.raises(ArithmeticError):
        power(2, n / 2).subs({"n": 5})
    for below in (power(2, n // 8 - 1), power(2, minimum(n - 9, 0))):
        with pytest.raises(ArithmeticError):
            below.evaluate({"n": 5})
        with pytest.raises(ArithmeticError):
            compiled([below])({"n": 5})


@settings(max_examples=300)
@given(cases, bindings)
def test_nonnegative_is_sound(case: Case, at: dict[str, int]) -> None:
    if nonnegative(case.expr):
        with contextlib.suppress(ArithmeticError):
            assert value(case.expr, at) >= 0


def test_nonnegative_finds() -> None:
    for text in (
        "0",
        "h - 1",
        "h**2*n - h",
        "h - h/n",
        "3*h*n - 2*h - n",
        "h*floor(n/2) - floor(n/2)",
        "max(h - 9, 1)",
        "ceil(h/n) - 1",
        "h*ceil(h/n) - ceil(h/n)",
    ):
        assert nonnegative(parse(text)), text
    for text in (
        "-1",
        "h - 2",
        "h - n",
        "floor((n - 5)/2)",
        "min(h - 5, n)",
        "h*floor(n/2) - h",
        "h*n - 2*h + 5*n",
        "h - ceil(h/n)",
    ):
        assert not nonnegative(parse(text)), text


@given(polynomials)
def test_coefficients_rebuild(case: Case) -> None:
    for name in NAMES:
        parts = case.expr.coefficients(name)
        assert total(c * symbol(name) ** e for e, c in parts.items()) == case.expr
        assert max(parts, default=0) == case.expr.degree(name)


def test_unbound_symbols_are_named() -> None:
    with pytest.raises(KeyError, match="n"):
        (h * n).evaluate({"h": 1})
    with pytest.raises(ArithmeticError, match="not a whole number"):
        (h / n).evaluate({"h": 10, "n": 4})


@given(st.lists(bindings, min_size=1, max_size=5), cases)
def test_arrays(points: list[dict[str, int]], case: Case) -> None:
    function = compiled([case.expr, h * 10**30])
    try:
        expected = [function(at) for at in points]
    except ArithmeticError:
        return
    columns = function.arrays({name: [at[name] for at in points] for name in NAMES})
    assert [list(row) for row in zip(*columns, strict=True)] == expected
