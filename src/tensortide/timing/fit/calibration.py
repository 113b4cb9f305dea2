"""Fit of a calibration to measured steps: a pure function, so that the same steps give the same constants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tensortide.timing.calibration import Calibration, Chunk, ClockName, Rates
from tensortide.timing.catalogue import Device
from tensortide.timing.durations import Platform
from tensortide.timing.fit.samples import samples
from tensortide.timing.fit.steps import FittedSteps, MeasuredStep, fit_steps, of_steps, residuals
from tensortide.timing.intervals import LEAST, WIDE, Pool, pool
from tensortide.timing.local import calibrated, device_of

FOLDS = 12
"""Parts of the steps that are held out in turn."""


def fit_calibration(
    machine: Platform,
    clock: ClockName,
    when: str,
    chunks: Sequence[Chunk],
    *,
    before: Rates,
    after: Rates,
    cache_bytes: int | None = None,
) -> Calibration:
    """Fit constants to ``chunks``; intervals come from steps that were held out, and ceilings that drifted widen them.

    Raises ValueError for chunks without products, or with nothing else.
    """
    device = device_of(machine, before.best(after), cache_bytes)
    steps = [_measured(chunk, device) for chunk in chunks]
    fitted = fit_steps(steps)
    fits = _held_out(steps)
    missed = residuals(steps, fits)
    return Calibration(
        machine=machine,
        clock=clock,
        when=when,
        before=before,
        after=after,
        steps=tuple(chunk.name for chunk in chunks),
        model=fitted.model,
        between_ns=fitted.host.between_ns,
        overhead=fitted.host.overhead,
        refills=fitted.host.refills,
        pools=missed.pools,
        outside=_outside(chunks, steps, fits),
        step_share=max(_trained(chunks, steps, fits), float(np.log1p(before.drift(after)))),
        cache_bytes=cache_bytes,
    )


def _measured(chunk: Chunk, device: Device) -> MeasuredStep:
    return MeasuredStep(samples(device, [chunk.works[i] for i in chunk.index], chunk.ns), chunk.step_ns)


def _held_out(steps: Sequence[MeasuredStep]) -> list[FittedSteps]:
    """For each step the fit of those in other folds."""
    folds = min(FOLDS, len(steps))
    fits = [fit_steps([step for i, step in enumerate(steps) if i % folds != fold]) for fold in range(folds)]
    return [fits[i % folds] for i in range(len(steps))]


def _trained(chunks: Sequence[Chunk], steps: Sequence[MeasuredStep], fits: Sequence[FittedSteps]) -> float:
    """Half-width of whole steps: of those held out that are training steps, if there are any."""
    trained = [any("_backward" in work.family for work in chunk.works) for chunk in chunks]
    rows = zip(steps, fits, trained, strict=True)
    return of_steps([step.ns / fit.ns(step) for step, fit, trains in rows if trains or not any(trained)])


def _outside(chunks: Sequence[Chunk], steps: Sequence[MeasuredStep], fits: Sequence[FittedSteps]) -> Pool:
    """Residuals of held-out ops that their fit has no samples like, or does not identify the constant of.

    Those of one family in one step err alike, and count as one: a step that was not measured is another.
    """
    missed: list[NDArray[np.float64]] = []
    predicted: list[NDArray[np.float64]] = []
    weights: list[float] = []
    for chunk, step, fit in zip(chunks, steps, fits, strict=True):
        table, ns = step.samples.columns, fit.model.ns(step.samples.columns)
        ops = zip((chunk.works[i] for i in chunk.index), table.compute_ns, table.memory_ns, strict=True)
        beyond = np.array([not calibrated(fit.model, work, table.device, *least) for work, *least in ops])
        missed.append(np.log(step.samples.ns / ns)[beyond])
        predicted.append(ns[beyond])
        families = [table.families[i] for i in np.flatnonzero(beyond)]
        weights += [1 / families.count(family) for family in families]
    found, times = np.concatenate(missed), np.concatenate(predicted)
    return pool(found, times, weights=np.array(weights)) if sum(weights) > LEAST - 0.5 else WIDE
