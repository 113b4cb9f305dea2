"""Families of a measured device: constants that are recovered, products that saturate, steps that were held out."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tensortide.timing import Device
from tensortide.timing.fit.robust import soft_l1
from tensortide.timing.fit.samples import samples
from tensortide.timing.fit.saturating import fit_saturating
from tensortide.timing.fit.steps import MeasuredStep, fit_steps, residuals
from tensortide.timing.models.saturating import PRODUCTS
from tensortide.timing.rates import columns
from tensortide.timing.work import Work, elementwise, product
from tests.reference import reference_folder
from tests.timing.cpu_tables import cpu_steps

CORE = Device(name="a core", kind="cpu", fp32_tflops=0.1, memory_gbytes_per_s=20.0)  # 100 FLOP and 20 bytes per ns
STEPS = reference_folder() / "timing" / "cpu_zen5_torch213_train_step_ops.csv.gz"
measured_steps = pytest.mark.skipif(not STEPS.is_file(), reason="the table of CPU steps is not committed")


def product_ns(batch: int, m: int, n: int, k: int) -> float:
    """Time of products that reach 80 % of the peak, losing half at M = 5, N = 10 and K = 20."""
    return 3000 + 2 * batch * m * n * k / (0.8 * 100) * (1 + 5 / m) * (1 + 10 / n) * (1 + 20 / k)


def made() -> tuple[list[Work], list[float]]:
    """Products and pointwise ops of a made-up device, with their times."""
    rng = random.Random(0)
    sides = [(rng.randrange(1, 5), *(2 ** rng.randrange(4, 11) for _ in range(3))) for _ in range(200)]
    works = [product(m, n, k, batch=batch) for batch, m, n, k in sides]
    moved = [elementwise(2 ** rng.randrange(2, 12), 1024) for _ in range(100)]
    return [*works, *moved], [*(product_ns(*side) for side in sides), *(2000 + w.nbytes / (0.5 * 20) for w in moved)]


def test_a_fit_predicts_products_that_it_has_not_seen_and_ops_that_move_bytes() -> None:
    works, ns = made()
    found = fit_saturating(samples(CORE, works, ns))
    unseen = [(2, 100, 300, 700), (1, 24, 2000, 96), (1, 900, 40, 3000)]
    predicted = found.ns(columns([product(m, n, k, batch=batch) for batch, m, n, k in unseen], CORE))
    assert predicted == pytest.approx([product_ns(*side) for side in unseen], rel=0.05)
    moving = elementwise(3000, 1000)
    assert found.ns(columns([moving], CORE)) == pytest.approx([2000 + moving.nbytes / 10], rel=0.03)


def test_a_family_without_samples_has_the_constants_of_its_like() -> None:
    works, ns = made()
    found = fit_saturating(samples(CORE, works, ns))
    assert found.constants("convolution_kxk") == found.families[PRODUCTS]
    assert found.constants("mm_small") == found.families["mm"]
    assert found.constants("softmax_backward") == found.families["any"]


def test_the_backward_pass_of_a_convolution_is_two_products() -> None:
    works, ns = made()
    found = fit_saturating(samples(CORE, works, ns))
    sites, channels, taps = 4096, 64, 576
    flops = 2 * sites * channels * taps

    def arithmetic(family: str, times: int, dims: tuple[int, int, int]) -> float:
        work = Work(family, "float32", times * flops, dims=(1, *dims))
        return float(found.ns(columns([work], CORE))[0]) - found.families[PRODUCTS].launch_ns

    weight = arithmetic("convolution_kxk", 1, (channels, taps, sites))
    data = arithmetic("convolution_kxk", 1, (sites, taps, channels))
    dims = (sites, channels, taps)
    assert arithmetic("convolution_backward_kxk", 2, dims) == pytest.approx(weight + data)
    assert arithmetic("convolution_backward_kxk", 1, dims) == pytest.approx(weight)


def test_robust_least_squares_finds_the_optimum_of_an_optimization_library() -> None:
    from scipy.optimize import least_squares

    rng = np.random.default_rng(0)
    x = rng.uniform(0, 3, 50)
    y = 2 * np.exp(-1.5 * x) + 0.5 + rng.normal(0, 0.05, 50)
    y[::10] += 4  # outliers

    def missed(place: np.ndarray) -> np.ndarray:
        return np.asarray((place[0] * np.exp(-place[1] * x) + place[2] - y) / 0.1)

    start = np.ones(3)
    assert soft_l1(missed, start) == pytest.approx(least_squares(missed, start, loss="soft_l1").x, rel=1e-3)


def test_the_host_takes_a_time_after_each_op_and_a_share_of_the_time_of_large_ones() -> None:
    steps = []
    for scale in (1, 3, 30, 300):
        works = [product(16, 16, 16), *(elementwise(scale * rows, 64) for rows in range(1, 40))]
        ns = [2000 + work.nbytes / 10 for work in works]
        steps.append(MeasuredStep(samples(CORE, works, ns), sum(ns) * 1.05 + 1000 * len(ns)))
    found = fit_steps(steps)
    assert found.host.between_ns == pytest.approx(1000, rel=0.1)
    assert found.host.overhead == pytest.approx(0.05, rel=0.1)
    for step in steps:
        assert found.ns(step) == pytest.approx(step.ns, rel=0.05)


@measured_steps
def test_a_model_that_was_not_measured_takes_what_is_predicted() -> None:
    steps = cpu_steps()
    found = fit_steps([steps[name] for name in ("gpt", "resnet50")])
    for name in ("resnet18", "bert"):
        assert found.ns(steps[name]) == pytest.approx(steps[name].ns, rel=0.25)


@pytest.mark.slow
@measured_steps
def test_steps_of_unseen_models_are_within_a_tenth_on_average_and_about_a_quarter_at_worst() -> None:
    steps = cpu_steps()
    for names, count in ((tuple(steps), 6), (("gpt", "bert", "vit", "resnet50", "convnext"), 3)):
        errors = []
        for fitted in itertools.combinations(names, count):
            found = fit_steps([steps[name] for name in fitted])
            errors += [abs(found.ns(steps[name]) / steps[name].ns - 1) for name in names if name not in fitted]
        assert sum(errors) / len(errors) <= 0.10
        assert max(errors) <= 0.26  # without convolutions among the fitted; else 0.22


@measured_steps
def test_residuals_come_from_steps_that_a_fit_has_not_seen() -> None:
    steps = list(cpu_steps().values())[:3]
    fits = [fit_steps([other for other in steps if other is not step]) for step in steps]
    found = residuals(steps, fits)
    whole = [abs(np.log(step.ns / fit.ns(step))) for step, fit in zip(steps, fits, strict=True)]
    assert min(whole) <= found.step <= max(whole)
    assert found.pool("addmm").all.count == sum(
        name == "addmm" for step in steps for name in step.samples.columns.families
    )
    assert found.pool("convolution_depthwise") == found.pools[PRODUCTS]
