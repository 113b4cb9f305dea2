"""Solving: what bisection finds is what trying every value finds; when no value exists, that is said."""

from __future__ import annotations

import contextlib
import math
from fractions import Fraction

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tensortide.errors import ExpressionError, NoSolution, Unsearched
from tensortide.expr import Expr, constant, maximum, parse, symbol, total
from tensortide.formulas import Formulas, solve
from tensortide.formulas.crossing import crossing, first
from tests.expr.strategies import Case, cases
from tests.formulas.samples import made, transformer, word_lm

n = symbol("n")
polynomials = st.one_of(
    st.lists(st.integers(-20, 20), min_size=1, max_size=4).map(
        lambda coefficients: total(c * n**i for i, c in enumerate(coefficients))
    ),
    st.builds(
        lambda sign, roots: sign * math.prod((n - root for root in roots), start=constant(1)),
        st.sampled_from([1, -1]),
        st.lists(st.integers(1, 45), min_size=1, max_size=3),
    ),
)
rising = st.lists(st.integers(0, 9), min_size=2, max_size=3).map(
    lambda coefficients: total(c * n**i for i, c in enumerate(coefficients))
)


@settings(max_examples=3 * settings().max_examples)
@given(st.one_of(polynomials, st.builds(lambda a, b, c: maximum(a, b) - c, rising, rising, st.integers(0, 900))))
def test_crossings_are_proofs(expr: Expr) -> None:
    direction = crossing(expr, "n")
    if direction:
        met = [expr.evaluate({"n": i}) >= 0 for i in range(1, 60)]
        assert met == sorted(met, reverse=direction < 0)


@settings(max_examples=3 * settings().max_examples)
@given(cases, st.integers(1, 12), st.integers(1, 12))
def test_crossings_of_anything_are_proofs(case: Case, b: int, h: int) -> None:
    expr = constant(0)
    with contextlib.suppress(ArithmeticError):
        expr = case.expr.subs({"b": b, "h": h})
    direction = crossing(expr, "n")
    with contextlib.suppress(ArithmeticError):
        if direction:
            values = [expr.subs({"n": i}).value for i in range(1, 40)]
            met = [value >= 0 for value in values if value is not None]
            assert met == sorted(met, reverse=direction < 0)


@pytest.mark.parametrize(
    ("shown", "direction"),
    [
        ("max(3*n, n**2) - 100", 1),
        ("100 - max(3*n, n**2)", -1),
        ("n*(n//2) - 8", 1),
        ("n**2 - 5*n", 1),
        ("n % 3", 0),
        ("(n - 5)*(n - 9)", 0),
        ("max(12/n, 3)", 0),
    ],
)
def test_what_is_proved(shown: str, direction: int) -> None:
    assert crossing(parse(shown), "n") == direction


@given(st.integers(1, 9), st.integers(0, 90), st.integers(0, 100))
def test_first(low: int, width: int, threshold: int) -> None:
    high = low + width
    assert first(lambda i: i >= threshold, low, high) == min(max(threshold, low), high + 1)


@settings(max_examples=3 * settings().max_examples)
@given(polynomials, st.integers(-300, 300), st.sampled_from(["<=", ">=", "<", ">"]), st.integers(1, 5))
def test_solutions_are_what_trying_every_value_finds(expr: Expr, limit: int, relation: str, divisor: int) -> None:
    formulas = Formulas(
        totals={"flops": expr + 400},
        defaults={"n": divisor},
        region=made({}, {}, f"n % {divisor} == 0", "n <= 50").region,
    )
    legal = range(divisor, 51, divisor)
    compare = {"<=": int.__le__, ">=": int.__ge__, "<": int.__lt__, ">": int.__gt__}[relation]
    met = [i for i in legal if compare(formulas.totals["flops"].evaluate({"n": i}), limit + 400)]
    assume(limit + 400 >= 0)
    for want, expected in (("largest", max(met, default=None)), ("smallest", min(met, default=None))):
        if expected is None:
            with pytest.raises(NoSolution, match="no n reaches"):
                solve(formulas, "n", f"flops {relation} {limit + 400}", want=want)  # type: ignore[arg-type]
        else:
            found = solve(formulas, "n", f"flops {relation} {limit + 400}", want=want)  # type: ignore[arg-type]
            assert found.value == expected
            assert found.totals == formulas.evaluate(n=expected)


