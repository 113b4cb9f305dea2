"""Estimates as a monoid, and intervals of sums."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.timing.estimates import COMMON, UNKNOWN, Estimate, Provenance

known = st.sampled_from([kind for kind in Provenance if kind is not Provenance.UNKNOWN])
widths = st.floats(0.0, 1.0)
estimates = st.one_of(
    st.just(UNKNOWN),
    st.just(Estimate()),
    st.builds(Estimate.of, st.floats(1.0, 1e9), widths, widths, known, st.sampled_from("abc")),
)


def assert_close(a: Estimate, b: Estimate) -> None:
    for name in ("time_ns", "low_ns", "high_ns"):
        assert getattr(a, name) == pytest.approx(getattr(b, name), rel=1e-9)
    assert (a.provenance, a.unknown) == (b.provenance, b.unknown)


@given(estimates, estimates, estimates)
def test_sums_do_not_depend_on_how_they_are_grouped(a: Estimate, b: Estimate, c: Estimate) -> None:
    assert_close((a + b) + c, a + (b + c))
    assert_close(a + b, b + a)
    assert_close(a + Estimate(), a)


@given(estimates, estimates)
def test_an_interval_holds_its_time_and_unknown_ops_are_counted(a: Estimate, b: Estimate) -> None:
    total = a + b
    assert total.low_ns <= total.time_ns <= total.high_ns
    assert total.unknown == a.unknown + b.unknown
    assert (total.provenance is Provenance.UNKNOWN) == bool(total.unknown)


def test_the_interval_of_one_op_is_its_own() -> None:
    one = Estimate.of(1000.0, 0.1, 0.2, Provenance.INTERPOLATED, "mm")
    assert one.low_ns == pytest.approx(1000 * math.exp(-0.1))
    assert one.high_ns == pytest.approx(1000 * math.exp(0.2))
    assert one.log_width == pytest.approx(0.15)


def test_errors_of_a_family_add_up_and_those_of_different_families_partly_cancel() -> None:
    one = Estimate.of(100.0, 0.2, 0.2, Provenance.EXTRAPOLATED, "mm")
    same = sum([one] * 100, Estimate())
    mixed = sum((Estimate.of(100.0, 0.2, 0.2, Provenance.EXTRAPOLATED, str(i)) for i in range(100)), Estimate())
    assert same.log_width == pytest.approx(0.2 * math.sqrt(COMMON + (1 - COMMON) / 100))
    assert mixed.log_width == pytest.approx(0.02)
    assert (one * 100).log_width == pytest.approx(0.2)


def test_the_headline_is_the_worst_provenance_of_a_twentieth_of_the_time() -> None:
    sure = Estimate.of(96.0, 0.1, 0.1, Provenance.MEASURED)
    assert (sure + Estimate.of(4.0, 0.1, 0.1, Provenance.EXTRAPOLATED)).provenance is Provenance.MEASURED
    assert (sure + Estimate.of(6.0, 0.1, 0.1, Provenance.EXTRAPOLATED)).provenance is Provenance.EXTRAPOLATED
