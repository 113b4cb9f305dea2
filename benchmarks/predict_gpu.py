"""Predicted times on GPUs that the models have not seen, against measured ones, baselines and published predictors.

    python benchmarks/predict_gpu.py [--write] [--smallest]

*Products*: bf16 matrix products of one family of devices, by a model of the others (leave one family out), and the
same after 60 measured points of the device. *Steps*: fp32 training steps on an A100-80GB by models of the older
devices' training rows. Baselines: the roofline of the datasheet, and three constants pooled over the other devices.
*Intervals*: the share of cells that the 80 % intervals hold; their residuals come from the devices in the model alone.
"""

from __future__ import annotations

import math

import harness
import numpy as np
from numpy.typing import NDArray

from scripts.training.boosted import ROUNDS, fit_learned
from scripts.training.constants import fit_constants
from scripts.training.held_out import held_out
from tensortide.timing.estimates import Estimate, Provenance
from tensortide.timing.fit.samples import Samples
from tensortide.timing.intervals import Pool, coverage, pool
from tensortide.timing.models.constants import Constants
from tensortide.timing.models.kriging import correction
from tensortide.timing.models.learned import CORRECTIONS_BY_NAME, Learned
from tensortide.timing.rates import Columns, columns
from tests.timing.tables import ISSUE_NS, Step, fp32_products, fp32_steps, fp32_vectors, half_precision_products

Floats = NDArray[np.float64]

POINTS, DRAWS = 60, 5
TRAINED = ("P4", "P100-PCIe-16GB", "V100-PCIe-32GB", "T4", "A100-PCIe-40GB")
UNSEEN = "A100-PCIe-80GB"
COPY_SHARE = 0.8
"""Share of the bandwidth that copies of a step reach: that of pointwise ops."""


def measure(run: harness.Run) -> None:
    rounds = 20 if run.smallest else ROUNDS
    products(run, rounds)
    steps(run, rounds)


# -- products ---------------------------------------------------------------------------------------


def products(run: harness.Run, rounds: int) -> None:
    table = run.table(
        {
            "unseen device": "{device}",
            "products": "{count:,}",
            "roofline": "{roofline:.1%}",
            "three constants": "{constants:.1%}",
            "ours, mean": "{mean:.1%}",
            "median": "{median:.1%}",
            f"with {POINTS} points": "{adapted:.1%}",
            "in the interval": "{held:.1%}",
            "log width": "{width:.2f}",
        },
        key=("device",),
        title="bf16 products, one family of devices left out (mean absolute error)",
    )
    measured = list(half_precision_products().values())
    archs = list(dict.fromkeys(each.device.arch for each in measured))
    for arch in archs[: 1 if run.smallest else None]:
        others = [each for each in measured if each.device.arch != arch]
        model = fit_learned("matrix_16bit", others, rounds=rounds)
        known = pool(*held_out(others, lambda some: fit_learned("matrix_16bit", some, rounds=rounds)))
        pooled = fit_constants(others)
        assert pooled is not None
        for each in (each for each in measured if each.device.arch == arch):
            table.add(_product_row(each, model, known, pooled))
    names = ("roofline", "constants", "mean", "median", "adapted", "held", "width")
    rows = list(table.rows)
    table.add({"device": "mean", "count": sum(row["count"] for row in rows)} | {
        name: sum(row[name] for row in rows) / len(rows) for name in names
    })  # fmt: skip


def _product_row(each: Samples, model: Learned, known: Pool, pooled: Constants) -> harness.Row:
    found = np.fmax(model.in_order(each.columns), each.columns.compute_ns)
    residuals = np.log(each.ns / found)
    halves = [known.of(float(ns)) for ns in found]
    low = [ns * math.exp(-half.below) for ns, half in zip(found, halves, strict=True)]
    high = [ns * math.exp(half.above) for ns, half in zip(found, halves, strict=True)]
    held = coverage(low, high, each.ns.tolist())
    adapted = []
    for seed in range(DRAWS):
        chosen = np.zeros(len(each), bool)
        chosen[np.random.default_rng(seed).choice(len(each), POINTS, replace=False)] = True
        fitted = correction(each.where(chosen).columns, residuals[chosen])
        rest = each.where(~chosen)
        adapted.append(_error(found[~chosen] * fitted.factor(rest.columns), rest.ns))
    return {
        "device": each.device.name,
        "count": len(each),
        "roofline": _error(_roofline(each.columns), each.ns),
        "constants": _error(pooled.ns(each.columns), each.ns),
        "mean": _error(found, each.ns),
        "median": float(np.median(np.abs(found / each.ns - 1))),
        "adapted": sum(adapted) / len(adapted),
        "held": held.share,
        "width": held.log_width,
    }


