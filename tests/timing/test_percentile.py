"""The p90 of a group of ops is that of its calls."""

from __future__ import annotations

import random

import pytest

from tensortide.timing.percentile import Spread, pooled_p90


def times(spread: Spread, count: int) -> list[float]:
    """Times with the minimum, median and p90 of ``spread``, the slowest tenth at its p90."""
    found = []
    for i in range(count):
        share = (i + 0.5) / count
        if share < 0.5:
            found.append(spread.min_ns + (spread.median_ns - spread.min_ns) * share / 0.5)
        elif share < 0.9:
            found.append(spread.median_ns + (spread.p90_ns - spread.median_ns) * (share - 0.5) / 0.4)
        else:
            found.append(float(spread.p90_ns))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_p90_of_all_calls_together(seed: int) -> None:
    draw = random.Random(seed)
    spreads = []
    for _ in range(draw.randint(2, 6)):
        least = draw.randint(100, 100_000)
        median = least + draw.randint(0, least)
        spreads.append(Spread(least, median, median + draw.randint(1, least), draw.randint(1, 4)))
    calls = sorted(ns for one in spreads for ns in times(one, 2000) * one.calls)
    assert pooled_p90(spreads) == pytest.approx(calls[int(0.9 * len(calls))], rel=0.01)


def test_of_one_op_and_of_equal_ops_it_is_theirs() -> None:
    one = Spread(900, 1000, 1200)
    assert pooled_p90([one]) == pooled_p90([one] * 7) == 1200
    assert pooled_p90([Spread(5, 5, 5)] * 3) == 5


@pytest.mark.parametrize("most", [1 << 54, 1 << 63, 1 << 64, 10**30, 10**300])
def test_it_ends_for_times_that_no_float_tells_from_their_neighbours(most: int) -> None:
    ordinary, absurd = Spread(900, 1000, 1200), Spread(900, 1000, most)
    assert pooled_p90([ordinary] * 20 + [absurd]) == pytest.approx(pooled_p90([ordinary] * 21), rel=0.2)
    assert pooled_p90([absurd] * 2) == pytest.approx(most)


def test_a_p90_below_the_median_is_no_reason_to_go_on() -> None:
    assert pooled_p90([Spread(900, 1000, 950)] * 2) == 950


def test_a_rare_slow_op_does_not_move_it_and_a_frequent_one_does() -> None:
    fast, slow = Spread(100, 110, 120), Spread(10_000, 11_000, 12_000)
    assert pooled_p90([fast] * 20 + [slow]) <= 120
    assert pooled_p90([fast] * 5 + [slow]) >= 10_000
