"""Sizes: numbers as they always were, an expression that agrees, and conditions that suffice."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tensortide.expr import Size, conditions, expr_of, parse_condition, sized, symbol

Tree: TypeAlias = tuple[Any, ...]
NAMES = ("b", "h", "n")

leaves = st.one_of(st.tuples(st.sampled_from(NAMES)), st.tuples(st.integers(-6, 9)))
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else a,
    "%": lambda a, b: a % b if b else b,
    "divmod": lambda a, b: sum(divmod(a, b)) if b else 7,
    "max": max,
    "min": min,
    "**": lambda a, b: a**2 if b > 0 else -a,
    "?": lambda a, b: a if a == b or a < 3 else b,
    "abs": lambda a, b: abs(a) - b,
    "bits": lambda a, b: a * b.bit_length(),
    "sum": lambda a, b: sum([a, b, a]),
    "<<": lambda a, b: (a << 2) - (b << 1),
    ">>": lambda a, b: (a >> 1) - (b >> 3),
    "round": lambda a, b: round(a / 4) - round(b / 6),
}
trees: st.SearchStrategy[Tree] = st.recursive(
    leaves, lambda inner: st.tuples(st.sampled_from(sorted(OPERATIONS)), inner, inner), max_leaves=7
)
settings_of = st.fixed_dictionaries({name: st.integers(1, 30) for name in NAMES})


def run(tree: Tree, at: Mapping[str, int]) -> int:
    """The program that ``tree`` is, on integers or on Sizes."""
    if len(tree) == 1:
        return at[tree[0]] if isinstance(tree[0], str) else int(tree[0])
    return OPERATIONS[tree[0]](run(tree[1], at), run(tree[2], at))


def traced(at: Mapping[str, int]) -> dict[str, int]:
    return {name: sized(symbol(name), value) for name, value in at.items()}


@settings(max_examples=200)
@given(trees, settings_of)
def test_numbers_are_what_they_always_were(tree: Tree, at: dict[str, int]) -> None:
    plain, result = run(tree, at), run(tree, traced(at))
    assert result == plain
    assert int(result) == plain
    assert expr_of(result).evaluate(at) == plain


@settings(max_examples=300)
@given(trees, settings_of, st.lists(settings_of, min_size=1, max_size=8))
def test_conditions_suffice(tree: Tree, hint: dict[str, int], others: list[dict[str, int]]) -> None:
    """Wherever all recorded conditions hold, the expression is what the program computes there."""
    with conditions() as found:
        expr = expr_of(run(tree, traced(hint)))
    assert all(condition.holds(condition.expr.evaluate(hint)) for condition in found)
    for at in others:
        try:
            holds = all(condition.holds(condition.expr.evaluate(at)) for condition in found)
        except ArithmeticError:
            continue
        if holds:
            assert expr.evaluate(at) == run(tree, at)


def test_what_always_holds_is_no_condition() -> None:
    at = traced({"h": 8, "n": 4})
    h, n = at["h"], at["n"]
    with conditions() as found:
        assert h >= 1
        assert h * n > 0
        assert h + 1 != 0
        assert h
        assert h < h * n + 1
    assert not found
    with conditions() as found:
        assert h != n
        assert h > n
        assert n < h
        assert h % n == 0
    assert list(found) == [parse_condition(text) for text in ("h != n", "h > n", "h % n == 0")]


def test_a_number_of_bits_holds_everywhere() -> None:
    """The next power of two, as code that pads to it computes it."""
    h = traced({"h": 200})["h"]
    with conditions() as found:
        padded = 1 << (h - 1).bit_length()
    assert not found
    assert padded == 256
    assert (-h).bit_length() == 8
    for value in (1, 2, 3, 64, 65, 1000):
        assert expr_of(padded).evaluate({"h": value}) == 1 << (value - 1).bit_length()


def test_expressions_of_a_kernel() -> None:
    n = sized(symbol("n"), 224)
    size = (n + 2 * 3 - 7) // 2 + 1
    assert isinstance(size, Size)
    assert str(expr_of(size)) == "ceil(n/2)"
    assert expr_of(2**3) == 8
    assert str(expr_of(n >> 2)) == "floor(n/4)"
    assert str(expr_of(n << sized(symbol("k"), 2))) == "n*(2**k)"
    assert str(expr_of((n * 3) // 3)) == "n"
    assert {n: "found"}[224] == "found"
    assert list(range(sized(symbol("n"), 3))) == [0, 1, 2]


@given(settings_of)
def test_pickles(at: dict[str, int]) -> None:
    size = traced(at)["h"] * 3 + traced(at)["n"]
    assume(isinstance(size, Size))
    again = pickle.loads(pickle.dumps(size))
    assert int(again) == int(size)
    assert expr_of(again) == expr_of(size)
