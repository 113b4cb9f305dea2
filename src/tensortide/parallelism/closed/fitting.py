"""Fits of the closed forms to measured steps, in logarithms with a soft L1 loss; steps held out; intervals of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tensortide.parallelism.closed.columns import Columns, Floats, Step, columns
from tensortide.parallelism.closed.constants import PRIOR, SPREAD, StepConstants
from tensortide.parallelism.closed.formula import parts
from tensortide.parallelism.closed.published import HIGH, LOW, START, Seven, step_seconds
from tensortide.timing.fit.robust import soft_l1

NOISE = 0.1
"""Log error of a measured step that counts by its square; larger ones count linearly."""
FOLDS = 5


@dataclass(frozen=True, eq=False)
class MeasuredSteps:
    """Measured steps: their columns and nanoseconds. ``twins``: numbers that repeated configurations share."""

    columns: Columns
    ns: Floats
    twins: NDArray[np.int64]

    def where(self, mark: NDArray[np.bool_] | NDArray[np.int64]) -> MeasuredSteps:
        """The steps that ``mark`` selects."""
        return MeasuredSteps(self.columns.where(mark), self.ns[mark], self.twins[mark])

    def __len__(self) -> int:
        return self.ns.size


def measured(steps: Sequence[Step], ns: Sequence[float]) -> MeasuredSteps:
    """Measured ``steps`` with their times."""
    numbers = {step: number for number, step in enumerate(dict.fromkeys(map(_key, steps)))}
    return MeasuredSteps(columns(steps), np.array(ns, float), np.array([numbers[_key(step)] for step in steps]))


def _key(step: Step) -> tuple[object, ...]:
    return (step.shape, step.configuration, step.cluster.name)


def fit_constants(
    known: MeasuredSteps, prior: StepConstants = PRIOR, spread: StepConstants = SPREAD, noise: float = NOISE
) -> StepConstants:
    """Fit the constants around ``prior``; a constant that the steps say nothing of stays there."""
    centre, width = (np.array(msgspec.structs.astuple(each), float) for each in (prior, spread))
    free = width > 0

    def constants(place: Floats) -> StepConstants:
        values = centre.copy()
        values[free] *= np.exp(place * width[free])
        return StepConstants(*values.tolist())

    def residuals(place: Floats) -> Floats:
        predicted = parts(constants(place), known.columns).total
        return np.concatenate([np.log(predicted / known.ns) / noise, place])

    return constants(soft_l1(residuals, np.zeros(int(free.sum()))))


def fit_seven(known: MeasuredSteps, start: Seven = START) -> Seven:
    """Fit the seven constants of the published form within their bounds."""
    from scipy.optimize import least_squares

    low, high = np.log(LOW), np.log(HIGH)

    def residuals(logs: Floats) -> Floats:
        found: Floats = np.log(step_seconds(Seven(*np.exp(logs)), known.columns) * 1e9 / known.ns)
        return found

    return Seven(*np.exp(least_squares(residuals, np.log(start), loss="soft_l1", bounds=(low, high)).x).tolist())


def predicted_ns(constants: StepConstants | Seven, steps: Columns) -> Floats:
    """Nanoseconds of each step by either form."""
    if isinstance(constants, Seven):
        return step_seconds(constants, steps) * 1e9
    return parts(constants, steps).total


Fit = Callable[[MeasuredSteps], Callable[[Columns], Floats]]


def fitted(known: MeasuredSteps) -> Callable[[Columns], Floats]:
    """A prediction by ``fit_constants``."""
    constants = fit_constants(known)
    return lambda steps: predicted_ns(constants, steps)


def fitted_seven(known: MeasuredSteps) -> Callable[[Columns], Floats]:
    """A prediction by ``fit_seven``."""
    constants = fit_seven(known)
    return lambda steps: predicted_ns(constants, steps)


def held_out(known: MeasuredSteps, fit: Fit, *, folds: int = FOLDS, seed: int = 0) -> Floats:
    """Predict each step by a fit of those in other folds. Steps with the same configuration share a fold."""
    groups = np.unique(known.twins)
    order = np.random.default_rng(seed).permutation(len(groups))
    fold = np.empty(int(groups.max()) + 1, int)
    fold[groups[order]] = np.arange(len(groups)) % folds
    found = np.empty(len(known))
    for number in range(folds):
        aside = fold[known.twins] == number
        found[aside] = fit(known.where(~aside))(known.columns.where(aside))
    return found


class Accuracy(NamedTuple):
    """Absolute relative errors of predictions."""

    steps: int
    mean: float
    median: float
    p90: float
    worst: float


def accuracy(predicted: Floats, ns: Floats) -> Accuracy:
    """Accuracy of ``predicted`` times."""
    errors = np.abs(predicted / ns - 1)
    return Accuracy(
        len(errors), *(float(each) for each in (errors.mean(), *np.quantile(errors, (0.5, 0.9)), errors.max()))
    )


def rank_correlation(predicted: Floats, ns: Floats) -> float:
    """Spearman's correlation of the orders of predicted and measured times."""
    ranks = [np.argsort(np.argsort(each)) for each in (predicted, ns)]
    found = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
    return 0.0 if math.isnan(found) else found


def regret(predicted: Floats, ns: Floats) -> float:
    """Measured time of the step that is predicted fastest, over the best, minus 1."""
    return float(ns[predicted.argmin()] / ns.min() - 1)
