"""Stationarity: noise has it, a drift and a wandering level have not, and outliers are named without spoiling it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensortide.errors import WorkloadError
from tensortide.timing.stationarity import LEAST, Stationarity, last_batches, stationarity

SEEDS = 100
NS = 10e6


@pytest.fixture(scope="module")
def stats() -> Any:
    """Statistics of SciPy, imported for these tests alone: each process that collects them would take half a second."""
    return importlib.import_module("scipy.stats")


def series(seed: int, count: int = 50) -> NDArray[np.float64]:
    """Times of steps with 1 % of noise."""
    return NS * (1 + 0.01 * np.random.default_rng(seed).standard_normal(count))


def found(change: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> list[Stationarity]:
    return [stationarity(change(series(seed)).tolist()) for seed in range(SEEDS)]


def test_noise_is_stationary() -> None:
    assert sum(one.stationary for one in found(lambda ns: ns)) >= 95
    skewed = [np.random.default_rng(seed).exponential(size=50) for seed in range(SEEDS)]
    assert sum(stationarity((NS * (1 + 0.02 * noise)).tolist()).stationary for noise in skewed) >= 90


def test_a_drift_is_found_and_measured() -> None:
    for one in found(lambda ns: ns * np.linspace(1, 1.05, len(ns))):
        assert one.drifts
        assert one.drift_change == pytest.approx(0.05, abs=0.02)
        assert one.verdict.startswith("not stationary: median 10.")
        assert "drift of +" in one.verdict
        assert not one.outliers


def test_a_wandering_level_is_found() -> None:
    waves = found(lambda ns: ns * (1 + 0.03 * np.sin(np.arange(len(ns)) / 2)))
    assert all(one.wanders and "neighbouring steps alike" in one.verdict for one in waves)


def test_outliers_are_named_and_do_not_spoil_the_verdict() -> None:
    def spoiled(ns: NDArray[np.float64]) -> NDArray[np.float64]:
        ns[[7, 30]] *= [1.4, 0.8]
        return ns

    all_found = found(spoiled)
    assert all({7, 30} <= {outlier.step for outlier in one.outliers} for one in all_found)
    assert sum(len(one.outliers) == 2 for one in all_found) >= 95
    assert sum(one.stationary for one in all_found) >= 95
    assert all_found[0].verdict.endswith(", 2 outliers")
    high, low = (next(o for o in all_found[0].outliers if o.step == step) for step in (7, 30))
    assert high.residual == pytest.approx(0.4, abs=0.04)
    assert high.deviations > 20
    assert low.deviations < -10


@pytest.mark.parametrize("digits", [2, 4])
def test_the_probability_is_that_of_kendalls_tau(digits: int, stats: Any) -> None:
    """SciPy's asymptotic form has the same variance, ties included, and no correction for continuity."""
    for seed in range(20):
        ns = (series(seed, 60) / NS).round(digits) * NS
        theirs = stats.kendalltau(np.arange(60), ns, method="asymptotic").pvalue
        assert stationarity(ns.tolist()).p == pytest.approx(theirs, abs=0.01)


def test_the_drift_is_that_of_theil_and_sen(stats: Any) -> None:
    ns = series(3)
    slope = stats.theilslopes(ns / np.median(ns)).slope
    assert stationarity(ns.tolist()).drift_change == pytest.approx(49 * slope)


def test_times_that_are_all_the_same_are_stationary() -> None:
    one = stationarity([5.0] * LEAST)
    assert (one.stationary, one.p, one.drift_change, one.autocorrelation, one.outliers) == (True, 1.0, 0.0, 0.0, ())


def test_last_batches_are_left_out() -> None:
    last = last_batches(50, 5, 4)
    assert last[:3] == (2, 6, 10)  # calls 7, 11, 15
    ns = series(1)
    ns[list(last)] *= 0.5
    assert {outlier.step for outlier in stationarity(ns.tolist()).outliers} == set(last)
    without = stationarity(ns.tolist(), last)
    assert not set(without.steps) & set(last)
    assert without.outliers == ()
    assert without.stationary


def test_few_steps_and_no_time_are_refused() -> None:
    with pytest.raises(WorkloadError, match="7 steps say nothing of drift: 8 or more are needed"):
        stationarity([1.0] * 7)
    with pytest.raises(WorkloadError, match="5 steps say nothing"):
        stationarity([1.0] * 8, without=(0, 1, 2))
    with pytest.raises(WorkloadError, match="took no time"):
        stationarity([0.0] * 9)
