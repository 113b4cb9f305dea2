"""Predicted training steps on many devices by closed forms, against measured ones, with baselines.

    python benchmarks/scale_accuracy.py [--write] [--smallest]

*Held out*: vTrain's steps on A100s, five folds, five shuffles (steps that were measured twice share a fold). Those of
one node are linear in layers and micro-batches to 1e-4, whatever the replicas: they are composed of the times of 32
layers, and a fit that knows the layer knows the step. Rows in which all steps with the same layer are held out together
say how far off a layer is that nobody measured.
*Choice*: the measured time of the configuration that a model likes best, over the best of the size. *Transfer*: other
people's runs by constants of vTrain's steps, nothing refitted: they differ in device, software, recomputation, overlap.
Where the micro-batch is unknown, 1, 2 and 4 are tried. A *sign* is right if the step becomes longer, or shorter, from
one row of a series to the next as measured. *One machine*: full and selective recomputation on A100s, without a refit;
with all constants refitted around the shipped ones, to these eight steps (as the published figure) and to the other
models. Trivial: one hardware FLOPs utilization, recomputation included. Best public figures are those of their authors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import harness
import numpy as np

from scripts.training.seven_constants import published_flops
from scripts.training.step_fits import (
    SPREAD,
    Fit,
    Fitted,
    MeasuredSteps,
    accuracy,
    fit_seven,
    fit_steps,
    fitted,
    fitted_seven,
    held_out,
    predicted_ns,
    rank_correlation,
    regret,
)
from tensortide.parallelism.closed import memory
from tensortide.parallelism.closed.columns import Floats
from tensortide.parallelism.closed.constants import StepConstants, shipped
from tensortide.timing.intervals import pool
from tests.parallelism.tables import (
    Case,
    measured_of,
    megatron_2021,
    megatron_core,
    mlperf,
    mt_nlg,
    rows,
    selective,
    vtrain,
)

SHUFFLES = 5
MICRO_BATCHES, COUNTED = (1, 2, 4), 2
ROUNDING = 0.01
"""Steps that differ by less have no sign: their times derive from whole TFLOP/s."""
CALIBRATION = 0.03
"""Log error of a step in the calibration of one machine: eight steps of one careful source."""


def measure(run: harness.Run) -> None:
    several, one = vtrain("multi"), vtrain("single")
    if run.smallest:
        one = one[::20]
    folds(run, several, one)
    choices(run, several, one)
    transfer(run, several, one)
    machine(run, several)
    memories(run)


# -- trivial ----------------------------------------------------------------------------------------


def constant_hfu(cases: Sequence[Case]) -> tuple[MeasuredSteps, Fit]:
    """One utilization for all: the median over the known steps. FLOPs travel in the column ``layers``."""
    known = measured_of(cases)
    work = [published_flops(case.step.shape, case.step.configuration.batch) for case in cases]
    seconds = np.array(work) / [case.step.nodes.size for case in cases] / known.columns.peak
    known = replace(known, columns=known.columns._replace(layers=seconds))

    def fit(some: MeasuredSteps) -> Callable[[MeasuredSteps], Floats]:
        share = float(np.median(some.ns / some.columns.layers))
        return lambda steps: steps.columns.layers * share

    return known, fit


# -- held out ---------------------------------------------------------------------------------------


def folds(run: harness.Run, several: Sequence[Case], one: Sequence[Case]) -> None:
    table = run.table(
        {
            "steps": "{steps}",
            "model": "{model}",
            "count": "{count:,}",
            "error, mean": "{mean:.1%}",
            "between shuffles": "{spread:.1%}",
            "median": "{median:.1%}",
            "p90": "{p90:.1%}",
            "worst": "{worst:.0%}",
            "in the interval": "{held:.1%}",
            "log width": "{width:.2f}",
            "bar": "{bar}",
        },
        key=("steps", "model"),
        title="Measured steps of vTrain, held out",
    )
    for steps, cases, bar in (("several nodes (C1)", several, "10 %"), ("one node (C3)", one, "8 %")):
        known = measured_of(cases)
        trivial, fit = constant_hfu(cases)
        for model, data, how in (
            ("constant HFU", trivial, fit),
            ("seven constants", known, fitted_seven),
            ("ours", known, fitted),
        ):
            _held_out_row(table, steps, model, data, [held_out(data, how, seed=seed) for seed in _seeds(run)], bar)
    both = measured_of([*several, *one])
    for model, layers in (("ours, of both tables", False), ("ours, of both, its layer never measured", True)):
        found = [held_out(both, fitted, seed=seed, layers=layers) for seed in _seeds(run)]
        for steps, part, bar in (
            ("several nodes (C1)", slice(0, len(several)), "10 %"),
            ("one node (C3)", slice(len(several), None), "8 %"),
        ):
            some = np.arange(len(both))[part]
            _held_out_row(table, steps, model, both.where(some), [each[some] for each in found], bar)
    table.add({"steps": "several nodes (C1)", "model": "vTrain (complete table)", "mean": 0.1473})
    table.add({"steps": "one node (C3)", "model": "vTrain (complete table)", "mean": 0.0837})


def _seeds(run: harness.Run) -> range:
    return range(1 if run.smallest else SHUFFLES)


def _held_out_row(
    table: harness.Table, steps: str, model: str, known: MeasuredSteps, found: Sequence[Floats], bar: str
) -> None:
    each = [accuracy(one, known.ns) for one in found]
    held = [_coverage(one, known) for one in found]
    row = {name: float(np.mean([getattr(one, name) for one in each])) for name in ("mean", "median", "p90", "worst")}
    row |= {"held": float(np.mean([one[0] for one in held])), "width": float(np.mean([one[1] for one in held]))}
    spread = float(np.std([one.mean for one in each]))
    table.add({"steps": steps, "model": model, "count": len(known), "spread": spread, "bar": bar} | row)


def _coverage(found: Floats, known: MeasuredSteps) -> tuple[float, float]:
    """Share of steps in the interval that the residuals of the other half of the folds give, and its log half-width."""
    residuals = np.log(known.ns / found)
    half = known.twins % 2 == 0
    inside = np.empty(len(known), bool)
    widths = np.empty(len(known))
    for side in (half, ~half):
        known_pool = pool(residuals[~side], found[~side])
        for i in np.flatnonzero(side):
            quantiles = known_pool.of(float(found[i]))
            inside[i] = -quantiles.below <= residuals[i] <= quantiles.above
            widths[i] = (quantiles.below + quantiles.above) / 2
    return float(inside.mean()), float(widths.mean())


def choices(run: harness.Run, several: Sequence[Case], one: Sequence[Case]) -> None:
    table = run.table(
        {
            "size": "{size}",
            "configurations": "{count}",
            "regret, HFU": "{trivial:.1%}",
            "seven constants": "{seven:.1%}",
            "ours": "{ours:.1%}",
            "ours, of both tables": "{both:.1%}",
            "order, seven": "{order_seven:.2f}",
            "order, ours": "{order:.2f}",
            "order, ours of both": "{order_both:.2f}",
        },
        key=("size",),
        title="Choice of a configuration (C2), of steps held out. Bar: regret at most 10 % each; order: Spearman",
    )
    known, (trivial, fit) = measured_of(several), constant_hfu(several)
    found = {
        "trivial": held_out(trivial, fit),
        "seven": held_out(known, fitted_seven),
        "ours": held_out(known, fitted),
        "both": held_out(measured_of([*several, *one]), fitted)[: len(several)],
    }
    for size in dict.fromkeys(case.group for case in several):
        mark = np.array([case.group == size for case in several])
        row = {name: regret(each[mark], known.ns[mark]) for name, each in found.items()}
        orders = {"seven": "order_seven", "ours": "order", "both": "order_both"}
        row |= {key: rank_correlation(found[name][mark], known.ns[mark]) for name, key in orders.items()}
        table.add({"size": f"{size} B", "count": int(mark.sum())} | row)


# -- transfer ---------------------------------------------------------------------------------------


class Series(NamedTuple):
    """Runs of one source; those ``counted`` make the mean of all."""

    runs: str
    cases: list[Case]
    counted: bool = True


def series() -> Iterable[Series]:
    """Runs by source and micro-batch."""
    for size in MICRO_BATCHES:
        yield Series(f"Megatron 2021, A100, micro-batch {size}", list(megatron_2021(size)), size == COUNTED)
    yield Series("MT-NLG 530B, A100, micro-batch 1", list(mt_nlg()))
    for size in MICRO_BATCHES:
        yield Series(f"Megatron Core, H100, micro-batch {size}", list(megatron_core(size)), size == COUNTED)
    yield Series("MLPerf GPT-3, H100 and B200, fp8", list(mlperf()))


def transfer(run: harness.Run, several: Sequence[Case], one: Sequence[Case]) -> None:
    table = run.table(
        {
            "runs": "{runs}",
            "count": "{count}",
            "HFU": "{hfu:.1%}",
            "seven constants": "{seven:.1%}",
            "ours, of C1": "{c1:.1%}",
            "ours": "{ours:.1%}",
            "bias": "{bias:+.1%}",
            "worst": "{worst:.0%}",
            "signs": "{signs}",
            "in the interval": "{held:.0%}",
        },
        key=("runs",),
        title="Transfer without a refit (D). Bar: mean at most 15 %, every sign of a step of scaling right",
    )
    c1 = fit_steps(measured_of(several))
    both = c1 if run.smallest else Fitted(shipped().constants, shipped().factors)
    seven = fit_seven(measured_of(several))
    trivial, fit = constant_hfu(several)
    counted: list[float] = []
    for runs, cases, counts in series():
        known = measured_of(cases)
        found = both.predicted_ns(known)
        each = {"seven": predicted_ns(seven, known.columns), "c1": c1.predicted_ns(known), "ours": found}
        errors = {name: float(np.mean(np.abs(one / known.ns - 1))) for name, one in each.items()}
        hfu = fit(trivial)(constant_hfu(cases)[0])
        right, signs = _signs(cases, found)
        interval = np.abs(np.log(known.ns / found)) <= _half_width(cases)
        table.add(
            {
                "runs": runs,
                "count": len(cases),
                "hfu": float(np.mean(np.abs(hfu / known.ns - 1))),
                "bias": float(np.mean(found / known.ns - 1)),
                "worst": float(np.max(np.abs(found / known.ns - 1))),
                "signs": f"{right} of {signs}",
                "held": float(interval.mean()),
            }
            | errors
        )
        counted += np.abs(found / known.ns - 1).tolist() if counts else []
    table.add(
        {"runs": f"all, micro-batch {COUNTED} where unknown", "count": len(counted), "ours": float(np.mean(counted))}
    )


def _half_width(cases: Sequence[Case]) -> Floats:
    """Half-widths of the intervals that ``predict_step`` gives."""
    from tensortide.parallelism.closed.predict import predict_step

    times = [predict_step(case.step.shape, case.step.configuration, case.step.nodes).time for case in cases]
    return np.array([time.log_width for time in times])


def _signs(cases: Sequence[Case], found: Floats) -> tuple[int, int]:
    """Steps of scaling within a group of which the sign is right, and all of them; by devices, then by batch."""
    right = count = 0
    for group in dict.fromkeys(case.group for case in cases):
        pairs = zip(cases, found, strict=True)
        some = sorted((case.step.nodes.size, case.seconds, ns) for case, ns in pairs if case.group == group)
        for before, after in itertools.pairwise(some):
            if before[0] != after[0] and abs(after[1] / before[1] - 1) > ROUNDING:
                count += 1
                right += (after[1] > before[1]) == (after[2] > before[2])
    return right, count


# -- one machine ------------------------------------------------------------------------------------


def machine(run: harness.Run, several: Sequence[Case]) -> None:
    table = run.table(
        {
            "step": "{step}",
            "measured, s": "{seconds:.2f}",
            "ours, no refit": "{plain:+.1%}",
            "refitted without this model": "{others:+.1%}",
            "refitted to all eight": "{all:+.1%}",
            "seven constants": "{seven:+.1%}",
            "Calculon, tuned on this machine": "{calculon:+.1%}",
        },
        key=("step",),
        title="One machine (E). Bar: mean 5 %",
    )
    cases, published = selective(), [float(row["calculon_err_pct"]) / 100 for row in rows("calculon_validation")]
    known = measured_of(cases)
    prior = shipped().constants
    errors = {
        "plain": Fitted(prior, shipped().factors).predicted_ns(known),
        "others": _without_each(cases, known, prior),
        "all": predicted_ns(_calibrated(known, prior), known.columns),
        "seven": predicted_ns(fit_seven(measured_of(several)), known.columns),
    }
    off = {name: each / known.ns - 1 for name, each in errors.items()} | {"calculon": np.array(published)}
    for i, case in enumerate(cases):
        table.add({"step": case.name, "seconds": case.seconds} | {name: float(each[i]) for name, each in off.items()})
    table.add({"step": "mean, absolute"} | {name: float(np.mean(np.abs(each))) for name, each in off.items()})


def _calibrated(known: MeasuredSteps, prior: StepConstants) -> StepConstants:
    return fit_steps(known, prior, SPREAD, CALIBRATION, layer=0).constants


def _without_each(cases: Sequence[Case], known: MeasuredSteps, prior: StepConstants) -> Floats:
    groups = np.array([case.group for case in cases])
    found = np.empty(len(cases))
    for group in np.unique(groups):
        aside = groups == group
        found[aside] = predicted_ns(_calibrated(known.where(~aside), prior), known.columns.where(aside))
    return found


def memories(run: harness.Run) -> None:
    table = run.table(
        {
            "model": "{model}",
            "states, ours GiB": "{states:.2f}",
            "published": "{states_known:.2f}",
            "activations, ours GiB": "{none:.2f}",
            "published ": "{none_known:.2f}",
            "selective, ours GiB": "{part:.2f}",
            "published  ": "{part_known:.2f}",
        },
        key=("model",),
        title="Bytes of a rank, published figures without embedding and head",
    )
    by_model = {row["model"]: row for row in rows("seqsel_memory_fig1")}
    for case in selective():
        if case.step.configuration.recompute != "selective":
            continue
        shape, one = case.step.shape, case.step.configuration
        row = by_model[case.group]
        states = 18 * shape.layers * shape.layer_weights / (one.pipeline * one.tensor)
        plain = memory.without_recompute(one, sequence=False)
        own = shape.layers / one.pipeline * memory.in_flight(one)
        kept = [own * memory.layer_bytes(shape, each) for each in (plain, one)]
        table.add(
            {
                "model": case.group,
                "states": states / 2**30,
                "states_known": float(row["par_opt_GiB"]),
                "none": kept[0] / 2**30,
                "none_known": float(row["act_none_GiB"]),
                "part": kept[1] / 2**30,
                "part_known": float(row["act_seqsel_GiB"]),
            }
        )


if __name__ == "__main__":
    harness.main(__doc__, measure)