@settings(max_examples=100)
@given(rising, st.integers(0, 600))
def test_nearest(expr: Expr, wanted: int) -> None:
    assume(expr.degree("n") > 0)
    formulas = Formulas(totals={"parameters": expr}, defaults={"n": 1})
    value = {i: expr.evaluate({"n": i}) for i in range(1, 700)}
    try:
        found = solve(formulas, "n", f"parameters = {wanted}")
    except ExpressionError:
        assert value[1] > wanted
        return
    assert abs(value[found.value] - wanted) == min(abs(v - wanted) for v in value.values())


def test_largest_batch_that_fits() -> None:
    found = solve(transformer(), "batch", "peak_bytes <= 24GiB", seq=512)
    assert found.kind == "largest"
    assert found.by_shape
    assert not found.proved
    assert found.reached <= 24 * 2**30
    assert found.neighbour is not None
    assert found.neighbour[0] == found.value + 1
    assert found.neighbour[1] > 24 * 2**30
    assert found.setting["seq"] == 512


def test_ratios_and_units() -> None:
    formulas = word_lm()
    found = solve(formulas, "b", "flops/bytes >= 19.9", h=38100)
    at = formulas.evaluate(h=38100, b=found.value)
    below = formulas.evaluate(h=38100, b=found.value - 1)
    assert found.kind == "smallest"
    assert found.neighbour == (found.value - 1, below["flops"] / below["bytes"])
    assert Fraction(at["flops"], at["bytes"]) >= Fraction("19.9") > Fraction(below["flops"], below["bytes"])
    published = solve(formulas, "h", "parameters = 23.8B", b=128)
    assert published.value == 37_948
    assert published.totals["flops"] // 10**12 == 1440  # 1,444 published
    assert solve(formulas, "h", "parameters >= 1e9").value == solve(formulas, "h", "parameters >= 1_000M").value
    assert solve(transformer(), "batch", "bytes <= 2e12").value == solve(transformer(), "batch", "bytes <= 2 TB").value
    assert solve(formulas, "b", "footprint_bytes >= 2*bytes/7").value >= 1
    assert solve(formulas, "s", "flops >= 5 PFLOP").totals["flops"] >= 5 * 10**15


def test_the_region_is_respected() -> None:
    found = solve(transformer(), "seq", "peak_bytes <= 80GB")
    assert found.value == 1024  # positions
    assert found.neighbour is None
    heads = solve(transformer(), "heads", "peak_bytes <= 28GiB")
    assert 768 % heads.value == 0
    assert solve(transformer(), "hidden", "parameters = 1.3B").value % 12 == 0
    with pytest.raises(ExpressionError, match="hold for no seq: they need seq >= 9 and seq <= 5"):
        solve(made({"flops": "seq"}, {"seq": 1}, "seq >= 9", "seq <= 5"), "seq", "flops <= 3")


