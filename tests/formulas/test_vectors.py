"""The solver of size vectors: an expression is found exactly or not at all."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tensortide.expr import Expr, ceil, constant, floor_ratio, maximum, minimum, power, symbol
from tensortide.formulas.terms import Vector
from tensortide.formulas.vectors import Recognizer, Solver

Point = dict[str, int]

FEWER = settings().max_examples // 5
"""Examples of properties that search for long: six, more where many are asked for."""

NAMES = ("batch", "seq", "hidden")
PRIMES = [n for n in range(5, 400) if all(n % d for d in range(2, math.isqrt(n) + 1))]


def generic(names: Sequence[str] = NAMES, count: int = 8) -> st.SearchStrategy[list[Point]]:
    """Points at which every hyperparameter has another prime."""

    def points(seed: int) -> list[Point]:
        values = iter(random.Random(seed).sample(PRIMES, len(names) * count))
        return [{name: next(values) for name in names} for _ in range(count)]

    return st.integers(0, 1 << 32).map(points)


def at(expr: Expr, points: Sequence[Point]) -> Vector:
    return tuple(expr.evaluate(point) for point in points)


def solved(truth: Expr, points: Sequence[Point], most: int = 20) -> Expr | None:
    """What is found for the values of ``truth``, with more points where the solver asks for some, as a study does."""
    dice, points, asked = random.Random(0), list(points), set[tuple[str, int]]()
    pool = {name: PRIMES if len({p[name] for p in points}) > 3 else [p[name] for p in points] for name in points[0]}
    while True:
        solver = Solver(tuple(points[0]), points)
        vector = at(truth, points)
        found = solver.solve(vector) or solver.settle(vector)
        wanted = sorted({(name, value) for name, values in solver.wanted.items() for value in values} - asked)[:3]
        if len(points) >= most or not (wanted or (found is None and solver.short)):
            return found
        asked.update(wanted)
        points += [{n: dice.choice(pool[n]) for n in pool} | dict([pair]) for pair in wanted]
        points += [{n: dice.choice(pool[n]) for n in pool} for _ in range(0 if wanted else 2)]


HELD_OUT = [dict(zip(NAMES, row, strict=True)) for row in ((1, 1, 1), (64, 1024, 768), (2, 3, 977))]

coefficients = st.integers(1, 40)
symbols = st.sampled_from(NAMES).map(symbol)


@st.composite
def monomials(draw: st.DrawFn, degree: int = 4) -> Expr:
    factors = draw(st.lists(symbols, min_size=1, max_size=degree))
    return math.prod(factors, start=constant(draw(coefficients)))


@settings(max_examples=2 * FEWER)
@given(points=generic(count=4), truth=monomials())
def test_a_multiple_of_a_monomial(points: list[Point], truth: Expr) -> None:
    assert solved(truth, points) == truth


@given(points=generic(count=4), scale=coefficients, below=st.integers(1, 8))
def test_a_quotient(points: list[Point], scale: int, below: int) -> None:
    """The size of a head: hidden is a multiple of heads, whatever the multiple."""
    points = [{**point, "hidden": point["hidden"] * point["seq"] * below} for point in points]
    truth = symbol("hidden") * scale / symbol("seq") / below
    assert solved(truth, points) == truth


@settings(max_examples=FEWER)
@given(
    points=generic(),
    terms=st.lists(monomials(1), min_size=2, max_size=3, unique_by=lambda e: tuple(e.terms)),
    number=st.integers(-9, 9),
)
def test_a_sum_of_few_terms(points: list[Point], terms: list[Expr], number: int) -> None:
    truth = sum(terms[:2], start=constant(number)) if number else sum(terms, start=constant(0))
    assert solved(truth, points) == truth


@settings(max_examples=2 * FEWER)
@given(points=generic(), left=monomials(2), right=monomials(2), sign=st.sampled_from((1, -1)))
def test_a_sum_of_products(points: list[Point], left: Expr, right: Expr, sign: int) -> None:
    truth = left + sign * right
    found = solved(truth, points)
    assert found == truth or (truth.value == 0 and found is not None and found.value == 0)


@settings(max_examples=FEWER)
@given(points=generic(), scale=monomials(2), name=st.sampled_from(NAMES), number=st.integers(-4, 9))
def test_a_monomial_times_a_sum(points: list[Point], scale: Expr, name: str, number: int) -> None:
    other = symbol(NAMES[NAMES.index(name) - 1])
    truth = scale * (symbol(name) + (other * number if number % 2 else constant(number or 1)))
    assume(0 not in at(truth, points))
    assert solved(truth, points) == truth


@settings(max_examples=FEWER)
@given(
    points=generic(("seq", "hidden"), 4),
    name=st.sampled_from(("seq", "hidden")),
    divisor=st.integers(2, 32),
    shift=st.integers(0, 60),
    scale=st.sampled_from((1, 1, 2, 3)),
)
def test_a_strided_dimension(points: list[Point], name: str, divisor: int, shift: int, scale: int) -> None:
    """A rounded quotient that is found is right at values that were not sampled: where several fit the samples, the
    solver asks for those that tell them apart, or finds none."""
    truth = floor_ratio(symbol(name) + shift, constant(divisor)) * scale
    vector = at(truth, points)
    assume(len(set(vector)) > 1 and 0 not in vector)
    found = solved(truth, points)
    assert found is None or at(found, HELD_OUT) == at(truth, HELD_OUT)


@pytest.mark.parametrize(("divisor", "shift"), [(2, 1), (2, 0), (4, 3), (8, 7), (16, 0), (32, 31), (3, 2)])
def test_the_strides_of_convolutions(divisor: int, shift: int) -> None:
    truth = floor_ratio(symbol("image") + shift, constant(divisor))
    points = [
        {"image": 67, "batch": 5},
        {"image": 73, "batch": 7},
        {"image": 101, "batch": 3},
        {"image": 89, "batch": 2},
    ]
    assert solved(truth, points) == truth


@settings(max_examples=FEWER // 2)
@given(points=generic(count=6), above=st.integers(1, 9), below=st.integers(2, 8))
def test_a_rounded_multiple(points: list[Point], above: int, below: int) -> None:
    """The slots of an expert: ceil(1.25 * tokens / experts)."""
    share = symbol("batch") * symbol("seq") * Fraction(above, below) / symbol("hidden")
    found = solved(ceil(share), points)
    assert found is None or at(found, HELD_OUT) == at(ceil(share), HELD_OUT)


@settings(max_examples=FEWER)
@given(points=generic(), name=st.sampled_from(NAMES))
def test_the_smaller_and_the_larger(points: list[Point], name: str) -> None:
    number = sorted(point[name] for point in points)[3] + 1
    for truth in (minimum(symbol(name), number), maximum(symbol(name), number)):
        assert solved(truth, points) == truth
    both = minimum(symbol("seq"), symbol("hidden"))
    assert solved(both, points) == both or at(both, points) in (
        at(symbol("seq"), points),
        at(symbol("hidden"), points),
    )


@settings(max_examples=FEWER)
@given(points=generic(("batch", "seq"), 5), levels=st.permutations(range(2, 9)), scale=coefficients)
def test_a_power_of_two(points: list[Point], levels: list[int], scale: int) -> None:
    points = [{**point, "levels": level} for point, level in zip(points, levels, strict=False)]
    truth = power(2, symbol("levels")) * scale + symbol("seq")
    assert solved(truth, points) == truth


@settings(max_examples=FEWER)
@given(points=generic(), noise=st.lists(st.integers(10**6, 10**9), min_size=8, max_size=8, unique=True))
def test_noise_has_no_expression(points: list[Point], noise: list[int]) -> None:
    solver = Solver(NAMES, points)
    assert solver.solve(tuple(noise)) is None
    assert solver.settle(tuple(noise)) is None


@settings(max_examples=FEWER)
@given(points=generic(), truth=monomials(2), where=st.integers(0, 7), error=st.integers(1, 9))
def test_one_wrong_value_is_enough(points: list[Point], truth: Expr, where: int, error: int) -> None:
    vector = list(at(truth, points))
    vector[where] += error
    solver = Solver(NAMES, points)
    found = solver.solve(tuple(vector)) or solver.settle(tuple(vector))
    assert found is None or at(found, points) == tuple(vector)
    assert found is None or not found.terms.keys() <= {*truth.terms, ()}


def test_a_product_of_what_stands_nearby() -> None:
    """A flattened image: neither a monomial nor a sum, but a product of its neighbours."""
    points = [{"batch": b, "image": i} for b, i in ((3, 67), (5, 73), (2, 101), (7, 91))]
    side = floor_ratio(symbol("image") + 1, constant(2))
    solver = Solver(("batch", "image"), points)
    solver.teach(side)
    solver.solve((3, 5, 2, 7))
    flat = symbol("batch") * side * side * 4
    sizes = [at(expr, points) for expr in (symbol("batch"), side, side)]
    assert solver.solve(at(flat, points)) is None
    assert solver.solve(at(flat, points), sizes) == flat
    assert solver.solve(at(flat, points)) == flat  # it is known from then on


def test_few_values_bear_out_few_terms() -> None:
    """Three values are met by some sum of three terms, whatever they are: none of these is meant."""
    points = [{"heads": heads, "batch": batch} for heads, batch in zip((2, 4, 8) * 3, PRIMES, strict=False)]
    assert solved(constant(64) / symbol("heads"), points) == constant(64) / symbol("heads")
    solver = Solver(("heads", "batch"), points)
    assert solver.settle((17, 400, 9) * 3) is None
    assert solver.short


def test_points_that_do_not_tell_sizes_apart() -> None:
    assert Solver(("a", "b"), [{"a": 2, "b": 4}, {"a": 3, "b": 6}, {"a": 5, "b": 10}]).blurred
    assert not Solver(("a", "b"), [{"a": 2, "b": 7}, {"a": 3, "b": 5}, {"a": 5, "b": 11}]).blurred


@settings(max_examples=FEWER)
@given(points=generic(count=8), number=st.integers(1, 30), divisor=st.integers(2, 9))
def test_a_part_of_a_known_size(points: list[Point], number: int, divisor: int) -> None:
    whole = symbol("seq") * number + symbol("hidden") * divisor
    solver = Solver(NAMES, points)
    solver.teach(whole)
    truth = floor_ratio(whole, constant(divisor))
    found = solver.settle(at(truth, points))
    assert found is None or at(found, points) == at(truth, points)


def test_what_was_taught_is_nothing_new() -> None:
    points = [{"batch": 3, "seq": 7, "hidden": 11}, {"batch": 5, "seq": 13, "hidden": 17}]
    solver = Solver(NAMES, points)
    known = symbol("batch") * symbol("hidden")
    solver.teach(known)
    assert solver.solve(at(known, points)) == known
    assert solver.solve((4, 4)) == constant(4)
    assert not solver.novel
    solver.solve(at(symbol("seq"), points))
    assert solver.novel


def test_what_two_points_do_not_tell_apart_is_new() -> None:
    points = [{"batch": 3, "seq": 3, "hidden": 11}, {"batch": 5, "seq": 5, "hidden": 17}]
    solver = Solver(NAMES, points)
    for name in ("batch", "seq"):
        solver.teach(symbol(name))
    assert solver.novel


def test_sizes_of_another_structure_are_recognized() -> None:
    batch, seq, hidden = map(symbol, NAMES)
    point = {"batch": 7, "seq": 101, "hidden": 60}
    known = Recognizer(NAMES, point, [batch, hidden / 12, hidden, 4 * hidden, 8 * batch * seq, constant(3)])
    assert known.solve((240,)) == 4 * hidden
    assert known.solve((3,)) == constant(3)
    assert known.solve((41,)) == constant(41)  # no multiple of a symbol: a number
    assert known.product((8 * 7 * 101,), [(7,), (101,)]) == 8 * batch * seq
    assert known.product((4,), []) == constant(4)
    assert not known.novel


@pytest.mark.parametrize("value", [5, 2 * 101, 7 * 60])
def test_what_may_be_several_sizes_or_another_one_is_not_recognized(value: int) -> None:
    batch, _, hidden = map(symbol, NAMES)
    point = {"batch": 7, "seq": 101, "hidden": 60}
    known = Recognizer(NAMES, point, [batch, hidden, hidden / 12, constant(5)])
    known.solve((value,))
    assert known.novel
