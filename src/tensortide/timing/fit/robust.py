"""Robust least squares in NumPy alone, so that a calibration needs no optimization library."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ROUNDS = 60
_STEP = 1e-6
_DAMPING = (1e-3, 1e-9, 1e6)
"""Of Levenberg and Marquardt, relative to the diagonal: at the start, and its bounds."""
_CONVERGED = 1e-8


def soft_l1(residuals: Callable[[Floats], Floats], start: Floats, rounds: int = ROUNDS) -> Floats:
    """Minimize the sum of ``2 (sqrt(1 + z ** 2) - 1)`` over the ``residuals`` z, from ``start``.

    Levenberg-Marquardt steps on reweighted squares: a residual counts by its square up to about 1, linearly beyond.
    """
    place, damping = start.copy(), _DAMPING[0]
    found = residuals(place)
    loss = _loss(found)
    for _ in range(rounds):
        slopes = np.column_stack([(residuals(place + step) - found) / _STEP for step in _STEP * np.eye(len(place))])
        weights = 1 / np.sqrt(1 + found**2)
        normal, gradient = (slopes.T * weights) @ slopes, slopes.T @ (weights * found)
        before = loss
        while damping <= _DAMPING[2]:
            scale = damping * np.diag(np.diag(normal) + _DAMPING[1])
            tried = place - np.linalg.solve(normal + scale, gradient)
            new = residuals(tried)
            if _loss(new) < loss:
                place, found, loss = tried, new, _loss(new)
                damping = max(damping / 10, _DAMPING[1])
                break
            damping *= 10
        if before - loss <= _CONVERGED * before:
            return place
    return place


def _loss(residuals: Floats) -> float:
    return float(2 * (np.sqrt(1 + residuals**2) - 1).sum())
