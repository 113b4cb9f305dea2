"""The largest of many moments."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tensortide.expr import Expr, constant, floor_ratio, maximum, symbol
from tensortide.expr.atoms import alternatives
from tensortide.formulas.peaks import falls_short, largest

NAMES = ("batch", "hidden", "layers")
TYPICAL = {"batch": 8, "hidden": 768, "layers": 12}


@st.composite
def moments(draw: st.DrawFn) -> Expr:
    terms = st.lists(st.sampled_from(NAMES), max_size=3)
    several = draw(st.lists(st.tuples(st.integers(0, 9), terms), min_size=1, max_size=4))
    rounded = floor_ratio(symbol("hidden") + 1, constant(2)) * draw(st.integers(0, 2))
    return sum((constant(n) * math.prod(map(symbol, names), start=constant(1)) for n, names in several), start=rounded)


@given(st.lists(moments(), min_size=1, max_size=12))
def test_it_is_the_maximum(several: list[Expr]) -> None:
    found, expected = largest(several, TYPICAL), maximum(*several)
    assert set(alternatives(found)) <= set(several)
    assert set(alternatives(found)) == set(alternatives(expected))


@given(st.lists(moments(), min_size=1, max_size=8), st.integers(0, 7))
def test_no_moment_is_above_the_largest(several: list[Expr], missing: int) -> None:
    peaks = alternatives(largest(several, TYPICAL))
    assert not falls_short(peaks, several, TYPICAL)
    assert falls_short(peaks, [*several, several[missing % len(several)] + 1 + symbol("batch") ** 4], TYPICAL)
