"""Figures of several structures as one expression, or none."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.expr import Expr, ceil_ratio, constant, floor_ratio, power, symbol
from tensortide.formulas.repetitions import BASES, basis_terms, determined, fitted

LAYERS, LEVELS, HIDDEN, BATCH = map(symbol, ("layers", "levels", "hidden", "batch"))
Point = Mapping[str, int]


def along(name: str, count: int) -> list[dict[str, int]]:
    return [{name: value} for value in range(2, 2 + count)]


def fit(truth: Expr, points: Sequence[Point], terms: Sequence[Expr]) -> Expr | None:
    return fitted([truth.subs(point) for point in points], points, terms)


@given(coefficients=st.lists(st.fractions(-99, 99, max_denominator=9), min_size=4, max_size=4))
@pytest.mark.parametrize("basis", BASES)
def test_whatever_a_basis_spans_is_found(basis: Sequence[Callable[[Expr], Expr]], coefficients: list[Fraction]) -> None:
    terms = basis_terms({"layers": tuple(basis)})
    sizes = (HIDDEN**2, HIDDEN * BATCH)
    truth = sum(
        (term * c * size for term, c, size in zip(terms, coefficients, itertools.cycle(sizes), strict=False)),
        start=HIDDEN,
    )
    assert fit(truth, along("layers", len(terms) + 1), terms) == truth


def test_two_hyperparameters_at_once() -> None:
    terms = basis_terms({"layers": BASES[0], "levels": BASES[2]})
    truth = HIDDEN * (3 * LAYERS + 1) * power(2, LEVELS) + BATCH * LAYERS - 7 * LEVELS
    grid = [{"layers": n, "levels": m} for n in (2, 3, 5) for m in (1, 2, 3, 4)]
    assert fit(truth, grid, terms) == truth
    assert fit(truth + LAYERS**2, grid, terms) is None


def test_a_pyramid_rounds_up() -> None:
    terms = basis_terms({"layers": BASES[3]})
    truth = HIDDEN * ceil_ratio(LAYERS, constant(2)) + BATCH
    assert fit(truth, along("layers", 4), terms) == truth
    assert fit(truth, along("layers", 4), basis_terms({"layers": BASES[0]})) is None


def test_a_size_that_is_divided_by_repetitions() -> None:
    """Pieces of a sequence: all but the last are as long as its length over their number, rounded up."""
    seq, pieces = symbol("seq"), symbol("pieces")
    points = [{"pieces": value} for value in range(2, 6)]
    for piece in (ceil_ratio(seq, pieces), floor_ratio(seq, pieces)):
        last = seq - piece * (pieces - 1)
        for truth in (HIDDEN * (piece * (pieces - 1) + BATCH) + last * 3, last, piece):
            assert fit(truth, points, basis_terms({"pieces": BASES[0]})) == truth


def test_what_comes_with_every_third_layer() -> None:
    third = ceil_ratio(LAYERS - 2, constant(3)) * HIDDEN + LAYERS * BATCH
    found = (fit(third, along("layers", len(basis) + 2), basis_terms({"layers": basis})) for basis in BASES)
    expr = next(expr for expr in found if expr is not None)
    assert expr.subs({"layers": 31}) == third.subs({"layers": 31})


def test_a_figure_that_no_basis_explains() -> None:
    primes = [constant(n) * HIDDEN for n in (2, 3, 5, 7, 11, 13, 17, 19)]
    for basis in BASES:
        points = along("layers", len(basis) + 2)
        assert fitted(primes[: len(points)], points, basis_terms({"layers": basis})) is None


def test_one_coefficient_that_contradicts_is_enough() -> None:
    points = along("layers", 4)
    values = [HIDDEN * point["layers"] + BATCH for point in points]
    terms = basis_terms({"layers": BASES[0]})
    assert fitted(values, points, terms) == HIDDEN * LAYERS + BATCH
    values[2] = values[2] + BATCH
    assert fitted(values, points, terms) is None


def test_too_few_structures_determine_nothing() -> None:
    with pytest.raises(ArithmeticError, match="do not determine"):
        fit(LAYERS * HIDDEN, along("layers", 2), basis_terms({"layers": BASES[1]}))


@pytest.mark.parametrize(("values", "expected"), [((3, 5, 7, 9), False), ((2, 3, 5), True), ((2, 4, 6), False)])
def test_numbers_that_tell_no_halves_apart(values: Sequence[int], expected: bool) -> None:
    terms = basis_terms({"layers": BASES[3]})
    assert determined([{"layers": value} for value in values], terms) is expected
