"""Latency and bandwidth fitted to times that are known to come from a line."""

from __future__ import annotations

import numpy as np
import pytest

from tensortide.errors import TensortideError
from tensortide.run.link_speed import Sample, repeats_of
from tensortide.studies.placement.link_sweep import fitted, link_of, read_sizes, sizes_of
from tensortide.timing.links import link

SIZES = sizes_of(None, 1 << 40)


def samples(latency_ns: float, bytes_per_s: float, way: str = "out", noise: float = 0.0) -> list[Sample]:
    """Times of 25 transfers of each size, spread around those of a line."""
    random = np.random.default_rng(7)
    spread = 1 + noise * random.standard_normal((len(SIZES), 25))
    times = [(latency_ns + size * 1e9 / bytes_per_s) * row for size, row in zip(SIZES, spread, strict=True)]
    return [Sample("host", way, size, tuple(map(round, row))) for size, row in zip(SIZES, times, strict=True)]


@pytest.mark.parametrize(("noise", "within"), [(0.0, 0.002), (0.1, 0.05)])
def test_the_fit_recovers_latency_and_bandwidth_of_each_direction(noise: float, within: float) -> None:
    out, into = fitted([*samples(12_000, 12.5e9, noise=noise), *samples(9_000, 16e9, "in", noise=noise)])
    assert (out.way, into.way) == ("out", "in")
    assert out.latency_ns == pytest.approx(12_000, rel=within)
    assert out.bytes_per_s == pytest.approx(12.5e9, rel=within)
    assert into.bytes_per_s == pytest.approx(16e9, rel=within)
    assert out.residual_share <= out.worst_share
    assert out.worst_share < max(0.001, noise)
    link = link_of((out, into), "host")
    assert link.latency_ns == pytest.approx(10_500, rel=within)
    assert link.in_bytes_per_s == pytest.approx(16e9, rel=within)


def test_outliers_do_not_move_the_medians() -> None:
    late = [
        one._replace(times_ns=(*one.times_ns[:20], *(9 * ns for ns in one.times_ns[20:]))) for one in samples(5e3, 1e9)
    ]
    (found,) = fitted(late)
    assert found.bytes_per_s == pytest.approx(1e9, rel=0.01)


def test_a_latency_is_never_below_zero_and_times_that_fall_are_refused() -> None:
    (found,) = fitted([Sample("host", "in", 1000, (10,)), Sample("host", "in", 2000, (40,))])
    assert found.latency_ns == 0
    assert found.residual_share > 0.1
    with pytest.raises(TensortideError, match="do not grow with size"):
        fitted([Sample("host", "in", 1000, (900,)), Sample("host", "in", 2000, (10,))])


def test_sizes_and_repeats() -> None:
    assert SIZES[:4] == (1000, 2000, 5000, 10_000)
    assert SIZES[-1] == 10**9
    assert sizes_of(None, 60_000)[-1] == 50_000
    assert sizes_of(read_sizes("1e3, 4KiB,1MB"), 10**9) == (1000, 4096, 10**6)
    assert repeats_of(1000, 100) == 100
    assert 5 <= repeats_of(10**9, 100) < 10
    assert repeats_of(10**9, 2) == 2


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        *((text, 50e9) for text in ("400Gbit/s", "400Gb/s", "400Gbps", "400gbps", "400 Gbits/s", "50GB/s", "50GBps")),
        *((text, 3.125e9) for text in ("25Gbps,5us", "25e9b/s, 5 us", "3125MBytes/s,5us")),
        ("100 Mbit/s", 12.5e6),
        ("1GiB/s", 2**30),
    ],
)
def test_speeds_are_in_bytes_or_bits(text: str, rate: float) -> None:
    assert link(text).bytes_per_s == rate
    assert link(text).latency_ns == (5000 if "us" in text else link("1GB/s").latency_ns)
