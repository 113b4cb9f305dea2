"""Fits of the closed forms to measured steps, in logarithms with a soft L1 loss; steps held out; intervals of them.

Steps with the same layer miss by the same: whatever their batch, replicas, stages and depth, it is the time of that
layer that is not as predicted. So each layer has a factor of its own, close to 1 by its prior (a mixed model), that
its steps share. Without it many steps of few layers would count as many facts, and bend the constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from scripts.training.seven_constants import HIGH, LOW, START, Seven, step_seconds
from tensortide.parallelism.closed.columns import Columns, Floats, Step, columns, layer_of
from tensortide.parallelism.closed.constants import PRIOR, StepConstants
from tensortide.parallelism.closed.formula import parts
from tensortide.timing.fit.robust import soft_l1

NOISE = 0.03
"""Log error of a measured step that counts by its square; larger ones count linearly."""
LAYER = 0.05
"""Standard deviation of the logarithms of layers' factors."""
ENOUGH = 10
"""Steps that tell the factor of their layer. That of fewer may be what was special about one run, and a choice among
configurations would follow it."""
FOLDS = 5
SPREAD = StepConstants(
    compute=0.1,
    tokens=1.0,
    width=1.0,
    pointwise=0.7,
    scores=0.7,
    host_ns=1.0,
    host_rank_ns=1.0,
    head_ns=1.0,
    logits=0.5,
    unaligned=0.5,
    link=0.2,
    nic=0.3,
    latency_ns=0.4,
    rank_ns=1.0,
    transfer_ns=1.0,
    transfer_link=0.7,
    gradients=1.0,
    optimizer_ns=1.0,
    step_ns=1.0,
    straggler=0.0,
)
"""Standard deviations of the priors, of logarithms; a constant with 0 is not fitted."""


@dataclass(frozen=True, eq=False)
class MeasuredSteps:
    """Measured steps: their columns and nanoseconds. ``twins``: numbers that repeated configurations share;
    ``layers``: names of their layers."""

    columns: Columns
    ns: Floats
    twins: NDArray[np.int64]
    layers: NDArray[np.str_]

    def where(self, mark: NDArray[np.bool_] | NDArray[np.int64]) -> MeasuredSteps:
        """The steps that ``mark`` selects."""
        return MeasuredSteps(self.columns.where(mark), self.ns[mark], self.twins[mark], self.layers[mark])

    def __len__(self) -> int:
        return self.ns.size


def measured(steps: Sequence[Step], ns: Sequence[float]) -> MeasuredSteps:
    """Measured ``steps`` with their times."""
    numbers = {step: number for number, step in enumerate(dict.fromkeys(map(_key, steps)))}
    twins = np.array([numbers[_key(step)] for step in steps])
    return MeasuredSteps(columns(steps), np.array(ns, float), twins, np.array([layer_of(step) for step in steps]))


def _key(step: Step) -> tuple[object, ...]:
    return (step.shape, step.configuration, step.nodes.name)


class Fitted(NamedTuple):
    """Fitted constants, and measured over closed form of the layers that enough steps had."""

    constants: StepConstants
    factors: Mapping[str, float]

    def predicted_ns(self, steps: MeasuredSteps) -> Floats:
        """Nanoseconds of each step, whatever was measured of it; its layer's factor is used where it is known."""
        factor = np.array([self.factors.get(layer, 1.0) for layer in steps.layers.tolist()])
        return parts(self.constants, steps.columns._replace(factor=factor)).total


def fit_steps(
    known: MeasuredSteps,
    prior: StepConstants = PRIOR,
    spread: StepConstants = SPREAD,
    noise: float = NOISE,
    layer: float = LAYER,
) -> Fitted:
    """Fit the constants around ``prior``; a constant that the steps say nothing of stays there. ``layer``: deviation of
    the factors (0: none are fitted)."""
    centre, width = (np.array(msgspec.structs.astuple(each), float) for each in (prior, spread))
    free = width > 0
    count = int(free.sum())
    names, number, steps_of = np.unique(known.layers, return_inverse=True, return_counts=True)

    def constants(place: Floats) -> StepConstants:
        values = centre.copy()
        values[free] *= np.exp(place[:count] * width[free])
        return StepConstants(*values.tolist())

    def factors(place: Floats) -> Floats:
        found: Floats = np.exp(layer * place[count:]) if layer else np.ones(len(names))
        return found

    def residuals(place: Floats) -> Floats:
        steps = known.columns._replace(factor=factors(place)[number])
        return np.concatenate([np.log(parts(constants(place), steps).total / known.ns) / noise, place])

    place = soft_l1(residuals, np.zeros(count + (len(names) if layer else 0)))
    told = zip(names.tolist(), factors(place).tolist(), steps_of.tolist(), strict=True)
    return Fitted(constants(place), {name: factor for name, factor, count in told if layer and count >= ENOUGH})


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


Fit = Callable[[MeasuredSteps], Callable[[MeasuredSteps], Floats]]


def fitted(known: MeasuredSteps) -> Callable[[MeasuredSteps], Floats]:
    """A prediction by ``fit_steps``."""
    return fit_steps(known).predicted_ns


def fitted_seven(known: MeasuredSteps) -> Callable[[MeasuredSteps], Floats]:
    """A prediction by ``fit_seven``."""
    constants = fit_seven(known)
    return lambda steps: predicted_ns(constants, steps.columns)


def held_out(known: MeasuredSteps, fit: Fit, *, folds: int = FOLDS, seed: int = 0, layers: bool = False) -> Floats:
    """Predict each step by a fit of those in other folds. Steps with the same configuration share a fold; ``layers``:
    those with the same layer do."""
    _, groups = np.unique(known.layers if layers else known.twins, return_inverse=True)
    order = np.random.default_rng(seed).permutation(int(groups.max()) + 1)
    fold = np.empty(len(order), int)
    fold[order] = np.arange(len(order)) % folds
    found = np.empty(len(known))
    for number in range(folds):
        aside = fold[groups] == number
        found[aside] = fit(known.where(~aside))(known.where(aside))
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
