"""Numbers for people, and bytes read back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import TensortideError
from tensortide.units import format_bytes, format_count, format_ns, format_percent, parse_bytes, printed_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (1024**2 - 1, "1.00 MiB"),
        (1000 * 1024**2, "1000 MiB"),
        (13249974107, "12.34 GiB"),
        (-5000, "-4.88 KiB"),
        (3 * 1024**7, "3072 EiB"),
    ],
)
def test_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text


@given(st.integers(0, 1 << 50))
def test_the_bytes_that_are_printed_of_a_number_or_a_little_more_are_read_back(least: int) -> None:
    found = printed_bytes(least)
    assert least <= found <= least * 1.01 + 1
    assert parse_bytes(format_bytes(found)) == found


@pytest.mark.parametrize(
    ("count", "unit", "text"),
    [
        (0, "FLOP", "0 FLOP"),
        (999, "", "999"),
        (1000, "", "1.00 k"),
        (124_439_808, "", "124.4 M"),
        (3_170_000_000_000, "FLOP", "3.17 TFLOP"),
        (99_995, "", "100.0 k"),
        (999_950, "", "1.00 M"),
        (10**27, "FLOP", "1000 YFLOP"),
        (math.inf, "", "inf"),
        (math.nan, "", "nan"),
    ],
)
def test_counts(count: float, unit: str, text: str) -> None:
    assert format_count(count, unit) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (1, 2, "50.0 %"),
        (0, 7, "0 %"),
        (7, 7, "100 %"),
        (9999, 10000, ">99.9 %"),
        (1, 10000, "<0.1 %"),
        (3, 0, "-"),
        (-1, 4, "-25.0 %"),
        (math.nan, 4, "-"),
    ],
)
def test_percent(part: float, whole: int, text: str) -> None:
    assert format_percent(part, whole) == text


def test_durations_from_a_microsecond_to_a_second_have_three_digits_and_shorter_ones_are_exact() -> None:
    times = [0, 5, 999, 1e3, 9_995, 99_950, 37e6, 58.7e6, 999.9e6, 1.9e9, 60e9]
    assert [format_ns(ns) for ns in times] == [
        *("0 ns", "5 ns", "999 ns", "1.00 us", "10.0 us", "100 us"),
        *("37.0 ms", "58.7 ms", "1000 ms", "1.90 s", "60.0 s"),
    ]


def test_halves_are_rounded_away_from_zero() -> None:
    assert [format_bytes(kib * 1024) for kib in (577.25, -577.25, 577.75)] == ["577.3 KiB", "-577.3 KiB", "577.8 KiB"]
    times = [format_ns(ns) for ns in (576_500, 577_500, 2.25 * 3.6e12, 10.5 * 864e11)]
    assert times == ["577 us", "578 us", "2.3 h", "11 days"]
    assert format_percent(1, 16) == "6.3 %"
    assert format_count(0.12345) == "0.1235"  # a little more than a half as a float


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("8GiB", 8 << 30),
        ("24 GB", 24 * 10**9),
        ("1e9", 10**9),
        ("1.5e9", 15 * 10**8),
        ("12", 12),
        (13, 13),
        ("1_000", 1000),
        ("0.5KiB", 512),
        (" 8 gib ", 8 << 30),
        ("8G", 8 * 10**9),
        ("80 bytes", 80),
        ("0.1 KB", 100),
    ],
)
def test_parsed(text: str | int, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "8 gigs", "-1", "GiB", "1.5", "1e999999", "8GiBB", "0x10", "nan", "\uff18GiB"])
def test_what_is_no_number_of_bytes_is_an_error_that_says_how_to_write_one(text: str) -> None:
    with pytest.raises(TensortideError, match="number of bytes"):
        parse_bytes(text)


@given(st.integers(0, 2**70))
def test_what_is_printed_reads_back_to_within_its_digits(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.006)


@given(st.integers(-(2**80), 2**80))
def test_counts_have_three_or_four_digits(count: int) -> None:
    number = format_count(count).split()[0].lstrip("-").replace(".", "")
    assert len(number) <= 4 or abs(count) >= 10**27
