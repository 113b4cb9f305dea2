"""Intervals of predictions hold the shares that they state, and corrections help a model that is off."""

from __future__ import annotations

import numpy as np
import pytest

from tensortide.timing import device
from tensortide.timing.intervals import LEAST, coverage, pool, quantiles
from tensortide.timing.models.kriging import correction
from tensortide.timing.rates import columns
from tensortide.timing.work import product


def test_quantiles_hold_the_share_that_they_state() -> None:
    rng = np.random.default_rng(0)
    residuals = rng.normal(0.0, 0.3, 2000)
    half = quantiles(residuals[:1000])
    ns = np.full(1000, 1000.0)
    held = coverage(
        (ns * np.exp(-half.below)).tolist(),
        (ns * np.exp(half.above)).tolist(),
        (ns * np.exp(residuals[1000:])).tolist(),
    )
    assert held.cells == 1000
    assert 0.75 <= held.share <= 0.85
    assert held.log_width == pytest.approx(1.2816 * 0.3, rel=0.1)


def test_residuals_that_err_alike_count_as_one() -> None:
    """1000 ops of one kind hit exactly, and 40 kinds of one op each missed by up to a factor: the next kind is one of
    the 41."""
    others = np.linspace(-0.8, 0.8, 40)
    residuals, weights = np.concatenate([np.zeros(1000), others]), np.concatenate([np.full(1000, 1e-3), np.ones(40)])
    alike, alone = quantiles(residuals, weights=weights), quantiles(residuals)
    assert alike.count == 41
    assert alone.above < 0.1 < 0.6 < min(alike.below, alike.above) < 0.8
    assert pool(residuals, np.full(1040, 5e3), weights=weights).of(5e3) == alike


def test_a_decade_with_few_residuals_takes_those_of_all() -> None:
    residuals = np.concatenate([np.linspace(-0.1, 0.1, 100), np.full(LEAST - 1, 0.9)])
    found = pool(residuals, np.concatenate([np.full(100, 5e3), np.full(LEAST - 1, 5e6)]))
    assert set(found.decades) == {3}
    assert found.of(5e6) == found.all
    assert found.of(4e3).above < 0.1


def test_points_of_a_device_correct_a_model_that_is_off() -> None:
    rng = np.random.default_rng(1)
    asked = [product(*rng.integers(64, 4096, 3).tolist()) for _ in range(60)]
    table = columns(asked, device("A100-SXM-80GB"))
    fitted = correction(table, np.full(60, 0.3))
    assert fitted.factor(table) == pytest.approx(np.full(60, np.exp(0.3)), rel=1e-6)