def _roofline(table: Columns) -> Floats:
    return np.fmax(table.compute_ns, table.memory_ns)


def _error(predicted: Floats, measured: Floats) -> float:
    return float(np.mean(np.abs(predicted / measured - 1)))


# -- steps ------------------------------------------------------------------------------------------


def steps(run: harness.Run, rounds: int) -> None:
    table = run.table(
        {
            "fp32 step": "{step}",
            "measured": "{measured_ms:,.0f} ms",
            "ours": "{ours_ms:,.0f} ms",
            "error": "{error:+.1%}",
            "interval": "{interval}",
            "roofline": "{roofline:+.1%}",
            "NeuSight": "{neusight:+.1%}",
            "Habitat": "{habitat:+.1%}",
            "Li et al.": "{lietal:+.1%}",
        },
        key=("step",),
        title=f"fp32 training steps on {UNSEEN}, which no model has seen",
    )
    models, pools = _step_models(rounds)
    for step in fp32_steps("train"):
        if step.device.name == UNSEEN:
            table.add(_step_row(step, models, pools))
    rows = list(table.rows)
    absolute = {name: sum(abs(row[name]) for row in rows) / len(rows) for name in ("error", *PUBLISHED)}
    worst = {name: max(abs(row[name]) for row in rows) for name in ("error", *PUBLISHED)}
    held = sum(row["inside"] for row in rows)
    table.add({"step": "mean, absolute", "interval": f"{held} of {len(rows)} hold"} | absolute)
    table.add({"step": "worst"} | worst)


PUBLISHED = ("roofline", "neusight", "habitat", "lietal")


def _step_models(rounds: int) -> tuple[dict[str, Learned], dict[str, Pool]]:
    tables = {"matrix_fp32": fp32_products("train"), "vector": fp32_vectors("train")}
    models, pools = {}, {}
    for kind, by_device in tables.items():
        measured = [by_device[name] for name in TRAINED]
        models[kind] = fit_learned(kind, measured, weigh_time=True, rounds=rounds)
        pools[kind] = pool(
            *held_out(measured, lambda some, kind=kind: fit_learned(kind, some, weigh_time=True, rounds=rounds))
        )
    return models, pools


def _step_row(step: Step, models: dict[str, Learned], pools: dict[str, Pool]) -> harness.Row:
    """One step: no op is shorter than the host took to issue one on these machines."""
    total = Estimate()
    for kind, model in models.items():
        works = [(work, count) for work, count in step.works if work.family in CORRECTIONS_BY_NAME[kind].families]
        found = columns([work for work, _ in works], step.device)
        times = np.maximum(np.fmax(model.in_order(found), found.compute_ns), ISSUE_NS)
        for (work, count), ns in zip(works, times.tolist(), strict=True):
            half = pools[kind].of(ns)
            total += Estimate.of(ns, half.below, half.above, Provenance.EXTRAPOLATED, work.family) * count
    for work, count in step.works:
        if work.family == "copy":
            ns = max(ISSUE_NS, work.nbytes / (COPY_SHARE * step.device.memory_gbytes_per_s))
            total += Estimate.of(ns, 0.3, 0.3, Provenance.EXTRAPOLATED, "copy") * count
    low, high = total.low_ns, total.high_ns
    return {
        "step": f"{step.model}, batch {step.batch}",
        "measured_ms": step.ns / 1e6,
        "ours_ms": total.time_ns / 1e6,
        "error": total.time_ns / step.ns - 1,
        "interval": f"{low / 1e6:,.0f} to {high / 1e6:,.0f} ms",
        "inside": low <= step.ns <= high,
        **{name: step.published[name] / step.ns - 1 for name in PUBLISHED},
    }


if __name__ == "__main__":
    harness.main(__doc__, measure)
