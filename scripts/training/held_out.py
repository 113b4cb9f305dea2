"""Residuals on held-out samples: of devices, or of shapes, that a model has not seen. Intervals are made of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensortide.timing.fit.samples import Samples
from tensortide.timing.models.learned import Learned

Floats = NDArray[np.float64]
Fit = Callable[[Sequence[Samples]], Learned]


class HeldOut(NamedTuple):
    """Log ``residuals``, measured over predicted, and the predictions in nanoseconds."""

    residuals: Floats
    predicted_ns: Floats


def held_out(measured: Sequence[Samples], fit: Fit) -> HeldOut:
    """Log residuals and predictions of every device by a model of the other architectures."""
    measured = [each.of_device() for each in measured]
    residuals, predicted = [], []
    for arch in dict.fromkeys(each.device.arch for each in measured):
        model = fit([each for each in measured if each.device.arch != arch])
        for each in measured:
            if each.device.arch == arch:
                found = model.predict(each.columns)
                residuals.append(np.log(each.ns / found))
                predicted.append(found)
    return HeldOut(np.concatenate(residuals), np.concatenate(predicted))


def halves(measured: Sequence[Samples], fit: Fit) -> HeldOut:
    """Log residuals and predictions of one half of the shapes of every device by a model of the other half."""
    measured = [each.of_device() for each in measured]
    rng = random.Random(0)
    marks = [np.array([rng.random() < 0.5 for _ in range(len(each))]) for each in measured]
    residuals, predicted = [], []
    for side in (True, False):
        model = fit([each.where(mark == side) for each, mark in zip(measured, marks, strict=True)])
        for each, mark in zip(measured, marks, strict=True):
            rest = each.where(mark != side)
            found = model.predict(rest.columns)
            residuals.append(np.log(rest.ns / found))
            predicted.append(found)
    return HeldOut(np.concatenate(residuals), np.concatenate(predicted))
