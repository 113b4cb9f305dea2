"""Predicted training steps of models that were not measured, on a CPU core, against measured ones and baselines

    python benchmarks/predict_cpu.py [--write] [--smallest]

Of eight fp32 training steps measured op by op in processor time, constants are fitted to some and the others predicted:
to each 6 of 8 models, and to each 3 of the 5 larger ones. An error is that of a whole step; the bars are 10 % on
average and 25 % at worst. *Roofline*: the measured peaks of the core. *Three constants*: of each family that has enough
samples, else pooled. *Ours*: the fit of `tensortide time calibrate`, families with priors and products whose rate
saturates. Both add the host's work between ops as that fit has it. Intervals come from the fitted models alone, each
predicted from the others. FLOPs of all are counted from shapes.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import harness
import numpy as np

from scripts.training.constants import fit_constants
from tensortide.timing.estimates import Estimate, Provenance
from tensortide.timing.fit.samples import joined
from tensortide.timing.fit.steps import FittedSteps, MeasuredStep, Residuals, fit_steps, residuals
from tensortide.timing.intervals import coverage
from tests.timing.cpu_tables import cpu_steps

LARGER = ("gpt", "bert", "vit", "resnet50", "convnext")


def measure(run: harness.Run) -> None:
    steps = cpu_steps()
    table = run.table(
        {
            "fitted to": "{protocol}",
            "splits": "{splits}",
            "steps": "{cells}",
            "model": "{model}",
            "mean": "{mean:.1%}",
            "worst": "{worst:.1%}",
            "time-weighted error of ops": "{weighted:.0%}",
            "steps in the interval": "{held:.0%}",
            "log width": "{width:.2f}",
            "ops in the interval": "{ops:.0%}",
        },
        key=("protocol", "model"),
        title="Error of steps that were held out",
    )
    for protocol, names, count in (("6 of 8", tuple(steps), 6), ("3 of 5", LARGER, 3)):
        splits = list(itertools.combinations(names, count))[: 1 if run.smallest else None]
        cells = [
            _cell(steps, fitted, unseen) for fitted in splits for unseen in names if unseen not in fitted
        ]  # fmt: skip
        for row in _rows(cells):
            table.add({"protocol": protocol, "splits": len(splits), "cells": len(cells), **row})
    run.note(
        "No published predictor of training steps on CPUs states an error on these. Time predicted by PyTorch's FLOP "
        "formula and a fixed share of the peak is off by 24 % on 18 other fp32 steps on CPUs."
    )


def _cell(steps: dict[str, MeasuredStep], fitted: tuple[str, ...], unseen: str) -> harness.Row:
    """One step, predicted by each model."""
    step, known = steps[unseen], [steps[name] for name in fitted]
    found, missed = _fit(fitted), _residuals(fitted)
    columns, ns = step.samples.columns, step.samples.ns
    ours = found.model.ns(columns)
    between = float(found.host_ns(step, ours).sum())
    plain = _three_constants(known, step)
    roof = np.fmax(columns.compute_ns, columns.memory_ns)
    held, ops = _held(step, ours, between, missed)
    predicted = {"roofline": roof, "three constants": plain, "ours": ours}
    totals = {"roofline": roof.sum(), "three constants": plain.sum() + between, "ours": ours.sum() + between}
    return {
        "error": {name: abs(float(total) / step.ns - 1) for name, total in totals.items()},
        "weighted": {name: float(np.abs(each - ns).sum() / ns.sum()) for name, each in predicted.items()},
        "step": held,
        "ops": ops,
    }


def _held(step: MeasuredStep, ours: np.ndarray, between: float, missed: Residuals) -> tuple[tuple[float, ...], float]:
    """The interval of the step with its measured time, and the share of its ops that theirs hold."""
    families = step.samples.columns.families
    halves = [missed.pool(name).of(ns) for name, ns in zip(families, ours.tolist(), strict=True)]
    low = [ns * math.exp(-half.below) for ns, half in zip(ours.tolist(), halves, strict=True)]
    high = [ns * math.exp(half.above) for ns, half in zip(ours.tolist(), halves, strict=True)]
    total = Estimate()
    for ns, half, family in zip(ours.tolist(), halves, families, strict=True):
        total += Estimate.of(ns, half.below, half.above, Provenance.INTERPOLATED, family)
    share = (total.time_ns + between) / total.time_ns
    below = max(missed.step, math.log(total.time_ns / total.low_ns))
    above = max(missed.step, math.log(total.high_ns / total.time_ns))
    whole = total.time_ns * share
    interval = (whole * math.exp(-below), whole * math.exp(above), step.ns)
    return interval, coverage(low, high, step.samples.ns.tolist()).share


def _rows(cells: Sequence[harness.Row]) -> list[harness.Row]:
    """One row for each model."""
    found = []
    for name in cells[0]["error"]:
        errors = [cell["error"][name] for cell in cells]
        weighted = sum(cell["weighted"][name] for cell in cells) / len(cells)
        found.append({"model": name, "mean": sum(errors) / len(errors), "worst": max(errors), "weighted": weighted})
    held = coverage(*(list(column) for column in zip(*(cell["step"] for cell in cells), strict=True)))
    found[-1] |= {"held": held.share, "width": held.log_width, "ops": sum(cell["ops"] for cell in cells) / len(cells)}
    return found


@functools.cache
def _fit(fitted: tuple[str, ...]) -> FittedSteps:
    return fit_steps([cpu_steps()[name] for name in fitted])


@functools.cache
def _residuals(fitted: tuple[str, ...]) -> Residuals:
    """What each of the ``fitted`` models is missed by, predicted from the others."""
    steps = cpu_steps()
    fits = [_fit(tuple(other for other in fitted if other != name)) for name in fitted]
    return residuals([steps[name] for name in fitted], fits)


def _three_constants(known: Sequence[MeasuredStep], step: MeasuredStep) -> np.ndarray:
    """Nanoseconds of the ops of ``step`` by three constants for each family of ``known`` steps."""
    measured, columns = joined([each.samples for each in known]), step.samples.columns
    pooled = fit_constants([measured])
    assert pooled is not None
    ns = pooled.ns(columns)
    for family in set(columns.families):
        here, there = (np.array([name == family for name in some.families]) for some in (columns, measured.columns))
        own = fit_constants([measured.where(there)], pooled) if there.any() else None
        if own is not None:
            ns[here] = own.ns(columns.where(here))
    return ns


if __name__ == "__main__":
    harness.main(__doc__, measure)
