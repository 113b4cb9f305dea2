"""The conditions of formulas: those that go without saying are left out, and no others."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tensortide.expr import Condition, Expr, parse, parse_condition
from tensortide.formulas.region import divisible, folded, quotients, simplified


def holds(condition: Condition, **setting: int) -> bool:
    return condition.holds(condition.expr.evaluate(setting))


def kept(*texts: str, lowest: dict[str, int] | None = None, positive: tuple[str, ...] = ()) -> list[str]:
    asked = map(parse_condition, texts)
    return [str(c) for c in simplified(asked, lowest or {}, frozenset(map(parse, positive)), [])]


def test_quotients_among_sizes() -> None:
    sizes = [parse(text) for text in ("hidden", "hidden/heads", "batch*seq", "image/16", "hidden + 1", "ceil(n/2)")]
    assert [str(q) for q in quotients(sizes)] == ["image/16", "hidden/heads"]


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (["hidden/heads"], [("heads", "hidden")]),
        (["image/16", "image/8"], [("16", "image")]),
        (["hidden/heads", "hidden/heads/2"], [("2*heads", "hidden")]),
        (["hidden/heads", "batch*hidden/heads"], [("heads", "hidden")]),
        (["heads/kv_heads", "hidden/heads"], [("kv_heads", "heads"), ("heads", "hidden")]),
    ],
)
def test_what_must_divide_what(terms: list[str], said: list[tuple[str, str]]) -> None:
    pairs = [condition.divisor for condition in divisible(list(map(parse, terms)))]
    assert sorted((str(d), str(n)) for d, n in filter(None, pairs)) == sorted(said)
    assert len(pairs) == len(said)


divisors = st.integers(1, 6)


@given(h=divisors, extra=divisors, times=st.integers(1, 9))
def test_divisible_means_it(h: int, extra: int, times: int) -> None:
    (condition,) = divisible([parse("hidden/heads")])
    hidden = h * times + extra % h
    assert holds(condition, hidden=hidden, heads=h) == (hidden % h == 0)


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        (["floor(seq/4) >= 1", "floor(seq/8) >= 1", "batch*width*floor(seq/4) > 1"], ["seq >= 8"]),
        (["batch*floor(seq/4) > 1", "batch > 1", "seq >= 4"], ["batch > 1", "seq >= 4"]),
        (["seq % batch == 0", "floor(seq/batch) >= 1"], ["seq % batch == 0"]),
        (["seq % 12 == 0", "seq >= 12", "batch*seq > 1"], ["seq % 12 == 0"]),
        (["floor(seq/4) <= 5", "ceil(seq/4) >= 2"], ["seq <= 23", "seq >= 5"]),
    ],
)
def test_bounds_of_roundings_are_those_of_what_is_rounded(asked: list[str], left: list[str]) -> None:
    found = folded(map(parse_condition, asked))
    assert [str(condition) for condition in found] == left
    for setting in ({"seq": seq, "batch": b, "width": w} for seq in range(1, 30) for b in (1, 2) for w in (1, 3)):
        said = all(holds(parse_condition(text), **setting) for text in asked)
        assert said == all(holds(condition, **setting) for condition in found)


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ("chunk + seq >= chunk*ceil(seq/chunk) + 1", True),
        ("kernel + 63 >= 2*ceil(kernel/2)", True),
        ("seq >= chunk*floor(seq/chunk)", True),
        ("seq > chunk*floor(seq/chunk)", False),
        ("chunk + seq >= chunk*ceil(seq/chunk) + 2", False),
        ("kernel + 1 >= 4*ceil(kernel/2)", False),
    ],
)
def test_what_a_rounding_is_never_beyond_is_certain(text: str, certain: bool) -> None:
    """``b*floor(a/b)`` is at most ``a``, and more than ``a - b``; brute force says so too."""
    condition = parse_condition(text)
    settings = [{"seq": n, "chunk": k, "kernel": n} for n in range(1, 30) for k in range(1, 12)]
    assert (not folded([condition])) is certain
    assert all(holds(condition, **setting) for setting in settings) is certain


def test_what_is_certain_is_not_said() -> None:
    assert kept("batch > 0", "batch*seq >= 1", "batch + seq != 0", "1 >= 0", "2*hidden + 3 > 4") == []
    assert kept("batch > 1", "seq != 1") == ["batch > 1", "seq != 1"]
    assert kept("batch > 1", "seq != 1", lowest={"batch": 2}) == ["seq != 1"]
    assert kept("seq - 2*window > 0", positive=("seq - 2*window",)) == []
    assert kept("batch*(seq - 2*window) > 0", positive=("seq - 2*window",)) == []
    assert kept("seq - 2*window > 0") == ["seq > 2*window"]
    assert kept("hidden == 64") == ["hidden == 64"]


def test_what_is_violated_where_the_formulas_were_right_is_not_said() -> None:
    asked = [parse_condition("seq > 1"), parse_condition("batch > 1")]
    left = simplified(asked, {}, frozenset(), [{"seq": 1, "batch": 2}])
    assert [str(condition) for condition in left] == ["batch > 1"]


def test_a_condition_is_said_once_and_in_lowest_terms() -> None:
    assert kept("4*seq > 8", "seq > 2", "seq*hidden > 2*hidden") == ["seq > 2"]


expressions = st.lists(st.integers(-3, 3), min_size=4, max_size=4).map(
    lambda c: c[0] * parse("a") + c[1] * parse("b") + c[2] * parse("a*b") + c[3]
)


@given(expr=expressions, relation=st.sampled_from(("!=", ">=", ">")), a=st.integers(1, 9), b=st.integers(1, 9))
def test_no_condition_that_matters_is_lost(expr: Expr, relation: str, a: int, b: int) -> None:
    assume(expr.terms)
    condition = Condition(expr, relation)  # type: ignore[arg-type]
    if not simplified([condition], {}, frozenset(), []):
        assert holds(condition, a=a, b=b)


@pytest.mark.parametrize(
    ("texts", "left"),
    [
        (["hidden > 1024", "hidden > 1", "batch*hidden > 1"], ["hidden > 1024"]),
        (["layers > 1", "layers >= 2"], ["layers > 1"]),
        (["hidden <= 4096", "hidden <= 1024", "hidden < 1025"], ["hidden <= 1024"]),
        (["batch > 1", "batch*hidden > 1", "batch*seq > 2"], ["batch > 1", "batch*seq > 2"]),
        (["hidden % 8 == 0", "hidden % 64 == 0"], ["hidden % 64 == 0"]),
        (["hidden >= heads", "hidden > heads"], ["hidden > heads"]),
        (["seq <= positions", "2*seq <= 2*positions + 1"], ["positions >= seq"]),
        (["hidden != 3", "hidden > 3"], ["hidden != 3", "hidden > 3"]),
        (["hidden == 3", "hidden >= 2"], ["hidden == 3"]),
    ],
)
def test_what_follows_from_another_condition_is_left_out(texts: list[str], left: list[str]) -> None:
    assert [str(c) for c in folded(map(parse_condition, texts))] == left


def test_what_follows_from_the_region_is_left_out_of_further_conditions() -> None:
    region = [parse_condition("layers > 1")]
    assert folded([parse_condition("layers >= 2"), parse_condition("layers >= 3")], region) == (
        parse_condition("layers >= 3"),
    )


coefficient = st.integers(-3, 3)
inequality = st.builds(
    lambda a, b, ab, c, relation: f"{a}*x + {b}*y + {ab}*x*y + {c} {relation} 0",
    *(coefficient, coefficient, st.sampled_from([0, 0, 1, 2]), st.integers(-12, 12)),
    st.sampled_from([">", ">=", "==", "!="]),
)


@given(st.lists(inequality, min_size=2, max_size=5))
def test_folded_conditions_hold_at_the_same_settings(texts: list[str]) -> None:
    conditions = [c for c in map(parse_condition, texts) if c.expr.value is None]
    left = folded(conditions)
    for x in range(1, 9):
        for y in range(1, 9):
            assert all(holds(c, x=x, y=y) for c in conditions) == all(holds(c, x=x, y=y) for c in left)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["m*ceil(s/m) > s", "s != m*floor(s/m)"], ["s % m != 0"]),
        (["s >= m*ceil(s/m)", "s % m == 0", "2 >= 1"], ["s % m == 0"]),
    ],
)
def test_conditions_on_a_remainder_are_one(given: list[str], shown: list[str]) -> None:
    assert [str(condition) for condition in folded(map(parse_condition, given))] == shown


def test_what_is_given_is_left_out() -> None:
    given = parse_condition("batch*hidden > 1")
    assert folded([given, parse_condition("layers == 8")], [given]) == (parse_condition("layers == 8"),)
