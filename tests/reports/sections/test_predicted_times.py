"""Intervals of predicted times as they are written."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from tensortide.reports.sections.predicted_times import ends_ns, interval_text, legend, prediction_text
from tensortide.timing.estimates import Estimate, Provenance

TWOFOLD = Estimate.of(2e6, math.log(2), math.log(2), Provenance.MEASURED)
"""2 ms, half or twice as much."""


def test_a_known_time_has_both_ends_and_says_what_it_rests_on() -> None:
    assert ends_ns(TWOFOLD) == (1_000_000, 4_000_000)
    assert interval_text(TWOFOLD) == "1.00 ms to 4.00 ms"
    assert prediction_text(TWOFOLD) == "80 % interval 1.00 ms to 4.00 ms; measured"


def test_ops_of_unknown_time_add_to_the_least_and_leave_the_most_open() -> None:
    some = replace(TWOFOLD, unknown=1)
    assert ends_ns(some, 500_000) == (1_500_000, None)
    assert interval_text(some, 500_000) == "1.50 ms or more"
    assert prediction_text(Estimate(unknown=1), 500_000).startswith("no interval")


def test_the_legend_explains_each_basis_once_the_surest_first() -> None:
    text = legend([Provenance.EXTRAPOLATED, Provenance.MEASURED, Provenance.EXTRAPOLATED]).text
    assert text.index("measured: from") < text.index("extrapolated: by models fitted on other devices")
    assert text.count("extrapolated") == 1
    assert "80 % interval: 8 of 10 measured times" in text


@pytest.mark.parametrize("one", Provenance)
def test_every_basis_has_a_meaning(one: Provenance) -> None:
    assert one.meaning
