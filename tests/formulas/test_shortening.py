"""Expressions within a region: shorter, and equal at every setting of it."""

from __future__ import annotations

import pytest

from tensortide.expr import parse, parse_condition, text
from tensortide.formulas.shortening import simple, within


@pytest.mark.parametrize(
    ("expr", "region", "short"),
    [
        ("floor(floor(s/4)/max(1, floor(s/4)))", ["s >= 4"], "1"),
        ("floor(floor(s/4)/max(1, floor(s/4)))", [], ""),
        ("s*max(1, floor(s/4)) + max(s, 3)", ["s >= 4"], "s*(floor(s/4) + 1)"),
        ("12*batch*floor(h/12) + h", ["h % 12 == 0"], "h*(batch + 1)"),
        ("12*batch*floor(h/12) + h", ["h % 12 == 0", "h >= 12"], "h*(batch + 1)"),
        ("floor(h/n)*n + max(2, n)", ["h % n == 0", "n > 1"], "h + n"),
        ("max(s, t)", ["s >= 4"], "max(s, t)"),
        ("min(s, 3)*t", ["s >= 4"], "3*t"),
    ],
)
def test_an_expression_is_as_short_as_the_region_allows(expr: str, region: list[str], short: str) -> None:
    conditions = [parse_condition(condition) for condition in region]
    found = within(parse(expr), conditions)
    assert text(found) == (short or text(parse(expr)))
    for number in range(1, 60):
        setting = {"s": number, "t": 1 + number % 7, "h": number * 12, "n": 1 + number % 4, "batch": 3}
        if all(condition.holds(condition.expr.evaluate(setting)) for condition in conditions):
            assert found.evaluate(setting) == parse(expr).evaluate(setting)


@pytest.mark.parametrize(
    ("condition", "short"),
    [
        ("h*ceil(s/4) > ceil(s/4)", "h > 1"),
        ("h*floor(-b*s/(100*n)) < floor(-b*s/(100*n))", "h > 1"),
        ("h*floor((s - 9)/4) < floor((s - 9)/4)", "h*floor((s - 9)/4) < floor((s - 9)/4)"),
    ],
)
def test_what_both_sides_of_a_condition_share_is_left_out(condition: str, short: str) -> None:
    assert simple(parse_condition(condition), []) == parse_condition(short)