def test_along_a_path_that_divides() -> None:
    """Where heads are hidden/64, only multiples of 64 count, and the peak is whole at no other value."""
    found = solve(transformer().along({"heads": "hidden/64"}), "hidden", "peak_bytes <= 40GiB")
    assert found.by_shape
    assert found.value % 64 == 0
    assert found.neighbour is not None
    assert found.neighbour[0] == found.value + 64
    assert found.totals == transformer().evaluate(hidden=found.value, heads=found.value // 64)
    with pytest.raises(ExpressionError, match=r"they need hidden % 64 == 0"):
        transformer().along({"heads": "hidden/64"}).evaluate(hidden=100)


def test_when_no_value_exists_it_is_said() -> None:
    with pytest.raises(NoSolution, match=r"no batch reaches peak_bytes <= 1GiB at .*; it is .* GiB at batch=1"):
        solve(transformer(), "batch", "peak_bytes <= 1GiB")
    with pytest.raises(NoSolution, match=r"no batch reaches flops/bytes >= 500"):
        solve(transformer(), "batch", "flops/bytes >= 500")
    with pytest.raises(ExpressionError, match="divides by 0"):
        solve(made({"flops": "n", "io_bytes": "n - 1"}, {"n": 1}), "n", "flops/io_bytes >= 1")
    with pytest.raises(NoSolution, match="no hidden reaches"):
        solve(transformer(), "hidden", "parameters = 3")
    with pytest.raises(ExpressionError, match="holds for every batch from 1 to"):
        solve(transformer(), "batch", "peak_bytes >= 1", want="largest")


@given(st.integers(2, 40), st.integers(-60, 600))
def test_what_is_denied_is_so_or_not_checked(start: int, wanted: int) -> None:
    """Formulas hold from some value on: of the values below nothing is denied. Above, all were looked at."""
    low, high = made({"flops": "6*n"}, {"n": 1}, f"n < {start}"), made({"flops": "7*n"}, {"n": 1}, f"n >= {start}")
    goal = f"flops <= {max(0, wanted)}"
    met = [n for n in range(1, 200) if (6 if n < start else 7) * n <= wanted]
    both = msgspec.structs.replace(high, others=(low,))
    if met:
        assert solve(both, "n", goal).value == max(met)
    else:
        with pytest.raises(NoSolution, match=r"no n reaches flops <= \d+; it is [^\n]*$"):
            solve(both, "n", goal)
    if not any(n >= start for n in met):
        with pytest.raises(
            Unsearched, match=f"Not checked everywhere: the formulas hold for n only where n >= {start}"
        ):
            solve(high, "n", goal)


def test_a_value_that_is_met_between_two_that_exceed_is_found() -> None:
    """The two sides are equal at 43, and the left one is larger at every other value."""
    found = solve(made({"flops": "100 + (n - 43)**2 + 5*((n - 43) % 7)"}, {"n": 1}), "n", "flops = 100")
    assert found.value == 43


def test_what_is_not_proved_is_scanned() -> None:
    wavy = made({"flops": "(n - 40)**2 + 5 * (n % 7)"}, {"n": 1})
    found = solve(wavy, "n", "flops <= 100")
    assert not found.by_shape
    values = {i: wavy.evaluate(n=i)["flops"] for i in range(1, 200)}
    assert found.value == max(i for i, value in values.items() if value <= 100)
    assert solve(wavy, "n", "flops <= 100", want="smallest").value == min(i for i, v in values.items() if v <= 100)


@pytest.mark.parametrize(
    "bad",
    [
        "flops",
        "flop <= 3",
        "flops <= ",
        "<= 3",
        "flops <= 3 apples",
        "peak_bytes <= 24XiB",
        "1 < flops < 3",
        "flops <= q",
    ],
)
def test_bad_targets_are_one_clear_error(bad: str) -> None:
    with pytest.raises(ExpressionError):
        solve(transformer(), "batch", bad)


def test_wrong_names() -> None:
    with pytest.raises(ExpressionError, match="did you mean batch"):
        solve(transformer(), "bach", "flops <= 3")
    with pytest.raises(ExpressionError, match=r"peek_bytes' is no total .*: did you mean peak_bytes"):
        solve(transformer(), "batch", "peek_bytes <= 24GiB")
    with pytest.raises(
        ExpressionError,
        match=r"has no formula here .*; there are .*peak_bytes",
    ):
        solve(transformer(), "batch", "peak_with_workspace_bytes <= 24GiB")
    with pytest.raises(ExpressionError, match="at once"):
        solve(transformer(), "batch", "flops <= 3", batch=3)


def test_the_nearest_names_what_leaves_a_nearer_one_out() -> None:
    """A condition that is asked value by value excludes the value at which the target is met."""
    formulas = made({"parameters": "100*groups"}, {"groups": 2, "heads": 8}, "floor(heads/groups) > 1")
    solution = solve(formulas, "groups", "parameters = 800")
    assert (solution.value, solution.limited_by) == (4, "floor(heads/groups) > 1")
    assert not solution.proved
    assert solve(formulas, "groups", "parameters = 300").limited_by == ""
