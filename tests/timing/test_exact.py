"""Times in ticks: exact sums, microseconds, whole nanoseconds."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tensortide.timing.durations import UNIT_CYCLE, Durations, Times, times_of
from tests.graphs import Builder


def test_cycles_of_a_unit_clock() -> None:
    times = Times((237_158, 1), UNIT_CYCLE)
    assert times.total_ns == Fraction(237_159 * 5, 6)
    assert times.us(237_158) == 237_158 / 1200
    assert times.ns(6) == 5


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20), st.fractions(Fraction(1, 1000), 1000))
def test_whole_nanoseconds_are_right_from_any_op_to_any_other(ticks: list[int], tick: Fraction) -> None:
    builder = Builder()
    for _ in ticks:
        builder.op()
    times = Times(tuple(ticks), tick)
    durations = times.durations(builder.graph(), "test")
    for start in range(len(ticks)):
        for end in range(start, len(ticks) + 1):
            assert abs(sum(durations.ns[start:end]) - times.ns(sum(ticks[start:end]))) <= 1


def test_durations_are_times() -> None:
    assert times_of(Durations((3, 4), "test", "measured")) == Times((3, 4), Fraction(1))
